"""Two values compared by their kinds. What is not known to be equal is not equal.

Decisions:
1. Formulas are compared by a `Decider`: the quick one knows equal trees and fractions and raises `NeedsSymbolic` for the rest;
   the symbolic one (`symbolic.py`) works with sympy and runs in a child process.
2. A gold without a unit takes an answer with one, as in `5` and `5 apples`, but never a percentage of another value.
3. A gold with a unit of measure or a percent sign needs one that converts, unless `unit` is "optional". Degree signs,
   currencies and counted things may be left out.
4. Sets ignore order and repetition, tuples do not; a list with commas can stand for both, one with `or` is never a tuple.
5. Values with names (`x = 2, y = 3`) are compared by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

from toishi.answers.exact import canonical, symbols_of
from toishi.answers.grammar import Node, number_node
from toishi.answers.inequalities import as_open_interval
from toishi.answers.values import Piece, Value, infinity, named_values, shown

UnitRule = Literal["required", "optional"]


class NeedsSymbolic(Exception):
    """The quick comparison cannot tell."""


class Decider(Protocol):
    """Compares trees."""

    @property
    def tolerance(self) -> float:
        """How far off a value still counts, relative to the gold; 0 is exact."""
        ...

    def equal(self, gold: Node, answer: Node) -> bool:
        """Whether two formulas have the same value for all values of their symbols."""
        ...

    def proportional(self, gold: Node, answer: Node, *, positive: bool) -> bool:
        """Whether one is the other times a constant that is not 0 (positive, for inequalities)."""
        ...


@dataclass(frozen=True, slots=True)
class Quick:
    """Decides what fractions and equal trees decide. `tolerance` is relative to the gold; 0 is exact."""

    tolerance: float = 0.0

    def equal(self, gold: Node, answer: Node) -> bool:
        """See `Decider`. Raises NeedsSymbolic."""
        if gold == answer:
            return True
        if gold[0] == answer[0] == "sym":
            return False
        if gold[0] != "num" or answer[0] != "num":
            raise NeedsSymbolic
        right, given = Fraction(gold[1], gold[2]), Fraction(answer[1], answer[2])
        return abs(given - right) <= Fraction(repr(self.tolerance)) * abs(right)

    def proportional(self, gold: Node, answer: Node, *, positive: bool) -> bool:
        """See `Decider`. Raises NeedsSymbolic."""
        if gold == answer:
            return True
        raise NeedsSymbolic


@dataclass(frozen=True, slots=True)
class Comparison:
    """How values are compared. `reason` names the first rule that an answer broke."""

    decider: Decider
    unit: UnitRule = "required"

    def reason(self, gold: Value, answer: Value) -> str | None:
        """None when the answer is right, else why not.

        >>> from toishi.answers.reading import read_answer, read_gold
        >>> gold = read_gold("6 cm")
        >>> [Comparison(Quick()).reason(gold.value, read_answer(text, gold)) for text in ("0.06 m", "6 m", "6")]
        [None, '6 m is not 6 cm', 'the unit cm is missing']
        """
        return self._reason(gold, _only_element(gold, answer))

    def _reason(self, gold: Value, answer: Value) -> str | None:
        special = self._by_kind(gold, answer)
        if special is not None:
            return special or None
        named = named_values(gold), named_values(answer)
        if any(named):
            return self._assignments(gold, answer)
        if gold.name and answer.name and gold.name != answer.name and not _is_matrix(gold):
            return self._equations(gold, answer)
        if gold.kind in ("equation", "relation") or answer.kind in ("equation", "relation"):
            return self._equations(gold, answer)
        if gold.kind == answer.kind or (gold.is_formula and answer.is_formula):
            return self._same_kind(gold, answer)
        return self._other_kind(gold, answer)

    def _by_kind(self, gold: Value, answer: Value) -> str | None:
        """For plain kinds: "" when right, a reason when not; None for other kinds."""
        kinds = (gold.kind, answer.kind)
        if not {"text", "choice", "time", "ratio"} & set(kinds):
            return None
        if gold.kind != answer.kind:
            return _other(gold, answer)
        if gold.kind == "ratio":
            return "" if self._same_ratio(gold.data, answer.data) else _differs(gold, answer)
        return "" if gold.data == answer.data else _differs(gold, answer)

    def _same_ratio(self, gold: Sequence[Node], answer: Sequence[Node]) -> bool:
        if len(gold) != len(answer):
            return False
        if tuple(gold) == tuple(answer):
            return True
        pairs = zip(gold[1:], answer[1:], strict=True)
        if any(part[0] != "num" and self.decider.equal(("num", 0, 1), part) for part in answer):
            return False
        return all(
            self.decider.equal(canonical(("mul", gold[0], other)), canonical(("mul", answer[0], one))) for one, other in pairs
        )

    def _same_kind(self, gold: Value, answer: Value) -> str | None:
        if gold.kind == "set":
            return self._sets(gold.data, answer.data)
        if gold.kind == "tuple":
            return self._tuples(gold, answer)
        if gold.kind == "interval":
            return self._intervals(gold.data, answer.data)
        if gold.kind == "quantity":
            return self._quantities(gold, answer)
        return None if self.decider.equal(gold.data, answer.data) else _differs(gold, answer)

    def _other_kind(self, gold: Value, answer: Value) -> str | None:
        if answer.kind == "percent" and gold.is_formula:
            return None if self.decider.equal(gold.data, answer.data) else _differs(gold, answer)
        if answer.kind == "quantity" and gold.is_formula:
            if answer.unit is not None and answer.unit.is_ordinal:
                return _other(gold, answer)
            return None if self.decider.equal(gold.data, answer.data) else _differs(gold, answer)
        if answer.is_formula and gold.kind in ("percent", "quantity"):
            return self._unit_left_out(gold, answer)
        if gold.kind == "tuple" and answer.kind == "set" and answer.bare == "list":
            return self._tuples(gold, Value("tuple", answer.data))
        if gold.kind == "set" and gold.bare == "list" and answer.kind == "tuple" and not _is_matrix(answer):
            return self._tuples(Value("tuple", gold.data), answer)
        pieces = [value.data if value.kind == "interval" else as_open_interval(value) for value in (gold, answer)]
        if pieces[0] is not None and pieces[1] is not None:
            return self._intervals(pieces[0], pieces[1])
        if gold.kind == "set" and len(gold.data) == 1:
            return self._reason(gold.data[0], answer)
        return _other(gold, answer)

    def _unit_left_out(self, gold: Value, answer: Value) -> str | None:
        if gold.kind == "percent":
            if self.decider.equal(gold.data, answer.data):
                return None
            if self.unit == "required":
                return _differs(gold, answer)
            hundredth = canonical(("mul", answer.data, ("num", 1, 100)))
            return None if self.decider.equal(gold.data, hundredth) else _differs(gold, answer)
        unit = gold.unit
        assert unit is not None
        if self.unit == "required" and not (unit.is_money or unit.is_degree or unit.is_count):
            return f"the unit {unit.text} is missing"
        return None if self.decider.equal(gold.data, answer.data) else _differs(gold, answer)

    def _quantities(self, gold: Value, answer: Value) -> str | None:
        assert gold.unit is not None
        assert answer.unit is not None
        if gold.unit.dimensions != answer.unit.dimensions:
            return _differs(gold, answer)
        ratio = number_node(answer.unit.factor / gold.unit.factor)
        converted = canonical(("mul", answer.data, ratio))
        return None if self.decider.equal(gold.data, converted) else _differs(gold, answer)

    def _sets(self, gold: Sequence[Value], answer: Sequence[Value]) -> str | None:
        for one in gold:
            if not self._any([(one, other) for other in answer]):
                return f"{shown(one)} is missing"
        for other in answer:
            if not self._any([(one, other) for one in gold]):
                return f"{shown(other)} is not in the gold"
        if self.decider.tolerance and len(set(gold)) != len(set(answer)):
            return f"{len(set(answer))} different values, not {len(set(gold))}"
        return None

    def _any(self, pairs: Sequence[tuple[Value, Value]]) -> bool:
        """Whether one of the pairs is right; that another cannot be told quickly matters only if none is."""
        unknown = None
        for gold, answer in pairs:
            try:
                if self._reason(gold, answer) is None:
                    return True
            except NeedsSymbolic as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return False

    def _assignments(self, gold: Value, answer: Value) -> str | None:
        """Values with names: by name, or, where one side has none, in the order of the gold or of the alphabet."""
        named, given = named_values(gold), named_values(answer)
        if named and given:
            if named.keys() != given.keys():
                return _differs(gold, answer)
            pairs = [(named[name], given[name]) for name in named]
        elif named and answer.kind == "tuple" and not _is_matrix(answer):
            pairs = list(zip(named.values(), answer.data, strict=False)) if len(named) == len(answer.data) else []
        elif given and gold.kind == "tuple" and not _is_matrix(gold):
            in_order = [given[name] for name in sorted(given)]
            pairs = list(zip(gold.data, in_order, strict=False)) if len(gold.data) == len(given) else []
        elif given and gold.kind == "set" and len({name.partition("_")[0] for name in given}) == 1:
            return self._sets(gold.data, list(given.values()))
        else:
            pairs = []
        if not pairs:
            return _other(gold, answer)
        return next((reason for one, other in pairs if (reason := self._reason(one, other)) is not None), None)

    def _tuples(self, gold: Value, answer: Value) -> str | None:
        if len(gold.data) != len(answer.data) or _is_matrix(gold) != _is_matrix(answer):
            return _differs(gold, answer)
        pairs = zip(gold.data, answer.data, strict=True)
        return next((reason for one, other in pairs if (reason := self._reason(one, other)) is not None), None)

    def _intervals(self, gold: Sequence[Piece], answer: Sequence[Piece]) -> str | None:
        shown_gold, shown_answer = (shown(Value("interval", pieces)) for pieces in (gold, answer))
        if len(gold) != len(answer):
            return f"{shown_answer} is not {shown_gold}"
        rest = list(answer)
        for piece in gold:
            same = next((other for other in rest if self._same_piece(piece, other)), None)
            if same is None:
                return f"{shown_answer} is not {shown_gold}"
            rest.remove(same)
        return None

    def _same_piece(self, gold: Piece, answer: Piece) -> bool:
        if (gold.has_low, gold.has_high) != (answer.has_low, answer.has_high):
            return False
        return self._same_end(gold.low, answer.low) and self._same_end(gold.high, answer.high)

    def _same_end(self, gold: Node, answer: Node) -> bool:
        infinite = [infinity(end) for end in (gold, answer)]
        return infinite[0] == infinite[1] if any(infinite) else self.decider.equal(gold, answer)

    def _equations(self, gold: Value, answer: Value) -> str | None:
        sides = [_sides(value) for value in (gold, answer)]
        if gold.kind == "relation" and answer.kind == "relation":
            right = gold.data[1] == answer.data[1] and self.decider.proportional(gold.data[0], answer.data[0], positive=True)
            return None if right else _differs(gold, answer)
        if sides[0] is None or sides[1] is None:
            return _other(gold, answer)
        if gold.name and answer.name and ("(" in gold.name + answer.name or not (gold.symbols or answer.symbols)):
            return _differs(gold, answer)  # x = 5 and y = 5, f(x) = 2x and g(x) = 2x
        differences = [canonical(("add", left, ("mul", ("num", -1, 1), right))) for left, right in filter(None, sides)]
        if not all(map(symbols_of, differences)):
            return _differs(gold, answer)  # 0 = 0 says nothing
        return None if self.decider.proportional(differences[0], differences[1], positive=False) else _differs(gold, answer)


def _only_element(gold: Value, answer: Value) -> Value:
    """The element of a set of one, and of a list that says it in two ways, as in `\\frac12 \\text{ or } 0.5`."""
    if answer.kind != "set" or gold.kind in ("set", "interval") or len(set(answer.data)) != 1:
        return answer
    if answer.bare != "or" and len(answer.data) != 1:
        return answer
    element: Value = answer.data[0]
    return element


def _sides(value: Value) -> tuple[Node, Node] | None:
    if value.kind == "equation":
        left, right = value.data
        return left, right
    if not value.name or not value.is_formula:
        return None
    called, _, argument = value.name.partition("(")
    name: Node = ("call", called, ("sym", argument[:-1])) if argument else ("sym", value.name)
    return name, value.data


def _is_matrix(value: Value) -> bool:
    return value.name == "matrix"


def _differs(gold: Value, answer: Value) -> str:
    return f"{shown(answer)} is not {shown(gold)}"


def _other(gold: Value, answer: Value) -> str:
    return f"{shown(answer)} ({answer.kind}) is not {shown(gold)} ({gold.kind})"
