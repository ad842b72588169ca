"""A what-if for a console: a table of the group's answers, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.counterfactual.model import AnswerChange, Moved, WhatIf
from toishi.counterfactual.words import interval, sentences, times
from toishi.explanation.render import one_line, signless

_ANSWER_WIDTH, _LEAST_WIDTH = 12, 4
_GAP = 2
"""Characters between two columns."""
_SHOWN = {"direction not determined": "?", "no number": ""}
_STYLES = {"up": "green", "down": "red", "direction not determined": "yellow", "no number": "dim"}


def render_whatif(found: WhatIf, console: Console) -> None:
    """Prints it."""
    console.print(Text(f"step {found.step}, group {found.group}: {one_line(found.prompt, 60)}", style="bold"))
    console.print(Text(f"{found.question} ({found.algorithm}, {found.optimizer}):"), soft_wrap=True)
    console.print(_table(found, console.width))
    for text in (*_left_out(found), *sentences(found)):
        console.print(Text(text))


def _table(found: WhatIf, width: int) -> Table:
    """Answers get the room that the numbers leave; where that is too little, pairs and bars go onto two lines."""
    real = any(each.moved.real is not None for each in found.answers)
    names = ("#", "score", "advantage", "measured", "new", *(("real",) if real else ()), "")
    rows = [_cells(each, real) for each in found.answers]
    room = width - _taken([names, *rows])
    if room < _ANSWER_WIDTH:
        rows = [[cell.replace(" -> ", "\n-> ").replace(" (", "\n(") for cell in row] for row in rows]
        room = max(_LEAST_WIDTH, width - _taken([names, *rows]))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("answer", no_wrap=True, overflow="ellipsis", width=room)
    for name in names[1:]:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for each, (number, *numbers, verdict) in zip(found.answers, rows, strict=True):
        cells = [number, one_line(each.text, 400) or "(empty)", *numbers]
        table.add_row(*map(Text, cells), Text(verdict, style=_STYLES[each.moved.verdict]))
    return table


def _cells(each: AnswerChange, real: bool) -> list[str]:
    """All but the answer."""
    moved = each.moved
    numbers = [_times(moved.measured), _forecast(moved), *([_times(moved.real)] if real else [])]
    return [str(each.member), _scores(each), _advantages(each), *numbers, _SHOWN.get(moved.verdict, moved.verdict)]


def _taken(rows: Sequence[Sequence[str]]) -> int:
    """Characters that the columns beside the answers need, with the gaps before them and before the answers."""
    widest = [max(len(line) for cell in column for line in cell.split("\n")) for column in zip(*rows, strict=True)]
    return sum(widest) + _GAP * len(widest)


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
