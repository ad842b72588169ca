"""Judging two answers at a time: who meets whom, in both orders, and the win rate that comes of it.

Decisions:
1. A pair is asked in both orders. An answer wins if it is preferred in both; two different preferences are a tie, as a stated
   tie is. A pair with an unreadable order does not count, and an answer with fewer than half of its pairs has no win rate.
2. With more pairs than may be asked, answers meet their next neighbours in the group, in a ring: everyone meets equally many.
3. A win rate is in [0, 1]: win 1, tie 0.5, loss 0, averaged over those that an answer met.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from toishi.errors import RewardError
from toishi.judging.base import JudgeReply
from toishi.judging.forms import winner_form
from toishi.judging.modes import Manner
from toishi.judging.panel import Heard, Opinion, opinion_of
from toishi.judging.questions import Matter
from toishi.judging.verdicts import Winner, read_winner

Preference = Literal["first", "second", "tie"]
PREFERENCE: Mapping[Winner, Preference] = {"A": "first", "B": "second", "tie": "tie"}
OUTCOME_WORDS = {1.0: "won", 0.5: "tied", 0.0: "lost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """Two answers shown in one order, and what each judge said each time: indexed [judge][repeat]."""

    first: int
    second: int
    heard: Sequence[Sequence[Heard[Preference]]]


def pairs_of(count: int, max_pairs: int) -> list[tuple[int, int]]:
    """All pairs of `count` answers, or, if there are more than `max_pairs`, those of next neighbours in a ring.

    Raises RewardError when not even every answer could meet its two neighbours.

    >>> pairs_of(4, 6), pairs_of(4, 5)
    ([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], [(0, 1), (0, 3), (1, 2), (2, 3)])
    """
    found: set[tuple[int, int]] = set()
    for distance in range(1, count // 2 + 1):
        ring = {(min(one, other), max(one, other)) for one in range(count) for other in [(one + distance) % count]}
        if len(found) + len(ring) > max_pairs:
            break
        found |= ring
    if not found and count > 1:
        raise RewardError(
            f"{count} answers cannot be compared in pairs with at most {max_pairs} pairs of calls: everyone has to meet at "
            f"least two others; raise max_calls, lower the group size, or use mode: ranking (one call a group)"
        )
    return sorted(found)


def meet(manner: Manner, matter: Matter, answers: Sequence[str], pairs: Sequence[tuple[int, int]]) -> list[Met]:
    """Every pair in both orders, one after the other: (a, b) and then (b, a)."""
    orders = [order for one, other in pairs for order in ((one, other), (other, one))]
    form = winner_form()

    def read(reply: JudgeReply) -> Preference:
        return PREFERENCE[read_winner(reply.text, reply.finish_reason)]

    makers = [manner.ask_for(matter, [answers[first], answers[second]], form, read) for first, second in orders]
    heard = manner.panel.ask(makers, again=manner.again)
    return [Met(first=first, second=second, heard=one) for (first, second), one in zip(orders, heard, strict=True)]


def win_rates(met: Sequence[Met], count: int, *, beaten: int = 0, names: Sequence[str] = ()) -> list[Opinion]:
    """The win rate of each of `count` answers over all that it met, and over `beaten` more that it would have beaten anyway.

    met    both orders of every pair, one after the other
    names  how the answers are called in words; by their places where none are given
    """
    called = names or [f"answer {place}" for place in range(count)]
    of_member: list[list[tuple[str, Opinion]]] = [[] for _ in range(count)]
    for there, back in zip(met[::2], met[1::2], strict=True):
        one, other = there.first, there.second
        for member, opponent in ((one, other), (other, one)):
            of_member[member].append((called[opponent], _of_pair(there, back, member)))
    return [_win_rate(pairs, beaten) for pairs in of_member]


def _of_pair(there: Met, back: Met, member: int) -> Opinion:
    heard = [
        [_outcome(one, other, first=there.first == member) for one, other in zip(ones, others, strict=True)]
        for ones, others in zip(there.heard, back.heard, strict=True)
    ]
    return opinion_of(heard, lambda value: value, lambda value: OUTCOME_WORDS[value])


def _outcome(there: Heard[Preference], back: Heard[Preference], *, first: bool) -> Heard[float]:
    """Both orders of one pair by one judge, seen from the answer that was shown first `there` (or second, if not `first`)."""
    words = f"shown {'first' if first else 'second'}: {there.words}\nshown {'second' if first else 'first'}: {back.words}"
    broken = next((one for one in (there, back) if one.value is None), None)
    if broken is not None:
        return Heard(judge=there.judge, value=None, words=words, error=broken.error, why=broken.why)
    preferred = [there.value == ("first" if first else "second"), back.value == ("second" if first else "first")]
    refused = [there.value == ("second" if first else "first"), back.value == ("first" if first else "second")]
    value = 1.0 if all(preferred) else 0.0 if all(refused) else 0.5
    return Heard(judge=there.judge, value=value, words=words)


def _win_rate(pairs: Sequence[tuple[str, Opinion]], beaten: int) -> Opinion:
    words = "\n".join(f"against {opponent}: {opinion.words}" for opponent, opinion in pairs)
    values = [opinion.value for _, opinion in pairs if opinion.value is not None]
    if 2 * len(values) < len(pairs):
        error = next(opinion.error for _, opinion in pairs if opinion.error)
        head = f"no score ({error}): {len(values)} of {len(pairs)} pairs could be read"
        return Opinion(value=None, words=f"{head}\n{words}", error=error)
    if not values and not beaten:
        return Opinion(value=None, words="no other answer to compare with", error="no_sibling")
    rate = statistics.fmean([*values, *[1.0] * beaten])
    empty = f" and {beaten} empty ones" if beaten else ""
    return Opinion(value=rate, words=f"win rate {rate:.4g} over {len(values)} answers{empty}\n{words}".strip())
