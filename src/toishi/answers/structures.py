"""Formulas put together: lists, sets, tuples, intervals, equations, inequalities, quantities. Tokens in, a value out.

Decisions:
1. `[a, b]`, `(a, b]` and anything with an infinite end are intervals; `(a, b)` is a tuple that may also stand for the open
   interval; `\\{a, b\\}`, `a, b`, `a \\text{ and } b` and `\\pm a` are sets.
2. `x = 5` is 5 with a name, so it can stand for 5; `f(x) = 2x` is 2x with a name. Other equations stay equations.
3. An inequality in one variable is an interval; others are compared up to a positive factor.
4. What has words that are no unit is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.answers.exact import canonical, expanded_signs, symbols_of
from toishi.answers.grammar import Node, parse_formula
from toishi.answers.inequalities import inequality, interval, is_infinite, node_of, pieces_of, sided
from toishi.answers.intervals import REALS, intersection, joined, without
from toishi.answers.measures import read_measure
from toishi.answers.splitting import EQUAL, Tokens, closing_place, is_relation, is_separator, split
from toishi.answers.tokens import WORDS, TooLarge, Unreadable
from toishi.answers.values import Value

MAX_ELEMENTS = 200
_RENAMED = {"lt": "<", "gt": ">"}


def read_formulas(tokens: Tokens, *, loose_units: bool = False) -> Value:
    """The value of a whole answer. Raises Unreadable or TooLarge.

    loose_units  `6m` is six metres, since a quantity is expected

    >>> from toishi.answers.tokens import tokens_of
    >>> from toishi.answers.values import shown
    >>> for text in (r"x = 2 \\text{ or } x = -3", "(1, 2]", "-1 < x", "(3, 4)", "6 cm"):
    ...     value = read_formulas(tokens_of(text))
    ...     print(value.kind, shown(value))
    set x = {2, -3}
    interval (1, 2]
    interval (-1, oo)
    tuple (3, 4)
    quantity 6 cm
    """
    return _Reader(loose_units).whole(tokens)


class _Reader:
    """From the outside in: lists, then relations, then brackets, then quantities, then formulas."""

    def __init__(self, loose_units: bool) -> None:
        self.loose_units = loose_units

    def whole(self, tokens: Tokens) -> Value:
        parts, separators = split(tokens, is_separator)
        kept = [part for part in parts if part]
        if not kept:
            raise Unreadable("nothing to read")
        if len(kept) > MAX_ELEMENTS:
            raise TooLarge(f"a list of {len(kept)}")
        if len(parts) - len(kept) > sum(token.kind == "word" for token in separators):
            raise Unreadable("a separator with nothing beside it")
        if len(kept) == 1 and not separators:
            return self.item(kept[0])
        values = [self.item(part) for part in kept]
        if all(value.kind == "interval" for value in values):
            words = {token.text.casefold() for token in separators}
            either = "or" in words or words == {"lor"}
            pieces = values[0].data
            for value in values[1:]:
                pieces = joined((*pieces, *value.data)) if either else intersection(pieces, value.data)
            return Value("interval", pieces)
        return _as_set(values, bare=True)

    def item(self, tokens: Tokens) -> Value:
        parts, relations = split(tokens, is_relation)
        if relations:
            return self.relation(parts, [_RENAMED.get(token.text, token.text) for token in relations])
        for special in (self.union, self.bracketed, self.named_set):
            value = special(tokens)
            if value is not None:
                return value
        measure = read_measure(tokens, loose=self.loose_units)
        if measure is not None:
            return measure
        ratio = self.ratio(tokens)
        return ratio if ratio is not None else formula_value(parse_formula(tokens))

    def union(self, tokens: Tokens) -> Value | None:
        parts, signs = split(tokens, lambda token: token.text in ("cup", "setminus", "backslash", "U"))
        if not signs or not all(parts):
            return None
        if any(sign.text == "U" for sign in signs) and not all(part[-1].kind == "close" for part in parts):
            return None
        values = [self.item(part) for part in parts]
        if all(sign.text in ("cup", "U") for sign in signs):
            if all(value.kind == "set" for value in values):
                return _as_set([element for value in values for element in value.data], bare=False)
            return Value("interval", joined(tuple(piece for value in values for piece in pieces_of(value))))
        if len(values) != 2 or values[1].kind != "set":
            raise Unreadable("a difference of sets that cannot be read")
        return Value("interval", without(pieces_of(values[0]), [node_of(element) for element in values[1].data]))

    def bracketed(self, tokens: Tokens) -> Value | None:
        first = tokens[0]
        if first.text.startswith("begin ") or first.kind != "open" or closing_place(tokens) != len(tokens) - 1:
            return self.matrix(tokens)
        opening, closing, inside = first.text, tokens[-1].text, tokens[1:-1]
        if opening == "set{" or (opening == "{" and any(map(is_separator, inside))):
            if closing not in ("}set", "}"):
                raise Unreadable("a set that is not closed")
            return self.described(inside) or (_as_set(self.parts(inside), bare=False) if inside else Value("set", ()))
        if opening == "{" or closing == "}":
            return self.whole(inside) if opening + closing == "{}" else None
        if not split(inside, is_separator)[1]:
            return self.whole(inside) if any(map(is_relation, inside)) else self.matrix(inside) if inside else None
        if closing not in (")", "]"):
            raise Unreadable("brackets that do not belong together")
        values = self.parts(inside)
        ends = [value.data for value in values if value.is_formula and not value.name]
        infinite = any(is_infinite(end) for end in ends)
        if len(ends) == len(values) == 2 and (infinite or "[" in opening or "]" in closing):
            return interval(ends[0], ends[1], opening == "[", closing == "]")
        if opening + closing not in ("()", "[]"):
            raise Unreadable("brackets that do not belong together")
        return Value("tuple", tuple(values))

    def described(self, tokens: Tokens) -> Value | None:
        """`x | x > 2` inside braces."""
        halves, bars = split(tokens, lambda token: token.text in ("|", "mid", ":"))
        if len(bars) != 1 or len(halves[0]) != 1 or halves[0][0].kind != "letter":
            return None
        value = self.whole(halves[1])
        return value if value.kind in ("interval", "set") else None

    def parts(self, tokens: Tokens) -> list[Value]:
        parts, _ = split(tokens, is_separator)
        if not all(parts):
            raise Unreadable("a comma with nothing beside it")
        if len(parts) > MAX_ELEMENTS:
            raise TooLarge(f"a list of {len(parts)}")
        return [self.item(part) for part in parts]

    def matrix(self, tokens: Tokens) -> Value | None:
        first, last = tokens[0].text, tokens[-1].text
        if not (first.startswith("begin ") and first.endswith("matrix") and last.startswith("end ")):
            return None
        rows = [row for row in split(tokens[1:-1], lambda token: token.text == "row")[0] if row]
        cells = [split(row, lambda token: token.text == "&")[0] for row in rows]
        if not cells or len({len(row) for row in cells}) != 1 or not all(cell for row in cells for cell in row):
            raise Unreadable("a matrix with rows of different lengths")
        return Value("tuple", tuple(Value("tuple", tuple(self.item(cell) for cell in row)) for row in cells), name="matrix")

    def named_set(self, tokens: Tokens) -> Value | None:
        if len(tokens) != 1 or tokens[0].kind != "command":
            return None
        if tokens[0].text == "emptyset":
            return Value("set", ())
        return Value("interval", (REALS,)) if tokens[0].text == "bb R" else None

    def ratio(self, tokens: Tokens) -> Value | None:
        parts, signs = split(tokens, lambda token: token.text == ":" and token.kind == "sign")
        if not signs or not all(parts):
            return None
        return Value("ratio", tuple(canonical(parse_formula(part)) for part in parts))

    def relation(self, parts: Sequence[Tokens], signs: Sequence[str]) -> Value:
        if parts and not parts[0] and signs == ["approx"]:
            return self.item(parts[1])
        if not all(parts):
            raise Unreadable("a relation with nothing on one side")
        if all(sign in EQUAL for sign in signs):
            return self.equation(parts)
        if list(signs) == ["in"]:
            return self.item(parts[1])
        nodes = [canonical(parse_formula(part)) for part in parts]
        if list(signs) == ["ne"]:
            variable, end = sided(nodes[0], nodes[1])
            if variable is None:
                raise Unreadable("an inequality of two variables")
            return Value("interval", without((REALS,), [end]))
        return inequality(nodes, list(signs))

    def equation(self, parts: Sequence[Tokens]) -> Value:
        if len(parts) != 2:
            raise Unreadable("a chain of equations")
        right = self.item(parts[1])
        name = _name(parts[0], right)
        if name:
            return replace(right, name=name)
        left = self.item(parts[0])
        if left.kind == "tuple" and right.kind == "tuple" and all(_is_symbol(value) for value in left.data):
            return right
        if not (left.is_formula and right.is_formula) or left.name or right.name:
            raise Unreadable("an equation whose sides are no formulas")
        if _is_symbol(right) and right.data[1] not in symbols_of(left.data):
            return replace(left, name=right.data[1])
        return Value("equation", (left.data, right.data))


def formula_value(node: Node) -> Value:
    """A tree as a number, an expression, or the set of two that `\\pm` means."""
    signs = expanded_signs(node)
    if len(signs) == 2:
        return _as_set([formula_value(part) for part in signs], bare=False)
    done = canonical(node)
    return Value("number" if done[0] == "num" else "expression", done)


def _as_set(values: Sequence[Value], *, bare: bool) -> Value:
    """A set; `x = 1, x = 2` is the set of both with the name x, and sets among the elements (from `\\pm`) are opened."""
    elements = [
        replace(element, name=element.name or value.name)
        for value in values
        for element in (value.data if value.kind == "set" and bare else (value,))
    ]
    names = {element.name for element in elements if element.kind != "equation" and element.name != "matrix"}
    if len(names) == 1 or (len(names - {""}) == 1 and elements[0].name):
        return Value("set", tuple(replace(element, name="") for element in elements), name=max(names), bare=bare)
    return Value("set", tuple(elements), bare=bare)


def _name(left: Tokens, right: Value) -> str:
    """`x` of `x = 5`, `f(x)` of `f(x) = 2x`, and nothing where the left side is more than a name."""
    if len(left) == 1 and left[0].kind == "word" and len(left[0].text) > 1:
        return "" if left[0].text.casefold() in WORDS else left[0].text
    if right.name:
        return ""
    try:
        node = canonical(parse_formula(left))
    except Unreadable:
        return ""
    if node[0] == "sym" and not (right.is_formula and node[1] in symbols_of(right.data)):
        return str(node[1])
    called = node[0] == "call" and len(node) == 3 and node[2][0] == "sym" and right.is_formula
    return f"{node[1]}({node[2][1]})" if called and node[2][1] in symbols_of(right.data) else ""


def _is_symbol(value: Value) -> bool:
    return value.kind == "expression" and value.data[0] == "sym"
