"""One run's JSON as a table in the terminal, as Markdown in docs/benchmarks.md, and as curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.acceptance import Bar, decoding_share, training_share
from benchmarks.charts import chart

BEGINS, ENDS = "<!-- results: printed by python -m benchmarks.bench --write-docs -->", "<!-- end of results -->"
COLUMNS = ("system", "tokens/s sampling", "sampling s", "step s", "CPU-s", "peak GiB", "training, share of limit", "runs")
Result = Mapping[str, Any]


def show(result: Result, console: Console) -> None:
    """The tables and the bars, with colours."""
    for name, found in result["tables"].items():
        table = Table(title=title(name, found), title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "system" else "right")
        for row in found["rows"]:
            table.add_row(*cells(found, row))
        console.print(table)
        for note in notes(found):
            console.print(f"  {note}", highlight=False, markup=False, soft_wrap=True)
    for bar in result["bars"]:
        console.print(bar_line(Bar(**bar)), highlight=False, markup=False, soft_wrap=True)


def title(name: str, found: Result) -> str:
    """What the shape asks for, in words."""
    shape = found["shape"]
    prompts, lengths = shape["prompt_lengths"], shape["lengths_B"]
    each = f"{lengths[0]} new tokens" if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)} new tokens"
    mean = sum(prompts) / len(prompts)
    return f"{name}: {len(prompts)} prompts of about {mean:.0f} tokens, {len(lengths) // len(prompts)} answers each, {each}"


def cells(found: Result, row: Result) -> list[str]:
    """One row of the table; numbers that a system does not have are dashes, a failure is said."""
    if not row["runs"]:
        return [row["system"], "failed", *["-"] * (len(COLUMNS) - 3), "0"]
    peak = row["peak_bytes"] if row["device_peak_bytes"] is None else row["device_peak_bytes"]
    step = _number(row["step_s"])
    if row["step_s"] is not None and len(row["runs"]) > 1:
        every = [run["step_s"] for run in row["runs"]]
        step += f" ({min(every):.1f}-{max(every):.1f})"
    share = training_share(found, row)
    return [
        row["system"], f"{row['tokens_per_s']:.0f}", _number(row["generation_s"]), step, _number(row["cpu_s"]),
        f"{peak / 2**30:.2f}", "-" if share is None else f"{share:.0%}", str(len(row["runs"])),
    ]  # fmt: skip


def notes(found: Result) -> list[str]:
    """Settings of every row, what failed, and the limits."""
    lines = [f"{row['system']}: {row['settings']}" for row in found["rows"] if "settings" in row]
    lines += [f"{row['system']} could not be measured: {row['error']}" for row in found["rows"] if "error" in row]
    training, decode = found["limits"].get("training"), found["limits"].get("decode")
    if training:
        toishi = next(row for row in found["rows"] if row["system"] == "toishi")
        whole = training_share(found, toishi, "whole_rows_flops")
        lines.append(
            f"products of the training pass's own shapes reach {_giga(training['own_shapes_flops'])}/s, its useful work is "
            f"{_giga(training['training_flop'])} (it makes {_giga(training['made_flop'])}); with whole rows of "
            f"{training['whole_rows']} tokens products reach {_giga(training['whole_rows_flops'])}/s"
            + (f", toishi {whole:.0%} of that" if whole is not None else "")
        )
    share = decoding_share(found)
    if decode and share is not None:
        call = decode["call_flop"] / sorted(decode["long_s"])[len(decode["long_s"]) // 2] / decode["products_flops"]
        lines.append(
            f"decoding {decode['rows']} answers: steps reach {share:.0%} of {_giga(decode['products_flops'])}/s, "
            f"a whole call with prompts and set-up {call:.0%}"
        )
    return lines


def bar_line(bar: Bar) -> str:
    """
    >>> bar_line(Bar("speed", ">= 2x", 2.5, True)), bar_line(Bar("speed", ">= 2x", None, None))
    ('passed        2.50  (>= 2x)  speed', 'not measured     -  (>= 2x)  speed')
    """
    verdict = {True: "passed", False: "FAILED", None: "not measured"}[bar.is_met]
    return f"{verdict:12} {'-' if bar.value is None else f'{bar.value:.2f}':>5}  ({bar.bound})  {bar.what}"


def markdown(result: Result, plots: str = "benchmarks") -> str:
    """The part of docs/benchmarks.md that a run fills."""
    about = result["about"]
    lines = [
        f"Measured {about['when']} on {about['cpu']}, {about['cores']} cores, {about['threads']} threads, {about['device']}; "
        f"{about['repeats']} alternating repetitions, medians (range in brackets); load when it began {about['load']}. "
        f"{', '.join(f'{name} {version}' for name, version in about['versions'].items())}.",
    ]
    for name, found in result["tables"].items():
        lines += [
            "",
            f"### {title(name, found)}",
            "",
            "| " + " | ".join(COLUMNS) + " |",
            "|---" + "|---:" * (len(COLUMNS) - 1) + "|",
        ]
        lines += ["| " + " | ".join(cells(found, row)) + " |" for row in found["rows"]]
        lines += ["", *(f"- {note}" for note in notes(found))]
    lines += ["", "### What toishi asks of itself", "", "| | bar | this run | |", "|---|---:|---:|---|"]
    lines += [_bar_row(Bar(**bar)) for bar in result["bars"]]
    if result.get("growth"):
        lines += ["", "### How the cost of a step grows", "", *_growth_lines(result["growth"], plots)]
    return "\n".join(lines) + "\n"


def curves(growth: Result) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Curve -> system -> points."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for point in growth["points"]:
        found.setdefault(point["curve"], {}).setdefault(point["system"], []).append((point["x"], point["step_s"]))
    return found


def write_plots(growth: Result, folder: Path) -> list[Path]:
    """One SVG a curve."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, systems in curves(growth).items():
        path = folder / f"{_file_name(name)}.svg"
        path.write_text(chart(f"Seconds of a step by {name}", name, "s", systems), encoding="utf-8")
        written.append(path)
    return written


