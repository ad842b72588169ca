"""A what-if for a console: a table of the group's answers, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.counterfactual.model import AnswerChange, Moved, WhatIf
from toishi.counterfactual.words import interval, sentences, times
from toishi.explanation.render import one_line, signless

_ANSWER_WIDTH = 12
_STYLES = {"up": "green", "down": "red", "direction not determined": "yellow", "no number": "dim"}


def render_whatif(found: WhatIf, console: Console) -> None:
    """Prints it."""
    console.print(Text(f"step {found.step}, group {found.group}: {one_line(found.prompt, 60)}", style="bold"))
    console.print(Text(f"{found.question} ({found.algorithm}, {found.optimizer}):"), soft_wrap=True)
    console.print(_table(found))
    for text in (*_left_out(found), *sentences(found)):
        console.print(Text(text))


def _table(found: WhatIf) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    real = any(each.moved.real is not None for each in found.answers)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("answer", ratio=1, no_wrap=True, overflow="ellipsis", min_width=_ANSWER_WIDTH)
    for name in ("score", "advantage", "measured", "new", *(("real",) if real else ())):
        table.add_column(name, justify="right")
    table.add_column("", min_width=4)
    for each in found.answers:
        cells = [str(each.member), one_line(each.text, 400) or "(empty)", _scores(each), _advantages(each)]
        cells += [_times(each.moved.measured), _forecast(each.moved)]
        cells += [_times(each.moved.real)] if real else []
        verdict = "" if found.refused else each.moved.verdict
        table.add_row(*map(Text, cells), Text(verdict, style=_STYLES[each.moved.verdict]))
    return table


def _scores(each: AnswerChange) -> str:
    lines = []
    for score in each.scores:
        name = f"{score.reward} " if len(each.scores) > 1 else ""
        lines.append(name + _pair(_score(score.before), _score(score.after)))
    return "\n".join(lines) or "-"


def _advantages(each: AnswerChange) -> str:
    return _pair(_advantage(each.advantage_before), _advantage(each.advantage_after))


def _pair(before: str, after: str) -> str:
    """
    >>> _pair("2", "10"), _pair("2", "2")
    ('2 -> 10', '2')
    """
    return before if before == after else f"{before} -> {after}"


def _score(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _advantage(value: float | tuple[float, ...] | None) -> str:
    if value is None:
        return "-"
    number = sum(value) / max(1, len(value)) if isinstance(value, tuple) else value
    return ("~" if isinstance(value, tuple) else "") + signless(number, "+.2f")


def _times(nats: float | None) -> str:
    return "-" if nats is None else times(nats)


def _forecast(moved: Moved) -> str:
    if moved.forecast is None:
        return "-"
    if moved.verdict == "direction not determined":
        return interval(moved)
    return f"{times(moved.forecast)} ({interval(moved)})"


def _left_out(found: WhatIf) -> Iterator[str]:
    for each in found.answers:
        if each.left_out:
            yield f"#{each.member} is outside the baseline: {one_line(each.left_out, 120)}"
