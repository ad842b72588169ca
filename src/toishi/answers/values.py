"""What an answer is, once read: a kind and its parts, and how a person is shown it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from toishi.answers.exact import canonical, symbols_of
from toishi.answers.exact import shown as shown_node
from toishi.answers.grammar import Node
from toishi.answers.units import Unit

Kind = Literal[
    "number",
    "percent",
    "quantity",
    "set",
    "tuple",
    "assignment",
    "interval",
    "equation",
    "relation",
    "expression",
    "choice",
    "time",
    "ratio",
    "text",
]

Bare = Literal["", "list", "or", "signs"]

INFINITE: Node = ("const", "oo")
MINUS_INFINITE: Node = ("mul", ("num", -1, 1), ("const", "oo"))


@dataclass(frozen=True, slots=True)
class Piece:
    """One interval of a union, with its ends as trees."""

    low: Node
    high: Node
    has_low: bool
    has_high: bool


@dataclass(frozen=True, slots=True)
class Value:
    """An answer of one kind.

    data   number, expression, percent (its value: 0.35 for 35%), quantity: a tree (see `grammar`);
           set, tuple, assignment (`x = 2, y = 3`): Values;  interval: Pieces;  equation: (left, right) trees;
           relation: (left - right, "<" or "<=") with "0" on the other side;  choice: the letter;
           time: seconds after midnight;  ratio: trees;  text: the normalised text
    unit   of a quantity
    name   what was named: "x" for `x = 5` and `x > 5`, "f(x)" for `f(x) = 2x`
    bare   how a set without braces was written: "list" (1, 2), "or" (1 or 2), "signs" (plus or minus 1); "" with braces
    """

    kind: Kind
    data: Any
    unit: Unit | None = None
    name: str = ""
    bare: Bare = ""

    @property
    def is_formula(self) -> bool:
        """A single value, with or without symbols."""
        return self.kind in ("number", "expression")

    @property
    def symbols(self) -> frozenset[str]:
        """Variables in a formula or an equation; empty for other kinds."""
        if self.is_formula:
            return symbols_of(self.data)
        return symbols_of(self.data[0]) | symbols_of(self.data[1]) if self.kind == "equation" else frozenset()


def infinity(end: Node) -> int:
    """1 for infinity, -1 for minus infinity, 0 for other ends."""
    if end == ("const", "oo"):
        return 1
    return -1 if end[0] == "mul" and end[-1] == ("const", "oo") else 0


def named_values(value: Value) -> dict[str, Value]:
    """The values of an assignment or of a tuple with names, by their names; empty for other values.

    >>> list(named_values(Value("assignment", (Value("number", ("num", 2, 1), name="x"),))))
    ['x']
    """
    if value.kind not in ("assignment", "tuple") or not all(part.name and part.name != "matrix" for part in value.data):
        return {}
    found = {part.name: replace(part, name="") for part in value.data}
    return found if len(found) == len(value.data) else {}


def shown(value: Value) -> str:
    """A value as a person would type it.

    >>> shown(Value("set", (Value("number", ("num", 1, 2)), Value("number", ("num", 3, 1))), name="x"))
    'x = {0.5, 3}'
    """
    name = f"{value.name} = " if value.name and value.name != "matrix" and value.kind != "interval" else ""
    return name.replace("\\", "") + _shown_data(value)


def _shown_data(value: Value) -> str:
    data = value.data
    match value.kind:
        case "number" | "expression":
            return shown_node(data)
        case "percent":
            return f"{shown_node(_times_hundred(data))}%"
        case "quantity":
            return f"{shown_node(data)} {value.unit.text if value.unit else ''}"
        case "set" | "assignment":
            return "{" + ", ".join(map(shown, data)) + "}"
        case "tuple":
            return "(" + ", ".join(map(shown, data)) + ")"
        case "interval":
            return " ∪ ".join(map(_shown_piece, data)) or "the empty set"
        case "equation":
            return f"{shown_node(data[0])} = {shown_node(data[1])}"
        case "relation":
            return f"{shown_node(data[0])} {data[1]} 0"
        case "time":
            return f"{data // 3600:02d}:{data // 60 % 60:02d}" + (f":{data % 60:02d}" if data % 60 else "")
        case "ratio":
            return ":".join(map(shown_node, data))
        case _:
            return str(data)


def _times_hundred(node: Node) -> Node:
    return canonical(("mul", ("num", 100, 1), node))


def _shown_piece(piece: Piece) -> str:
    low = "-oo" if piece.low == MINUS_INFINITE else shown_node(piece.low)
    return f"{'[' if piece.has_low else '('}{low}, {shown_node(piece.high)}{']' if piece.has_high else ')'}"