def with_results(page: str, results: Mapping[str, Result]) -> str:
    """The page with fresh results between its two marks; a run each, by the name of its file."""
    before, rest = page.split(BEGINS)
    _, after = rest.split(ENDS)
    body = "\n".join(f"## {name}\n\n{markdown(result)}" for name, result in results.items())
    return f"{before}{BEGINS}\n\n{body or 'No run has been recorded yet; `make bench` makes one.'}\n{ENDS}{after}"


def _growth_lines(growth: Result, plots: str) -> list[str]:
    lines = [f"![Seconds of a step by {name}]({plots}/{_file_name(name)}.svg)" for name in curves(growth)]
    fit = growth["fit"]
    if not fit:
        return lines
    shared, separate, line = fit["shared"], fit["separate"], fit["line"]
    rows = {
        "prompt + G x completion, a line": (f"{1000 * line['slope']:.2f} s, and {line['intercept']:.2f} s once", line),
        "prompt + G x completion, proportional": (f"{1000 * shared['slope']:.2f} s", shared),
        "G x (prompt + completion), proportional": (f"{1000 * separate['slope']:.2f} s", separate),
    }
    return [
        f"At L with one prompt, from G = 2 to G = 32, toishi's step costs {fit['measured_ratio']:.2f} times as much. Tokens "
        f"grow {shared['ratio']:.2f} times if the prompt is computed once per group (prompt + G x completion), and "
        f"{separate['ratio']:.2f} times if it is computed for every answer (G x (prompt + completion)).",
        *("", "| seconds against | per 1,000 tokens | R^2 |", "|---|---:|---:|"),
        *(f"| {name} | {cost} | {law['r_squared']:.4f} |" for name, (cost, law) in rows.items()),
        *("", *lines),
    ]


def _bar_row(bar: Bar) -> str:
    verdict = {True: "passed", False: "**failed**", None: "not measured"}[bar.is_met]
    return f"| {bar.what} | {bar.bound} | {'-' if bar.value is None else f'{bar.value:.2f}'} | {verdict} |"


def _file_name(curve: str) -> str:
    return curve.split(",")[0].replace(" ", "-")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _giga(flop: float) -> str:
    return f"{flop / 1e9:.0f} GFLOP"
