"""Prints a check report: what would happen, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.check import CheckReport, reasons
from toishi.cli.attack_tables import print_attacks
from toishi.display_tables import facts_table, number, plan_in_words, task_in_words, weights_in_words
from toishi.explanation.render import one_line
from toishi.forecast import Forecast
from toishi.golds import GoldReadings
from toishi.memory import MemoryPlan, Phase, saving
from toishi.scoring import DryRunRow


def render(report: CheckReport, console: Console, *, methods: bool = False) -> None:
    """The whole report, findings last, where the eye rests; `methods`: with what other methods would keep in memory."""
    console.print(_facts(report), highlight=False)
    for note in report.notes:
        console.print(Text(note, style="dim"))
    for golds in report.golds:
        _print_golds(golds, console)
    if report.dry_run:
        console.print(_heading("Rewards tried on made-up answers to: ", report.dry_run[0].prompt.shown))
        console.print(dry_run_table(report.dry_run), highlight=False)
    if report.attacks is not None:
        print_attacks(report.attacks, console)
    if report.prompt is not None:
        console.print(_heading("A prompt as the model reads it"))
        console.print(Text(str(report.prompt["text"]).rstrip("\n"), style="cyan"))
        console.print(facts_table(_prompt_facts(report.prompt)), highlight=False)
    if report.forecast is not None:
        _print_forecast(report, report.forecast, console)
    if report.memory is not None:
        console.print(_heading("Memory, estimated at its highest in each phase"))
        console.print(memory_table(report.memory), highlight=False)
        if methods:
            console.print(_heading("What training keeps for the model's weights, by method"))
            console.print(methods_table(report.memory), highlight=False)
        console.print(Text(saving(report.memory.methods), style="dim"))
    for finding in report.findings:
        style = "bold red" if finding.level == "error" else "bold yellow"
        message = finding.message.removeprefix(f"{finding.part}: ")
        console.print(Text.assemble("\n", (f"{finding.level} in {finding.part}: ", style), message))
    console.print(conclusion(report))


def conclusion(report: CheckReport) -> Text:
    """The last line: whether training could start."""
    errors = sum(finding.level == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    if errors:
        return Text(
            f"\nNot ready: {errors} {'error' if errors == 1 else 'errors'} to mend before training can start.", style="bold red"
        )
    looked = "" if report.model is not None else " (the model was not looked at)"
    if warnings:
        return Text(
            f"\nTraining could start{looked}, with {warnings} {'warning' if warnings == 1 else 'warnings'}.",
            style="bold yellow",
        )
    return Text(f"\nNothing wrong found{looked}.", style="bold green")


def memory_table(plan: MemoryPlan) -> Table:
    """What is there all the time, what each phase adds to it, and the sum of the phase that needs most."""
    found = plan.estimate
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase", no_wrap=True)
    table.add_column("part", no_wrap=True)
    table.add_column("GB", justify="right")
    table.add_column("how it is counted", style="dim")
    for phase in (Phase("always", found.always), *found.phases):
        names = [phase.name, *[""] * len(phase.parts)]
        for name, part in zip(names, phase.parts, strict=False):
            table.add_row(name, part.name, number(part.num_bytes / 1e9, 2), part.formula)
        table.add_section()
    reachable = "what can be had is unknown here" if plan.reachable is None else f"{plan.reachable / 1e9:.1f} GB can be had"
    table.add_row("highest", found.peak.name, number(found.needed / 1e9, 2), f"about; {reachable}", style="bold")
    table.add_row("for weights", "", number(plan.kept.num_bytes / 1e9, 2), f"{plan.kept.per_weight:.1f} bytes a weight")
    table.add_row("micro-batch", f"{plan.micro_batch_tokens:,} tokens", "", plan.why)
    return table


def methods_table(plan: MemoryPlan) -> Table:
    """Bytes a weight by method, the recipe itself last."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("bytes a weight", justify="right")
    table.add_column("GB", justify="right")
    table.add_column("of it", style="dim")
    for kept in (*plan.methods, plan.kept):
        parts = ", ".join(f"{part.name} {part.num_bytes / 1e9:.2f}" for part in kept.parts)
        style = "bold" if kept is plan.kept else ""
        table.add_row(kept.method, f"{kept.per_weight:.1f}", number(kept.num_bytes / 1e9, 2), parts, style=style)
    return table


