"""Prints a step that was judged again: the sentence, the noise, and the answers whose sign is least certain."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from toishi.explanation.render import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from toishi.rejudging import AnswerAgain, Rejudged

ROWS = 20


def render_rejudged(found: Rejudged, console: Console) -> None:
    """The whole report; the answers with the most changes first, at most 20 of them."""
    asked = ", ".join(found.asked_again)
    console.print(Text(f"step {found.step} ({found.algorithm}), {asked}: {found.sentence}", style="bold"), highlight=False)
    for name, noise in found.noise.items():
        if noise is not None:
            console.print(Text(f"noise of {name}: sd {noise:.3g} from one asking to the next"), highlight=False)
    if found.no_score:
        console.print(Text(f"no score in {found.no_score} of {found.times * len(found.answers)} askings", style="yellow"))
    for note in found.notes:
        console.print(Text(note, style="yellow"))
    shown = sorted(found.answers, key=lambda one: (-one.changed / max(1, one.compared), one.group, one.member))[:ROWS]
    console.print(_table(shown, console.width), highlight=False)
    if len(found.answers) > len(shown):
        console.print(Text(f"the {len(shown)} answers that change most, of {len(found.answers)}; --json has all", style="dim"))


def _table(answers: Sequence[AnswerAgain], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1), width=width)
    table.add_column("answer", no_wrap=True)
    table.add_column("text", ratio=1, no_wrap=True, overflow="ellipsis")
    for name in ("reward", "again", "sd", "advantage", "changed", "expected"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in answers:
        again = [reward for reward in one.rewards if reward is not None]
        table.add_row(
            f"{one.group}/{one.member}",
            Text(one_line(one.answer, 200)),
            _number(one.reward),
            _number(fmean(again) if again else None),
            _number(one.sd),
            f"{one.advantage:+.3f}" if one.advantage else "0",
            f"{one.changed} of {one.compared}" if one.compared else "-",
            "-" if one.expected is None else f"{one.expected:.0%}",
            style="yellow" if one.changed else "",
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
