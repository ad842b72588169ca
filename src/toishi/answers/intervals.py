"""Unions of intervals whose ends are trees: joined where the ends are numbers, left as they are where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from toishi.answers.exact import value_of
from toishi.answers.grammar import Node
from toishi.answers.tokens import Unreadable
from toishi.answers.values import INFINITE, MINUS_INFINITE, Piece

REALS = Piece(MINUS_INFINITE, INFINITE, False, False)
Key = tuple[int, Fraction]


def key_of(node: Node) -> Key | None:
    """Where an end stands among numbers and infinities; None for what is neither.

    >>> key_of(INFINITE) > key_of(("num", 7, 1)) > key_of(MINUS_INFINITE), key_of(("sym", "a"))
    (True, None)
    """
    if node == INFINITE:
        return (1, Fraction(0))
    if node == MINUS_INFINITE:
        return (-1, Fraction(0))
    value = value_of(node)
    return None if value is None else (0, value)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same union in order, with pieces that touch or overlap made one. Left as it is where an end is no number.

    >>> len(joined([Piece(("num", 2, 1), ("num", 5, 1), True, True), Piece(("num", 0, 1), ("num", 2, 1), True, False)]))
    1
    """
    ends = [(key_of(piece.low), key_of(piece.high)) for piece in pieces]
    if any(low is None or high is None for low, high in ends):
        return tuple(pieces)
    found: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: (_key(piece.low), not piece.has_low)):
        last = found[-1] if found else None
        if last is None or not _touch(last, piece):
            found.append(piece)
            continue
        farther = max(last, piece, key=lambda one: (_key(one.high), one.has_high))
        found[-1] = Piece(last.low, farther.high, last.has_low, farther.has_high)
    return tuple(found)


def intersection(first: Sequence[Piece], second: Sequence[Piece]) -> tuple[Piece, ...]:
    """What lies in both unions. Raises Unreadable where an end is no number."""
    found = []
    for one in first:
        for other in second:
            low = max(one, other, key=lambda piece: (_key(piece.low), not piece.has_low))
            high = min(one, other, key=lambda piece: (_key(piece.high), piece.has_high))
            piece = Piece(low.low, high.high, low.has_low, high.has_high)
            if _key(piece.low) < _key(piece.high) or (piece.low == piece.high and piece.has_low and piece.has_high):
                found.append(piece)
    return joined(found)


def without(pieces: Sequence[Piece], points: Sequence[Node]) -> tuple[Piece, ...]:
    """The union without some points. One point that is no number can only be taken from all reals."""
    if len(points) == 1 and tuple(pieces) == (REALS,):
        (point,) = points
        return (Piece(MINUS_INFINITE, point, False, False), Piece(point, INFINITE, False, False))
    found = list(pieces)
    for point in points:
        at = _key(point)
        split: list[Piece] = []
        for piece in found:
            if not _key(piece.low) <= at <= _key(piece.high):
                split.append(piece)
                continue
            parts = (Piece(piece.low, point, piece.has_low, False), Piece(point, piece.high, False, piece.has_high))
            split += [part for part in parts if _key(part.low) < _key(part.high)]
        found = split
    return tuple(found)


def _key(node: Node) -> Key:
    key = key_of(node)
    if key is None:
        raise Unreadable("intervals whose ends cannot be put in order")
    return key


def _touch(left: Piece, right: Piece) -> bool:
    """Whether nothing lies between `left` and `right`, which begins no earlier."""
    if _key(right.low) < _key(left.high):
        return True
    return _key(right.low) == _key(left.high) and (right.has_low or left.has_high)