def _facts(report: CheckReport) -> Table:
    config, train = report.config, report.config.train
    rows = {"recipe": config.description.strip() or config.name}
    if report.num_train is not None or report.num_heldout:
        rows["data"] = task_in_words(config.task.name, report.num_train, report.num_heldout)
    rows["rewards"] = ", ".join(f"{reward.name} (weight {reward.weight:g})" for reward in config.rewards) or "none are asked"
    if report.rows_checked and config.rewards:
        rows["rewards"] += f"; {report.rows_checked:,} rows can be scored" if report.ok else ""
    rows["method"] = f"{config.algorithm.name}, learning rate {config.optimizer.lr:g}"
    rows["plan"] = plan_in_words(train.prompts_per_step, train.group_size, train.steps)
    if report.model is not None:
        model = report.model
        words = weights_in_words(model["trained"], model["parameters"])
        rows["model"] = (
            f"{model['source']} ({model['architecture']}), {words}, computing in {model['dtype']} on {model['device']}"
        )
        rows["path"] = model["path"]
    if report.rendered:
        longest = "" if report.longest_prompt is None else f"; the longest has {report.longest_prompt:,} tokens"
        rows["prompts"] = f"rendered: {report.rendered}{longest}"
    if report.disk is not None:
        rows["disk"] = f"checkpoints: {report.disk.words}"
    return facts_table(rows)


def _prompt_facts(prompt: dict[str, object]) -> dict[str, str]:
    stops = prompt["stop_ids"]
    assert isinstance(stops, dict)
    ids = prompt["token_ids"]
    assert isinstance(ids, list)
    shown = " ".join(map(str, ids[:40])) + (f" … ({len(ids)} in all)" if len(ids) > 40 else "")
    return {
        "row": str(prompt["prompt_id"]),
        "token ids": shown,
        "begin": f"{prompt['bos_count']} beginning-of-text token" + ("" if prompt["bos_count"] == 1 else "s"),
        "stops at": ", ".join(f"{token} {text!r}" for token, text in stops.items()),
        "padding": f"{prompt['pad_id']} {prompt['pad_text']!r} (never seen, never trained on)",
        "prefilled": repr(prompt["prefill"]) if prompt["prefill"] else "nothing",
    }


def dry_run_table(rows: Sequence[DryRunRow]) -> Table:
    """What the rewards pay for made-up answers to one real row: the right answer should be paid most."""
    table = _table()
    for row in rows:
        said = Text(one_line(reasons(row.scores), 60))
        table.add_row(number(row.reward), row.answer, Text(repr(one_line(row.text, 40))), said)
    return table


def answers_table(answers: Sequence[tuple[str, float | None, bool, str]]) -> Table:
    """Sampled answers with their rewards and the reasons."""
    table = _table()
    for text, reward, is_cut, why in answers:
        shown = Text.assemble(one_line(text, 100), (" (cut)" if is_cut else "", "dim"))
        table.add_row(number(reward), shown.append(f"\n{one_line(why, 120)}", style="dim") if why else shown)
    return table


def golds_table(found: GoldReadings) -> Table:
    """Types with how many rows have them and the first of each, then the golds that are unlike the others."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("read as", "rows", "for example", "read"):
        table.add_column(column, justify="right" if column == "rows" else "left")
    for first, count in found.types:
        table.add_row(first.type, f"{count:,}", Text(first.raw), Text(one_line(first.shown, 40)))
    return table


def _print_golds(found: GoldReadings, console: Console) -> None:
    console.print(_heading(f"How '{found.reward}' read the golds"))
    console.print(golds_table(found), highlight=False)
    for gold in found.odd:
        console.print(Text(f"unlike the others: {gold.row}: {gold.raw} is read as {gold.type} {one_line(gold.shown, 40)}"))
    if found.num_odd > len(found.odd):
        console.print(Text(f"and {found.num_odd - len(found.odd):,} more"))


def _table() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    return table


def _heading(text: str, prompt: str = "") -> Text:
    return Text.assemble(("\n" + text, "bold"), (one_line(prompt, 60), "cyan"))


def _print_forecast(report: CheckReport, found: Forecast, console: Console) -> None:
    console.print(_heading("Sampled answers to: ", report.example_prompt))
    console.print(answers_table(report.examples), "", highlight=False)
    if found.verdict == "go":
        console.print(Text.assemble(("go", "bold green"), f": {found.why}."))
    low, high = (f"{bound:.0%}" for bound in (found.mixed.low, found.mixed.high))
    console.print(
        Text(
            f"Seen in {found.num_groups} groups of {found.group_size} answers, sampled as the first step would: "
            f"{found.mixed.value:.0%} of the groups are mixed (95% interval {low} to {high}: few groups), mean reward "
            f"{number(found.reward_mean)}, {found.truncated:.0%} of the answers cut at the limit"
            + ("." if report.readable is None else f", an answer could be read in {report.readable:.0%}.")
        )
    )
    if found.mixed_by_group_size:
        sizes = ", ".join(f"{share:.0%} for G={size}" for size, share in found.mixed_by_group_size.items())
        console.print(
            Text(
                "A group of G answers to a prompt with success rate p is tied, and teaches nothing, with probability "
                f"p^G + (1-p)^G. Share of mixed groups to expect: {sizes}."
            )
        )
