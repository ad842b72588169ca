"""How golds are typed, and which are refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from toishi.answers.reading import read_answer, read_gold
from toishi.answers.tokens import TooLarge, Unreadable
from toishi.answers.values import shown
from toishi.answers.verifying import check_gold
from toishi.errors import DataError

READ: list[tuple[Any, str, str]] = [
    (7, "number", "7"),
    (0.1, "number", "0.1"),
    (Decimal("2.50"), "number", "2.5"),
    ("1,234", "number", "1234"),
    (r"12\,500", "number", "12500"),
    (r"1.5\times10^{3}", "number", "1500"),
    (r"\frac34", "number", "0.75"),
    (r"3\frac12", "number", "3.5"),
    ("1e3", "number", "1000"),
    (r"0.\overline{3}", "number", "1/3"),
    ("2 million", "number", "2000000"),
    ("073", "number", "73"),
    ("Reasoning first.\n#### 1,250", "number", "1250"),
    (r"A solution with \boxed{3} and then \boxed{4}.", "number", "4"),
    (["12"], "number", "12"),
    (r"7\sqrt{3}", "expression", "7*sqrt(3)"),
    ("$x+2$", "expression", "2 + x"),
    ("52_8", "expression", "52_8"),
    (r"35\%", "percent", "35%"),
    (r"6\text{ cm}", "quantity", "6 cm"),
    (r"\$18.50", "quantity", "18.5 $"),
    (r"90^\circ", "quantity", "90 °"),
    ("5 apples", "quantity", "5 apples"),
    (r"\{2, 7\}", "set", "{2, 7}"),
    (r"2 \text{ and } 7", "set", "{2, 7}"),
    ([2, "7"], "set", "{2, 7}"),
    (r"\pm 5", "set", "{5, -5}"),
    (r"x = 1 \text{ or } x = 4", "set", "x = {1, 4}"),
    ("(2,7)", "tuple", "(2, 7)"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "tuple", "((1), (2))"),
    ("[2,7)", "interval", "[2, 7)"),
    (r"x \le 3", "interval", "(-oo, 3]"),
    (r"\{x \mid x > 2\}", "interval", "(2, oo)"),
    (r"(-\infty,0)\cup[2,\infty)", "interval", "(-oo, 0) ∪ [2, oo)"),
    ("3x-y+4=0", "equation", "3*x + 4 - y = 0"),
    ("x + y < 3", "relation", "x + y - 3 < 0"),
    ("(B)", "choice", "B"),
    ("08:30", "time", "08:30"),
    ("8:30 p.m.", "time", "20:30"),
    ("2:3", "ratio", "2:3"),
    ("No", "text", "no"),
    (True, "text", "true"),
    ("the Nile", "text", "nile"),
    ("July 4, 1776", "text", "july 4, 1776"),
    ("1776-07-04", "text", "1776-07-04"),
    ("DNE", "text", "dne"),
]


@pytest.mark.parametrize(("raw", "kind", "text"), READ, ids=[str(row[0])[:40] for row in READ])
def test_golds_are_typed_and_read_whole(raw: Any, kind: str, text: str) -> None:
    gold = read_gold(raw)
    assert (gold.value.kind, gold.shown) == (kind, text)
    assert check_gold(gold) is None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "the row has no gold"),
        ("", "it is empty"),
        ("  ", "it is empty"),
        ([], "an empty list"),
        ({"a": 1}, "the gold is a dict"),
        (float("nan"), "no number"),
        (float("inf"), "no number"),
        ("3x + ", "the formula ends too early"),
        (r"\{1, 2", "a bracket is not closed"),
        (r"\frac{1}{0}", "a division by 0"),
        (r"n \equiv 3 \pmod 7", "pmod"),
        ("1,,2", "a separator with nothing beside it"),
        ("[7, 2]", "ends are in the wrong order"),
        ("[2, oops^]", "cannot be read"),
        (r"10^{10^{10}}", "too large to compare with"),
        ("(" * 200 + "1" + ")" * 200, "too large to compare with"),
        ("$", "cannot be read"),
    ],
)
def test_golds_that_cannot_be_read_whole_are_refused(raw: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_gold(raw)


@pytest.mark.parametrize(
    ("raw", "type_", "kind", "text"),
    [
        ("35", "percent", "percent", "35%"),
        ("(2, 7)", "interval", "interval", "(2, 7)"),
        ("[2, 7]", "tuple", "tuple", "(2, 7)"),
        ("5", "set", "set", "{5}"),
        ([1, 2], "tuple", "tuple", "(1, 2)"),
        ("6m", "quantity", "quantity", "6 m"),
        ("5", "expression", "number", "5"),
        ("C", "text", "text", "c"),
        ("B) Paris", "choice", "choice", "B"),
        ("y = 2x", "equation", "expression", "y = 2*x"),
        (7, "text", "text", "7"),
    ],
)
def test_a_type_can_be_asked_for(raw: Any, type_: Any, kind: str, text: str) -> None:
    gold = read_gold(raw, type_)
    assert (gold.value.kind, gold.shown) == (kind, text)
    assert check_gold(gold) is None


@pytest.mark.parametrize(
    ("raw", "type_", "message"),
    [
        ("x+2", "number", "as number: it reads as expression"),
        ("(7, 2)", "interval", "it reads as tuple"),
        ("5", "equation", "it reads as number"),
        ("AB", "choice", "not one choice letter"),
        ("25:00", "time", "no time of day"),
        ("...", "text", "no letters or digits"),
    ],
)
def test_a_gold_that_is_not_of_the_asked_type_is_refused(raw: str, type_: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_gold(raw, type_)


def test_answers_are_read_as_the_gold_asks() -> None:
    assert read_answer("6m", read_gold("6 cm")).kind == "quantity"
    assert read_answer("6m", read_gold("6x")).kind == "expression"
    assert read_answer("A", read_gold("x")).kind == "expression"
    assert read_answer("7", read_gold("seven")).kind == "text"
    assert shown(read_answer("9:05", read_gold("8:30"))) == "09:05"


@pytest.mark.parametrize(
    "text", ["", ",", "and", "5 to 6", "about five", "4 0 0", r"\foo{2}", "x =", "= 5", "5?", "2 3", r"\text{", "1_", "2^"]
)
def test_what_is_no_answer_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_answer(text, read_gold("5"))


@pytest.mark.parametrize(
    "text", ["9^{9^{9^9}}", "(10^7)!", "1" * 9000, "x+" * 1500 + "x", "1," * 300 + "1", "(" * 90 + "1" + ")" * 90]
)
def test_what_is_too_large_is_said_to_be(text: str) -> None:
    with pytest.raises(TooLarge):
        read_answer(text, read_gold("5"))
