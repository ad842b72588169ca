"""Step and run as text for a console: tables that keep their shape at 80 columns, in a pipe, and without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.explanation.step import GroupView, MemberView, StepView
from toishi.types import Score

_MAX_REWARD_COLUMNS = 3
_MIN_ANSWER_WIDTH = 12
_GAP = 2
"""Characters between two columns."""
_BESIDE = ("#", "reward", "advantage", "push", "tokens", "ended")
_ENDED = {"completed": "itself", "truncated": "limit", "failed": "failed", "unknown": "-"}


def render_step(view: StepView, console: Console) -> None:
    """Prints a step: its sentence, the formula, and a table for each group."""
    _print(console, Text(view.sentence, style="bold"))
    _print(console, Text(view.formula))
    _print(console, Text("push: -Σ d loss / d logprob over the answer's tokens; above 0 makes the answer more likely"))
    for group in view.groups:
        render_group(group, console)


def render_group(group: GroupView, console: Console) -> None:
    """One group's table with its prompt above and its numbers below."""
    gold = f"   (gold {one_line(group.gold, 40)})" if group.gold else ""
    _print(console, Text(""))
    _print(console, Text(f"group {group.group}: {one_line(group.prompt, console.width - 12 - len(gold))}{gold}", style="bold"))
    console.print(_table(group, console.width))
    _print(console, Text(f"  {group.summary}"))
    if group.worked:
        _print(console, Text(f"  {group.worked}"))
    if any(score.status == "abstained" for member in group.members for score in member.scores):
        _print(console, Text("  - in a reward's column: it abstained, and has no part in the sum"))
    for member in group.members:
        if member.left_out:
            _print(console, Text(f"  member {member.member} is left out: {one_line(member.left_out, 160)}", style="yellow"))


def one_line(text: str, limit: int) -> str:
    """
    >>> one_line("a\\n\\tb", 9), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: max(1, limit) - 1] + "…"


def signless(value: float, form: str) -> str:
    """`value` in `form`; what is shown as zero has no sign.

    >>> signless(-0.0001, ".2f"), signless(0.0001, "+.3f"), signless(-0.5, "+.1f"), signless(-1e-9, ".1e")
    ('0.00', '0.000', '-0.5', '-1.0e-09')
    """
    text = format(value, form)
    return text.lstrip("+-") if float(text) == 0 else text


def _table(group: GroupView, width: int) -> Table:
    """Scores get the room that the numbers and the shortest answer leave: each reward a column if no word has to be broken."""
    rest = [_cells_beside(member) for member in group.members]
    taken = [max(map(len, column)) + _GAP for column in zip(_BESIDE, *rest, strict=True)]
    room = width - sum(taken) - _MIN_ANSWER_WIDTH
    scores = _score_columns(group.members, room)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1), width=width)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("answer", ratio=1, no_wrap=True, overflow="ellipsis", min_width=_MIN_ANSWER_WIDTH)
    for (header, *cells), size in zip(scores, _shared(scores, room), strict=True):
        natural = max(map(len, (*header.split("\n"), *cells)))
        table.add_column(header, justify="right", overflow="fold", width=min(natural, size))
    for name in _BESIDE[1:]:
        table.add_column(name, justify="right" if name != "ended" else "left", no_wrap=True)
    for place, (member, (number, *numbers)) in enumerate(zip(group.members, rest, strict=True), start=1):
        cells = [number, one_line(member.answer, 400) or "(empty)", *(column[place] for column in scores), *numbers]
        table.add_row(*map(Text, cells), style=_style(member))
    return table


def _score_columns(members: Sequence[MemberView], room: int) -> list[list[str]]:
    """Header and cells of the columns that show the scores: one for each reward, or one for all where that needs less room."""
    rewards = list(dict.fromkeys(score.reward for member in members for score in member.scores))
    columns = [[_reward_header(name, members), *(_score_cell(member.scores, name) for member in members)] for name in rewards]
    needed = sum(_longest_word(column) + _GAP for column in columns)
    if rewards and len(rewards) <= _MAX_REWARD_COLUMNS and (needed <= room or len(rewards) == 1):
        return columns
    return [["scores", *(_all_scores(member.scores) for member in members)]]


def _shared(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column: its longest word, and an equal part of what is left over."""
    words = [_longest_word(column) for column in columns]
    left = max(0, room - sum(words) - _GAP * len(words)) // len(words)
    return [word + left for word in words]


def _longest_word(texts: Sequence[str]) -> int:
    """
    >>> _longest_word(["style\\n×0.5", "1 (levelled, pays 0.2)"])
    10
    """
    return max((len(word) for text in texts for word in text.split()), default=0)


def _reward_header(name: str, members: Sequence[MemberView]) -> str:
    weights = {score.weight for member in members for score in member.scores if score.reward == name}
    return f"{name}\n×{weights.pop():g}" if len(weights) == 1 else name


def _cells_beside(member: MemberView) -> list[str]:
    """The cells besides answer and scores."""
    return [
        str(member.member),
        _number(member.reward, ".3f"),
        _advantage(member.advantage),
        _number(None if member.weight_sum is None else -member.weight_sum, "+.4f"),
        "-" if member.num_tokens is None else str(member.num_tokens),
        _ENDED[member.status],
    ]


def _score_cell(scores: Sequence[Score], name: str) -> str:
    """The reward's value for the answer: the sum of its parts when it scored several spans."""
    mine = [score for score in scores if score.reward == name]
    values = [score.value for score in mine if score.value is not None]
    if not values:
        return "failed" if any(score.status == "failed" for score in mine) else "-"
    uses = {score.use.replace("_", " ") for score in mine} - {"counted"}
    notes = [f"{len(mine)} parts"] * (len(mine) > 1) + sorted(uses)
    if uses & {"capped", "levelled"}:
        notes.append(f"pays {signless(math.fsum(score.contribution or 0.0 for score in mine), '.3g')}")
    return signless(sum(values), ".3g") + (f" ({', '.join(notes)})" if notes else "")


def _all_scores(scores: Sequence[Score]) -> str:
    names = dict.fromkeys(score.reward for score in scores)
    return ", ".join(f"{name} {_score_cell(scores, name)}" for name in names) or "-"


def _advantage(advantage: float | tuple[float, ...] | None) -> str:
    """
    >>> _advantage(0.5), _advantage((0.5, -0.25)), _advantage((1.0, 1.0)), _advantage(None)
    ('+0.500', '+0.500…-0.250', '+1.000', '-')
    """
    if not isinstance(advantage, tuple):
        return _number(advantage, "+.3f")
    if not advantage:
        return "-"
    first, last = _number(advantage[0], "+.3f"), _number(advantage[-1], "+.3f")
    return first if len(set(advantage)) == 1 else f"{first}…{last}"


def _number(value: float | None, form: str) -> str:
    """
    >>> _number(0.5, "+.3f"), _number(0.0, "+.3f"), _number(None, ".3f")
    ('+0.500', '0.000', '-')
    """
    if value is None:
        return "-"
    return signless(value, form)


def _style(member: MemberView) -> str:
    advantage = member.advantage[0] if isinstance(member.advantage, tuple) and member.advantage else member.advantage
    if member.left_out or not isinstance(advantage, float) or advantage == 0:
        return "dim"
    return "green" if advantage > 0 else "red"


def _print(console: Console, text: Text) -> None:
    console.print(text, highlight=False)
