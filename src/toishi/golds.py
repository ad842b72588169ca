"""How the golds of a data set were read: how many of which type, and the ones that are unlike the others.

Decision: only rewards that read golds by type or as a number are asked; a gold that cannot be read is an error elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toishi.rewards.base import Reward
from toishi.rewards.math import MathReward, known_gold
from toishi.rewards.number import NumberReward
from toishi.rewards.reading import gold_of, read_gold, shown_number
from toishi.types import Prompt

ODD_SHARE = 0.05
MAX_ODD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldRead:
    """One row's gold as it stands in the data, and as what it was read."""

    row: str
    raw: str
    type: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldReadings:
    """What one reward read.

    types  the first gold of each type, with how many rows have it, most first
    odd    golds of types that fewer than one row in twenty has (at most 5 of them); `num_odd` counts all
    """

    reward: str
    types: tuple[tuple[GoldRead, int], ...]
    odd: tuple[GoldRead, ...]
    num_odd: int


def readings(rewards: Sequence[Reward], rows: Sequence[Prompt]) -> tuple[GoldReadings, ...]:
    """How each reward that reads golds by type reads those of `rows`.

    >>> rows = [Prompt(id=f"row {n}", text="?", gold=n) for n in range(40)] + [Prompt(id="row 40", text="?", gold="3:30")]
    >>> (found,) = readings([MathReward()], rows)
    >>> [(first.type, first.shown, count) for first, count in found.types], [(gold.row, gold.raw) for gold in found.odd]
    ([('number', '0', 40), ('time', '03:30', 1)], [('row 40', "'3:30'")])
    """
    found = ((reward.name, list(_read(reward, rows))) for reward in rewards)
    return tuple(_summary(name, golds) for name, golds in found if golds)


def _read(reward: Reward, rows: Sequence[Prompt]) -> Iterator[GoldRead]:
    for prompt in rows:
        if isinstance(reward, MathReward):
            raw = gold_of(prompt, reward.gold_column)
            gold = known_gold(raw, reward.type)
            if not isinstance(gold, str):
                yield GoldRead(row=prompt.id, raw=_short(raw), type=gold.value.kind, shown=gold.shown)
        elif isinstance(reward, NumberReward):
            raw = gold_of(prompt, reward.gold_column)
            number = read_gold(raw)
            if not isinstance(number, str):
                yield GoldRead(row=prompt.id, raw=_short(raw), type="number", shown=shown_number(number))


def _summary(name: str, golds: Sequence[GoldRead]) -> GoldReadings:
    by_type: dict[str, list[GoldRead]] = {}
    for gold in golds:
        by_type.setdefault(gold.type, []).append(gold)
    ranked = sorted(by_type.values(), key=len, reverse=True)
    odd = [gold for same in ranked if len(same) < ODD_SHARE * len(golds) for gold in same]
    types = tuple((same[0], len(same)) for same in ranked)
    return GoldReadings(reward=name, types=types, odd=tuple(odd[:MAX_ODD]), num_odd=len(odd))


def _short(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 40 else text[:39] + "…"
