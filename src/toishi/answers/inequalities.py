"""Inequalities and pairs of ends as intervals."""

from __future__ import annotations

from dataclasses import replace

from toishi.answers.exact import canonical, symbols_of, value_of
from toishi.answers.grammar import Node
from toishi.answers.tokens import Unreadable
from toishi.answers.values import INFINITE, MINUS_INFINITE, Piece, Value

_TURNED = {"<": ">", "le": "ge", ">": "<", "ge": "le"}


def inequality(nodes: list[Node], signs: list[str]) -> Value:
    """`a < x`, `x >= a`, `a < x <= b` as an interval; one with variables on both sides as a relation. Raises Unreadable.

    signs  of "<", ">", "le", "ge", one fewer than nodes

    >>> inequality([("num", 2, 1), ("sym", "x")], ["<"]).data[0].low
    ('num', 2, 1)
    """
    if len(nodes) == 3:
        low, middle, high = nodes
        if signs[0] in (">", "ge"):
            low, high, signs = high, low, [_TURNED[sign] for sign in reversed(signs)]
        if signs[0] not in ("<", "le") or signs[1] not in ("<", "le") or middle[0] != "sym":
            raise Unreadable("a chain of inequalities that is no interval")
        return replace(interval(low, high, signs[0] == "le", signs[1] == "le"), name=middle[1])
    if len(nodes) != 2 or signs[0] not in _TURNED:
        raise Unreadable("relations that cannot be read together")
    variable, end = sided(*nodes)
    sign = signs[0] if variable is nodes[0] else _TURNED[signs[0]]
    if variable is None:
        left, right = nodes if signs[0] in ("<", "le") else reversed(nodes)
        difference = canonical(("add", left, ("mul", ("num", -1, 1), right)))
        return Value("relation", (difference, "<" if signs[0] in "<>" else "<="))
    if sign in ("<", "le"):
        return replace(interval(MINUS_INFINITE, end, False, sign == "le"), name=variable[1])
    return replace(interval(end, INFINITE, sign == "ge", False), name=variable[1])


def sided(left: Node, right: Node) -> tuple[Node | None, Node]:
    """(the variable, the other side) of a relation between one variable and a constant."""
    if left[0] == "sym" and not symbols_of(right):
        return left, right
    if right[0] == "sym" and not symbols_of(left):
        return right, left
    return None, right


def interval(low: Node, high: Node, has_low: bool, has_high: bool) -> Value:
    """The interval between two ends. Raises Unreadable when they are in the wrong order or infinity is meant to lie inside."""
    ends = [value_of(low), value_of(high)]
    if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
        raise Unreadable("an interval whose ends are in the wrong order")
    if (has_low and is_infinite(low)) or (has_high and is_infinite(high)):
        raise Unreadable("an interval that contains infinity")
    return Value("interval", (Piece(low, high, has_low, has_high),))


def pieces_of(value: Value) -> tuple[Piece, ...]:
    """An interval, an open pair or a set of points as pieces of a union. Raises Unreadable for other values."""
    if value.kind == "interval":
        found: tuple[Piece, ...] = value.data
        return found
    open_pair = as_open_interval(value)
    if open_pair is not None:
        return open_pair
    if value.kind == "set":
        return tuple(Piece(node_of(element), node_of(element), True, True) for element in value.data)
    raise Unreadable("a union of what are no intervals")


def as_open_interval(value: Value) -> tuple[Piece, ...] | None:
    """`(a, b)` read as an interval, where a < b or the ends are no numbers."""
    if value.kind != "tuple" or value.name or len(value.data) != 2 or not all(part.is_formula for part in value.data):
        return None
    low, high = (part.data for part in value.data)
    ends = [value_of(low), value_of(high)]
    return None if ends[0] is not None and ends[1] is not None and ends[0] >= ends[1] else (Piece(low, high, False, False),)


def node_of(value: Value) -> Node:
    """The tree of a formula. Raises Unreadable for other values."""
    if not value.is_formula:
        raise Unreadable("an element that is no formula")
    node: Node = value.data
    return node


def is_infinite(node: Node) -> bool:
    """Infinity or minus infinity."""
    return node in (INFINITE, MINUS_INFINITE)
