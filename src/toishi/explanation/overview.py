"""A whole run in lines: how the reward went, what was measured, what happened, and which steps deserve a closer look."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.explanation.curve import reward_curve, sparkline
from toishi.explanation.render import signless
from toishi.explanation.step import algorithm_of
from toishi.record import Run
from toishi.record.lines import Line, step_metrics
from toishi.record.source import absent_links

MAX_LINES = 40
_OUTLIER = 3.0
_GAP = 3
"""Characters between two columns."""
NOTHING_TAUGHT = (
    "No step had a gradient: every group was tied or left out, so no weight was changed, and a held-out change is chance alone."
)
_STEP_COLUMNS = {
    "reward": ("reward/mean", ".3f"),
    "mixed": ("groups/mixed", ".0f"),
    "tokens": ("answers/mean_tokens", ".1f"),
    "entropy": ("entropy/mean_nats", ".3f"),
    "grad norm": ("update/grad_norm", ".3g"),
    "gap": ("sampler_gap/mean_abs", ".1e"),
    "s": ("time/step_s", ".1f"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewView:
    """A run's lines. `look_at`: steps worth a closer look, `missing`: links that are not on record; each with the reason."""

    folder: str
    algorithm: str
    steps: tuple[Mapping[str, Any], ...]
    evaluations: tuple[Line, ...]
    events: tuple[Line, ...]
    look_at: tuple[tuple[int, str], ...]
    missing: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def overview(run: Run) -> OverviewView:
    """The run so far."""
    return OverviewView(
        folder=str(run.folder),
        algorithm=algorithm_of(run)[0].name,
        steps=tuple({"step": line["step"], **step_metrics(line)} for line in run.metrics),
        evaluations=run.evaluations,
        events=run.events,
        look_at=tuple(worth_a_look(run.metrics, run.events)),
        missing=absent_links(run.run),
    )


def worth_a_look(metrics: Sequence[Line], events: Sequence[Line]) -> list[tuple[int, str]]:
    """Steps that stand out, each once, in order.

    >>> lines = [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.6}, {"step": 3, "reward/mean": 0.5}]
    >>> worth_a_look(lines, [])
    [(2, 'largest rise of the mean reward (+0.500)'), (3, 'largest fall of the mean reward (-0.100)')]
    """
    found: dict[int, list[str]] = {}
    rewards = [(line["step"], line.get("reward/mean")) for line in metrics]
    moves = [
        (now - before, step)
        for (_, before), (step, now) in itertools.pairwise(rewards)
        if now is not None and before is not None
    ]
    for name, pick in (("rise", max), ("fall", min)):
        change, step = pick(moves, default=(0.0, 0))
        if (change > 0) == (name == "rise") and change != 0:
            found.setdefault(step, []).append(f"largest {name} of the mean reward ({change:+.3f})")
    norm, step = _largest(metrics, "update/grad_norm")
    if norm > _OUTLIER * statistics.median([line.get("update/grad_norm") or 0.0 for line in metrics] or [0.0]):
        found.setdefault(step, []).append(f"largest gradient norm ({norm:.3g})")
    unscored, step = _largest(metrics, "answers/unscored")
    if unscored > 0:
        found.setdefault(step, []).append(f"{unscored:.0f} answers without a reward")
    for event in events:
        if event.get("kind") == "health" and event.get("step") and event.get("action") != "note":
            found.setdefault(event["step"], []).append("health warning")
    return [(step, "; ".join(dict.fromkeys(reasons))) for step, reasons in sorted(found.items())]


def _largest(metrics: Sequence[Line], key: str) -> tuple[float, int]:
    """The largest value of a metric and the first step that has it; (0, 0) without any."""
    values = [(line[key], line["step"]) for line in metrics if line.get(key) is not None]
    return max(values, key=lambda pair: pair[0], default=(0.0, 0))


