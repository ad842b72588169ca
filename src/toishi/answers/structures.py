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

from toishi.answers.exact import canonical, expanded_signs, has_infinity, symbols_of
from toishi.answers.grammar import Node, parse_formula
from toishi.answers.inequalities import as_open_interval, inequality, interval, is_infinite, node_of, pieces_of, sided
from toishi.answers.intervals import REALS, joined, without
from toishi.answers.lists import as_set, combined, separated
from toishi.answers.measures import Things, read_measure
from toishi.answers.splitting import Tokens, closing_place, is_relation, is_separator, split
from toishi.answers.tokens import WORDS, TooLarge, Unreadable
from toishi.answers.values import Value

MAX_ELEMENTS = 200
_MATRICES = frozenset(("begin matrix", "begin pmatrix", "begin bmatrix", "begin smallmatrix"))
_NO_SOLUTION = frozenset(("no solution", "no solutions", "the empty set", "empty set"))
_ALL_REALS = frozenset(("all real numbers", "all reals", "the set of all real numbers", "the real numbers"))
_RENAMED = {"lt": "<", "gt": ">"}


def read_formulas(tokens: Tokens, *, loose_units: bool = False, things: Things = None) -> Value:
    """The value of a whole answer. Raises Unreadable or TooLarge.

    loose_units  `6m` is six metres, since a quantity is expected
    things       words that may count things besides the common ones; None: any, since this is a gold

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
    return _Reader(loose_units, things).whole(tokens)


class _Reader:
    """From the outside in: lists, then relations, then brackets, then quantities, then formulas."""

    def __init__(self, loose_units: bool, things: Things) -> None:
        self.loose_units, self.things = loose_units, things

    def whole(self, tokens: Tokens) -> Value:
        parts, separators = split(tokens, is_separator)
        kept = [part for part in parts if part]
        if not kept:
            raise Unreadable("nothing to read")
        if len(kept) > MAX_ELEMENTS:
            raise TooLarge(f"a list of {len(kept)}")
        if not separators:
            return self.item(kept[0])
        found = separated(parts, separators)
        return combined([self.item(part) for part in kept], found)

    def item(self, tokens: Tokens) -> Value:
        parts, relations = split(tokens, is_relation)
        if relations:
            return self.relation(parts, [_RENAMED.get(token.text, token.text) for token in relations])
        for special in (self.union, self.bracketed, self.point, self.named_set):
            value = special(tokens)
            if value is not None:
                return value
        measure = read_measure(tokens, loose=self.loose_units, things=self.things)
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
                return as_set([element for value in values for element in value.data], bare="")
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
            return self.described(inside) or (as_set(self.parts(inside), bare="") if inside else Value("set", ()))
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
        """`x | x > 2` inside braces, and with `x \\in \\mathbb{R}` before the bar."""
        halves, bars = split(tokens, lambda token: token.text in ("|", "mid", ":"))
        before = [token.text for token in halves[0]]
        if len(bars) != 1 or not before or halves[0][0].kind != "letter" or before[1:] not in ([], ["in", "bb R"]):
            return None
        value = self.whole(halves[1])
        if value.kind not in ("interval", "set") or value.name != before[0]:
            raise Unreadable("a set whose condition is not about its variable")
        return value

    def point(self, tokens: Tokens) -> Value | None:
        """`P(2, 7)` in an answer. In a gold it could be a probability or a count; `C(5, 2)` always can."""
        named = len(tokens) > 3 and tokens[0].kind == "letter" and tokens[0].text.isupper() and tokens[0].text != "C"
        if self.things is None or not named or tokens[1].text != "(" or tokens[1].spaced:
            return None
        if closing_place(tokens[1:]) != len(tokens) - 2 or not split(tokens[2:-1], is_separator)[1]:
            return None
        return self.bracketed(tokens[1:])

    def parts(self, tokens: Tokens) -> list[Value]:
        parts, _ = split(tokens, is_separator)
        if not all(parts):
            raise Unreadable("a comma with nothing beside it")
        if len(parts) > MAX_ELEMENTS:
            raise TooLarge(f"a list of {len(parts)}")
        return [self.item(part) for part in parts]

    def matrix(self, tokens: Tokens) -> Value | None:
        first, last = tokens[0].text, tokens[-1].text
        if first not in _MATRICES or not last.startswith("end "):
            return None
        rows = [row for row in split(tokens[1:-1], lambda token: token.text == "row")[0] if row]
        cells = [split(row, lambda token: token.text == "&")[0] for row in rows]
        if not cells or len({len(row) for row in cells}) != 1 or not all(cell for row in cells for cell in row):
            raise Unreadable("a matrix with rows of different lengths")
        return Value("tuple", tuple(Value("tuple", tuple(self.item(cell) for cell in row)) for row in cells), name="matrix")

    def named_set(self, tokens: Tokens) -> Value | None:
        if all(token.kind == "word" for token in tokens):
            words = " ".join(token.text.casefold() for token in tokens)
            return Value("set", ()) if words in _NO_SOLUTION else Value("interval", (REALS,)) if words in _ALL_REALS else None
        if len(tokens) != 1 or tokens[0].kind != "command":
            return None
        if tokens[0].text == "emptyset":
            return Value("set", ())
        return Value("interval", (REALS,)) if tokens[0].text == "bb R" else None

    def ratio(self, tokens: Tokens) -> Value | None:
        parts, signs = split(tokens, lambda token: token.text == ":" and token.kind == "sign")
        if not signs or not all(parts):
            return None
        found = tuple(canonical(parse_formula(part)) for part in parts)
        if any(part == ("num", 0, 1) for part in found):
            raise Unreadable("a ratio with 0")
        return Value("ratio", found)

    def relation(self, parts: Sequence[Tokens], signs: Sequence[str]) -> Value:
        if parts and not parts[0] and signs == ["approx"]:
            return self.item(parts[1])
        if not all(parts):
            raise Unreadable("a relation with nothing on one side")
        if all(sign == "=" for sign in signs):
            return self.equation(parts)
        if list(signs) == ["in"]:
            return self.member(parts)
        if list(signs) == ["approx"]:
            found = self.equation(parts)
            if found.kind != "number" or not found.name:
                raise Unreadable("an approximation of what is no number")
            return found
        nodes = [canonical(parse_formula(part)) for part in parts]
        if list(signs) == ["ne"]:
            variable, end = sided(nodes[0], nodes[1])
            if variable is None:
                raise Unreadable("an inequality of two variables")
            return Value("interval", without((REALS,), [end]), name=variable[1])
        return inequality(nodes, list(signs))

    def member(self, parts: Sequence[Tokens]) -> Value:
        """`x \\in [2, 7)`: the set on the right, and nothing else than a name on the left."""
        if len(parts) != 2 or len(parts[0]) != 1 or parts[0][0].kind != "letter":
            raise Unreadable("an element that is no name")
        value = self.item(parts[1])
        pieces = as_open_interval(value)
        if pieces is not None:
            value = Value("interval", pieces)
        if value.kind not in ("interval", "set") or value.name:
            raise Unreadable("an element of what is no set")
        return replace(value, name=parts[0][0].text)

    def equation(self, parts: Sequence[Tokens]) -> Value:
        if len(parts) != 2:
            raise Unreadable("a chain of equations")
        right = self.item(parts[1])
        if right.name == "matrix" and len(parts[0]) == 1 and parts[0][0].kind == "letter":
            return right
        name = _name(parts[0], right)
        if name:
            return replace(right, name=name)
        left = self.item(parts[0])
        if left.kind == "tuple" and right.kind == "tuple" and all(_is_symbol(value) for value in left.data):
            return _named_tuple(left, right)
        if not (left.is_formula and right.is_formula) or left.name or right.name:
            raise Unreadable("an equation whose sides are no formulas")
        if _is_symbol(right) and right.data[1] not in symbols_of(left.data):
            return replace(left, name=right.data[1])
        return Value("equation", (left.data, right.data))


def formula_value(node: Node) -> Value:
    """A tree as a number, an expression, or the set of two that `\\pm` means."""
    signs = expanded_signs(node)
    if len(signs) == 2:
        return as_set([formula_value(part) for part in signs], bare="signs")
    done = canonical(node)
    if has_infinity(done) and not is_infinite(done):
        raise Unreadable("infinity inside a formula")
    return Value("number" if done[0] == "num" else "expression", done)


def _named_tuple(left: Value, right: Value) -> Value:
    """`(x, y) = (2, 3)`: the right side, each element with its name."""
    names = [value.data[1] for value in left.data]
    if len(set(names)) != len(right.data) or len(names) != len(right.data) or any(value.name for value in right.data):
        raise Unreadable("names and values that do not belong together")
    return Value("tuple", tuple(replace(value, name=name) for name, value in zip(names, right.data, strict=True)))


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
