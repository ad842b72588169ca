"""Equations of numbers in a text, checked exactly.

Decisions:
1. Numbers are fractions: 0.1 + 0.2 = 0.3 is right, and 10 / 3 = 3.33 is wrong unless rounding is allowed.
2. Only what is read whole is judged. An equation with letters, powers, roots or units in it is left alone: "2x + 3 = 7" says
   nothing of 3 and 7.
3. "5 = 5" computes nothing and is no equation.
4. A dash and a space at the front of a line are a list's mark and no minus.
5. Time grows with the length of the text and no faster: each "=" looks at no more than MAX_SIDE characters on either side.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_SIDE = 200
MAX_DIGITS = 50
_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?"
_SIDE = rf"[-+(\s]*{_NUMBER}(?:[)\s]*[-+*/][-+(\s]*{_NUMBER})*[)\s]*"
_LEFT, _RIGHT = re.compile(rf"{_SIDE}\Z"), re.compile(_SIDE)
_ARITHMETIC = "0123456789+-*/()., \t"
_SIGNS = {"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "$": " ", "\\times": "*", "\\cdot": "*", "\\div": "/"}
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_BULLET = re.compile(r"^[ \t]*(?:[-*+•–]|[0-9]+[.)])[ \t]+", re.MULTILINE)
_TIMES = re.compile(r"(?<=[0-9)])\s*[xX]\s*(?=[0-9(])")
_BEFORE = re.compile(r"[\w)\]}^\\.,%*/+≈<>≠-]\Z")
_AFTER = re.compile(r"\s*[-+*/^=≈(\[{\\%°!]|[\w.,][\w]|\w")
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """An equation as it was read.

    text      with plain signs and without spaces
    sides     the value of each side; None where it divides by zero
    operands  the numbers of the first side
    decimals  how many decimals the last side is written with
    """

    text: str
    sides: tuple[Fraction | None, ...]
    operands: tuple[Fraction, ...]
    decimals: int

    def holds(self, *, rounded: bool = False) -> bool:
        """Whether all sides are equal; with `rounded` the last may be the first, rounded to its decimals."""
        first, last = self.sides[0], self.sides[-1]
        if first is None or last is None:
            return False
        if len(set(self.sides)) == 1:
            return True
        close = abs(first - last) <= Fraction(1, 2 * 10**self.decimals)
        return rounded and close and len(set(self.sides[:-1])) == 1


def equations(text: str) -> list[Equation]:
    """The equations of a text, from left to right.

    >>> [(equation.text, equation.holds()) for equation in equations("Now 3 × 4 = 12, and 12 + 1,000 = 1013.")]
    [('3*4=12', True), ('12+1000=1013', False)]
    >>> equations("2x + 3 = 7, so x = 2")
    []
    """
    unlisted = _BULLET.sub("", text)
    plain = _TIMES.sub("*", _SIGN.sub(lambda sign: _SIGNS[sign[0]], unlisted))
    return [equation for line in plain.splitlines() for equation in _of_line(line)]


def numbers_in(text: str) -> set[Fraction]:
    """The numbers that a text is written with, without their signs.

    >>> sorted(map(str, numbers_in("10 - 2.50 and 1,000")))
    ['10', '1000', '5/2']
    """
    written = (number.replace(",", "") for number in re.findall(_NUMBER, text))
    return {Fraction(number) for number in written if len(number) <= MAX_DIGITS}


def _of_line(line: str) -> Iterator[Equation]:
    """What stands between two signs of equality is a side of both, if it is one as a whole; else it ends a chain."""
    pieces = line.split("=")
    at = 0
    while at < len(pieces) - 1:
        left = _LEFT.search(pieces[at], max(len(pieces[at].rstrip(_ARITHMETIC)), len(pieces[at]) - MAX_SIDE))
        sides, before = [], ""
        if left is not None:
            sides, before = [left[0]], pieces[at][: left.start()]
        after = ""
        while sides and at < len(pieces) - 1 and (right := _RIGHT.match(pieces[at + 1][: MAX_SIDE + 1])):
            at += 1
            sides.append(right[0])
            after = pieces[at][right.end() :]
            if after.strip():
                break
        if len(sides) < 2:
            at += 1
        elif not _part_of_more(sides, before, after):
            yield from _read(sides)


def _read(sides: list[str]) -> Iterator[Equation]:
    read = [side for side in map(_Side.read, sides) if side is not None]
    if len(read) == len(sides) and any(len(side.numbers) > 1 for side in read):
        yield Equation(
            text="=".join(side.text for side in read),
            sides=tuple(side.value for side in read),
            operands=read[0].numbers,
            decimals=len(read[-1].text.partition(".")[2]),
        )


def _part_of_more(sides: list[str], before: str, after: str) -> bool:
    """Whether what stands beside an equation belongs to it: a letter, an operator, a unit, more digits."""
    left, right = sides[0], sides[-1]
    if _AFTER.match(after if right == right.rstrip() else f" {after}"):
        return True
    if not before.strip():
        return False
    last = before.rstrip()[-1]
    signed = left.lstrip()[0] in "+-" and (last.isalnum() or last in ")]}")
    touches = before == before.rstrip() and left == left.lstrip() and _BEFORE.search(before) is not None
    return signed or touches or last in "*/^+-≈<>≠\\"


@dataclass(frozen=True, slots=True)
class _Side:
    text: str
    numbers: tuple[Fraction, ...]
    value: Fraction | None

    @classmethod
    def read(cls, side: str) -> _Side | None:
        """None for what cannot be read as a sum, such as brackets that do not close."""
        text = re.sub(r"[\s,]", "", side)
        written = re.findall(_NUMBER, text)
        if len(text) > MAX_SIDE or any(len(number) > MAX_DIGITS for number in written):
            return None
        numbers = tuple(map(Fraction, written))
        counter = iter(range(len(numbers)))
        try:
            tree = ast.parse(re.sub(_NUMBER, lambda _: f"n{next(counter)}", text), mode="eval").body
            return cls(text, numbers, _value(tree, numbers))
        except (SyntaxError, ValueError):
            return None
        except ZeroDivisionError:
            return cls(text, numbers, None)


def _value(node: ast.expr, numbers: tuple[Fraction, ...]) -> Fraction:
    match node:
        case ast.Name(id=name):
            return numbers[int(name[1:])]
        case ast.UnaryOp(op=sign, operand=inner):
            value = _value(inner, numbers)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left, numbers), _value(right, numbers))
        case _:  # "7//2" and "2**3" are read as other operators
            raise ValueError(ast.dump(node))