def nothing_taught(metrics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are steps and none of them had a gradient.

    >>> nothing_taught([]), nothing_taught([{"update/grad_norm": 0.0}, {}]), nothing_taught([{"update/grad_norm": 0.1}])
    (False, True, False)
    """
    return bool(metrics) and not any(line.get("update/grad_norm") for line in metrics)


def render_overview(view: OverviewView, console: Console) -> None:
    """Prints the run: curve, a line a step, evaluations, events, and where to look next."""
    _print(console, f"{view.folder}: {len(view.steps)} steps on record, algorithm {view.algorithm}", style="bold")
    curve = reward_curve(view.steps, min(console.width, 100))
    if curve:
        _print(console, curve)
        console.print(_steps_table(view.steps))
        _print(console, "mixed: groups whose rewards differ; gap: mean |log-prob(sampler) - log-prob(trainer)|; s: seconds")
    if view.evaluations:
        few = any(line.get("value") is not None and line.get("interval") is None for line in view.evaluations)
        note = "; too few prompts for one are shown without" if few else ""
        _print(console, f"held-out evaluations (95% intervals{note})", style="bold")
        console.print(_evaluations_table(view.evaluations, console.width))
    if view.missing:
        _print(console, f"not on record: {', '.join(view.missing)} (why: toishi audit {view.folder})", style="yellow")
    if nothing_taught(view.steps) and "gradient" not in view.missing:
        _print(console, NOTHING_TAUGHT, style="yellow")
    for event in view.events:
        step = "" if event.get("step") is None else f"step {event['step']}: "
        style = "" if event.get("kind") in ("checkpoint", "resumed") or event.get("action") == "note" else "yellow"
        _print(console, f"{event.get('kind')}: {step}{event.get('message')}", style=style)
    for number, reason in view.look_at:
        _print(console, f"step {number} is worth a look: {reason}")
    if view.look_at:
        _print(console, f"Open one:  toishi explain {view.folder} --step {view.look_at[0][0]}")


def _steps_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    """At most MAX_LINES lines, evenly spread; the trend column has one character for each of the last steps up to that line."""
    every = max(1, -(-len(steps) // MAX_LINES))
    title = f"every {every}th step" if every > 1 else None
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1), title=title, title_justify="left")
    columns = {name: column for name, column in _STEP_COLUMNS.items() if any(step.get(column[0]) is not None for step in steps)}
    for name in ("step", *columns, "trend"):
        table.add_column(name, justify="left" if name == "trend" else "right", no_wrap=True)
    sparks = sparkline([step.get("reward/mean") for step in steps])
    for place, step in enumerate(steps):
        if place % every == 0 or place == len(steps) - 1:
            cells = [_cell(step.get(key), form) for key, form in columns.values()]
            table.add_row(str(step["step"]), *cells, sparks[max(0, place - 9) : place + 1])
    return table


def _evaluations_table(evaluations: Sequence[Line], width: int) -> Table:
    """Where the width does not hold all columns, the least telling ones are left out, so that no number is cut."""
    columns = {
        "step": [str(line["step"]) for line in evaluations],
        "mode": [str(line.get("mode", "")) for line in evaluations],
        "prompts": [str(line.get("num_prompts", "")) for line in evaluations],
        "mean reward": [_with_interval(line.get("value"), line.get("interval"), ".3f") for line in evaluations],
        "readable": [_cell(line.get("readable"), ".2f") for line in evaluations],
        "tokens": [_cell(line.get("mean_tokens"), ".1f") for line in evaluations],
        "change": [_with_interval(line.get("change"), line.get("change_interval"), "+.3f") for line in evaluations],
    }
    for name in ("prompts", "tokens", "readable", "mode"):
        if sum(max(map(len, (name, *cells))) + _GAP for name, cells in columns.items()) - _GAP <= width:
            break
        del columns[name]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == "mode" else "right", no_wrap=True)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def _with_interval(value: float | None, interval: Sequence[float] | None, form: str) -> str:
    """
    >>> _with_interval(0.5, (0.4, 0.6), ".2f"), _with_interval(None, None, ".2f")
    ('0.50 [0.40, 0.60]', '-')
    """
    if value is None or interval is None:
        return _cell(value, form)
    low, high = interval
    return f"{_cell(value, form)} [{_cell(low, form)}, {_cell(high, form)}]"


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else signless(value, form)


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), highlight=False, soft_wrap=True)
