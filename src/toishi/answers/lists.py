"""Values beside each other: sets, unions and intersections of intervals, and values with names.

Decisions:
1. `x > 1, x < 5` is both or either, so a comma between inequalities is refused; `and` and `or` say which.
2. `x = 1, x = 2` is a set of values of x. `x = 1, y = 2` says which is which: it is an assignment, and no set.
3. A separator must have something on both sides, except for the comma of `, and`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from toishi.answers.intervals import intersection, joined
from toishi.answers.splitting import Tokens
from toishi.answers.tokens import Token, Unreadable
from toishi.answers.values import Bare, Value


@dataclass(frozen=True, slots=True)
class Separators:
    """What stands between the parts of a list."""

    has_or: bool
    has_and: bool
    has_comma: bool


def separated(parts: Sequence[Tokens], separators: Sequence[Token]) -> Separators:
    """The kinds of separators of a list. Raises Unreadable for one with nothing beside it.

    >>> from toishi.answers.splitting import is_separator, split
    >>> from toishi.answers.tokens import tokens_of
    >>> separated(*split(tokens_of("1, or 2"), is_separator))
    Separators(has_or=True, has_and=False, has_comma=False)
    """
    names = [token.text.casefold() for token in separators]
    commas = 0
    for place, part in enumerate(parts):
        before_word = 0 < place < len(parts) - 1 and names[place - 1] == "," and names[place] in ("and", "or")
        if not part and not before_word:
            raise Unreadable("a separator with nothing beside it")
    for place, name in enumerate(names):
        commas += name in ",;" and bool(parts[place + 1])
    return Separators(
        has_or=bool({"or", "lor", "vee"} & set(names)),
        has_and=bool({"and", "land", "wedge"} & set(names)),
        has_comma=commas > 0,
    )


def combined(values: Sequence[Value], by: Separators) -> Value:
    """The value of a list. Raises Unreadable where it could be meant in two ways.

    >>> from toishi.answers.values import shown
    >>> two, seven = (Value("number", ("num", number, 1)) for number in (2, 7))
    >>> shown(combined([two, seven], Separators(has_or=True, has_and=False, has_comma=False)))
    '{2, 7}'
    """
    if any(value.kind == "interval" for value in values):
        return _intervals(values, by)
    return as_set(values, bare="or" if by.has_or else "list")


def _intervals(values: Sequence[Value], by: Separators) -> Value:
    if not all(value.kind == "interval" for value in values):
        raise Unreadable("an inequality beside what is none")
    if by.has_comma or by.has_or == by.has_and:
        raise Unreadable("inequalities without `and` or `or` between them")
    names = {value.name for value in values}
    if len(names) > 1:
        raise Unreadable("inequalities in several variables")
    pieces = values[0].data
    for value in values[1:]:
        pieces = joined((*pieces, *value.data)) if by.has_or else intersection(pieces, value.data)
    return Value("interval", pieces, name=values[0].name)


def as_set(values: Sequence[Value], *, bare: Bare) -> Value:
    """A set; one of values with a common name has that name; an assignment where the names differ. `\\pm` is opened.

    >>> from toishi.answers.values import shown
    >>> x, y = (Value("number", ("num", number, 1), name=name) for number, name in ((2, "x"), (3, "y")))
    >>> shown(as_set([x, y], bare="list"))
    '{x = 2, y = 3}'
    """
    elements = [
        replace(element, name=element.name or value.name)
        for value in values
        for element in (value.data if value.kind == "set" and value.bare == "signs" else (value,))
    ]
    if len(values) == 1 and values[0].bare == "signs":
        return values[0]
    names = [element.name for element in elements if element.kind != "equation" and element.name != "matrix"]
    known = set(names) - {""}
    if len(known) == 1 and ("" not in names or elements[0].name):
        return Value("set", tuple(replace(element, name="") for element in elements), name=max(names), bare=bare)
    if len(known) > 1 and len(set(names)) == len(elements) and "" not in names and bare in ("", "list"):
        return Value("assignment", tuple(elements))
    if known:
        raise Unreadable("values with and without names, or several of one name")
    return Value("set", tuple(elements), bare=bare)
