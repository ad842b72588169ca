"""What the pushes of answers that begin alike come to, and what became of the tokens that they fall on.

Decision: a shared token is counted once, under the first of the answers that share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from toishi.explanation.chain.model import AnswerEffect, Chain, SharedStart

ALIKE = 1e-6
"""Relative: pushes are float32 numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One token of the tree of beginnings: who writes it, the net push on it, its log-prob before and after, if measured."""

    members: tuple[int, ...]
    token: int
    text: str
    push: float
    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        """Of the log-prob in nats; 0 where it was not measured."""
        return 0.0 if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Outweighed:
    """An answer whose own pushes point one way while on some of its tokens the net push points the other way.

    count, total  such tokens, and all that it pushes
    others        the answers that share them
    kept          the tokens that its own side keeps
    """

    count: int
    total: int
    others: tuple[int, ...]
    kept: tuple[str, ...]


def starts_of(chain: Chain, member: int) -> list[SharedStart]:
    """The stretches that an answer goes through, in order."""
    starts = chain.weights.starts if chain.weights else ()
    return sorted((start for start in starts if member in start.members), key=lambda start: start.begin)


def net_pushes(chain: Chain, member: int) -> list[float]:
    """Of each token of an answer the pushes of all answers that share it."""
    return [push for start in starts_of(chain, member) for push in start.pushes]


def places(chain: Chain, starts: Sequence[SharedStart]) -> Iterator[Place]:
    """The tokens of some stretches."""
    effects = {answer.member: answer for answer in _sampled(chain)}
    for start in starts:
        found = effects.get(start.members[0])
        for index, (text, push) in enumerate(zip(start.texts, start.pushes, strict=True)):
            token = found.tokens[start.begin + index] if found and start.begin + index < len(found.tokens) else None
            yield Place(
                members=start.members,
                token=start.begin + index,
                text=text,
                push=push,
                before=None if token is None else token.before,
                after=None if token is None else token.after,
            )


def largest_net(chain: Chain) -> tuple[Place, ...]:
    """The token that answers push most when those that share it are taken together, with those after it that are pushed alike.

    Empty where nothing is pushed.
    """
    starts = chain.weights.starts if chain.weights else ()
    largest = max((abs(push) for start in starts for push in start.pushes), default=0.0)
    for start in starts if largest else ():
        after = dropwhile(lambda place: abs(abs(place.push) - largest) > ALIKE * largest, places(chain, (start,)))
        found = tuple(takewhile(lambda place: abs(abs(place.push) - largest) <= ALIKE * largest, after))
        if found:
            return found
    return ()


def outweighed(chain: Chain, member: int) -> Outweighed | None:
    """Where siblings that begin alike pull harder than the answer itself; None where they never do."""
    found = next((item for item in chain.weights.members if item.member == member), None) if chain.weights else None
    path = starts_of(chain, member)
    nets = [(place, start) for start in path for place in places(chain, (start,))]
    if found is None or len(nets) != len(found.tokens):
        return None
    own = [(token, place, start) for token, (place, start) in zip(found.tokens, nets, strict=True) if token.weight]
    lost = [(place, start) for token, place, start in own if token.weight * place.push > 0]
    if not lost:
        return None
    return Outweighed(
        count=len(lost),
        total=len(own),
        others=tuple(sorted({other for _, start in lost for other in start.members} - {member})),
        kept=tuple(place.text for token, place, _ in own if token.weight * place.push < 0),
    )


def along(chain: Chain) -> tuple[int, int, int]:
    """How many tokens moved the way of their net push, how many have one and moved, and how many moved within the noise.

    Those within the noise of two passes through the model are in neither of the first two.
    """
    noise = chain.effect.noise if chain.effect else 0.0
    pushed = [place for place in places(chain, chain.weights.starts if chain.weights else ()) if place.push and place.change]
    moved = [place for place in pushed if abs(place.change) > noise]
    return sum(place.push * place.change > 0 for place in moved), len(moved), len(pushed) - len(moved)


def rivals(chain: Chain, start: SharedStart) -> list[Place]:
    """What other answers wrote in the place of a stretch's first token, after the same beginning; the likeliest first."""
    starts = chain.weights.starts if chain.weights else ()
    before = [other.members for other in starts_of(chain, start.members[0]) if other.begin < start.begin]
    parent = set(before[-1]) if before else {member for other in starts for member in other.members}
    found = [
        next(places(chain, (other,)))
        for other in starts
        if other.begin == start.begin and other.texts and other is not start and set(other.members) <= parent
    ]
    return sorted(found, key=lambda place: -(place.before or float("-inf")))


def _sampled(chain: Chain) -> list[AnswerEffect]:
    return [answer for answer in chain.effect.answers if answer.kind == "rollout"] if chain.effect else []
