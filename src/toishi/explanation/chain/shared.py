"""What a group's answers share: a tree of their beginnings, each stretch with the pushes of all answers that go through it.

Decision: a token's log-prob depends on what stands before it, so answers push the same log-prob exactly where their tokens and
everything before agree. Their pushes add up there; that sum, the net push, is what a shared token feels of this group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from toishi.explanation.chain.model_step import SharedStart

Ids = Mapping[int, Sequence[int]]


def shared_starts(
    ids: Ids, texts: Mapping[int, Sequence[str]], pushes: Mapping[int, Sequence[float]]
) -> tuple[SharedStart, ...]:
    """The tree, each stretch before those that follow it.

    ids     tokens by member, [tokens] each
    texts   the same as texts, [tokens]
    pushes  of each token, [tokens]; 0 for a member that has none

    >>> found = shared_starts({0: (7, 8), 1: (7, 9, 9)}, {0: ("a", "b"), 1: ("a", "c", "c")}, {0: (3.0, 3.0), 1: (-1.0,) * 3})
    >>> [(start.members, start.begin, start.texts, start.pushes) for start in found]
    [((0, 1), 0, ('a',), (2.0,)), ((0,), 1, ('b',), (3.0,)), ((1,), 1, ('c', 'c'), (-1.0, -1.0))]
    """
    return tuple(_below(tuple(ids), 0, 0, ids, texts, pushes))


def _below(
    members: tuple[int, ...],
    begin: int,
    depth: int,
    ids: Ids,
    texts: Mapping[int, Sequence[str]],
    pushes: Mapping[int, Sequence[float]],
) -> Iterator[SharedStart]:
    branches: dict[int, list[int]] = {}
    for member in members:
        if begin < len(ids[member]):
            branches.setdefault(ids[member][begin], []).append(member)
    for mine in branches.values():
        end = _end(mine, begin, ids)
        yield SharedStart(
            members=tuple(mine),
            depth=depth,
            begin=begin,
            texts=tuple(texts[mine[0]][begin:end]),
            pushes=tuple(math.fsum(_at(pushes, member, place) for member in mine) for place in range(begin, end)),
        )
        if len(mine) > 1:
            yield from _below(tuple(mine), end, depth + 1, ids, texts, pushes)


def _at(pushes: Mapping[int, Sequence[float]], member: int, place: int) -> float:
    return pushes[member][place] if place < len(pushes[member]) else 0.0


def _end(members: Sequence[int], begin: int, ids: Ids) -> int:
    """The place up to which all of them agree."""
    shortest = min(len(ids[member]) for member in members)
    first = ids[members[0]]
    for place in range(begin + 1, shortest):
        if any(ids[member][place] != first[place] for member in members):
            return place
    return shortest
