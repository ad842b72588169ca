"""The rules of each type, one line each: gold, answer, whether it is right."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.answers.cases_of import said
from toishi.answers.reading import read_gold
from toishi.answers.units import unit_of
from toishi.answers.verifying import Rules, verify

RULES: list[tuple[Any, str, bool]] = [
    ("12", "1,2", False),
    ("12", "{5, 12}", False),
    ("12", r"\{12\}", True),
    ("5", "x=5", True),
    ("x=5", "5", True),
    ("x=5", "y=5", False),
    ("x=5", "x-5=0", True),
    ("0", "f(x)=0", False),
    ("0", "0=0", False),
    ("5", "5=5", False),
    ("5", "not = 5", False),
    ("5", "5 apples", True),
    ("5 apples", "5", True),
    ("5 apples", "5 pears", False),
    ("8th", "8", True),
    ("5", r"5\%", False),
    ("0.05", r"5\%", True),
    ("5", "500 cents", False),
    ("$5", "500 cents", True),
    ("$5", "5 €", False),
    ("6 cm", "0.06 m", True),
    ("6 cm", "6", False),
    ("6 cm^2", "6 cm", False),
    ("1 N", r"1\ \mathrm{kg\,m/s^2}", True),
    ("36 km/h", "10 m/s", True),
    ("90°", "90", True),
    ("90°", "90 rad", False),
    ("20 °C", "20 °F", False),
    ("20 degrees Celsius", r"20^\circ\text{C}", True),
    (r"35\%", "35", False),
    ("(2,7)", "2<x<7", True),
    ("(2,7)", "2, 7", True),
    ("(2,7)", "7, 2", False),
    ("2, 7", "7, 2", True),
    ("2, 7", "(2, 7)", True),
    ("2, 7", "(7, 2)", False),
    (r"\{2,7\}", "(2,7)", False),
    (r"(-\infty,3)", "x<3", True),
    (r"(-\infty,3)", "y<3", True),
    ("x<3", "x<=3", False),
    ("a < x < b", "(a, b)", True),
    ("x + y < 3", "2x + 2y < 6", True),
    ("x + y < 3", "-x - y > -3", True),
    ("x + y < 3", "x + y > 3", False),
    ("x + y < 3", "x + y <= 3", False),
    ("[0,1) ∪ (1,2]", r"[0,2] \setminus \{1\}", True),
    ("x=2, y=3", "y=3, x=2", True),
    ("x=2, y=3", "x=3, y=2", False),
    ("y = 2x", "2x", True),
    ("y = 2x", "y - 2x = 0", True),
    ("y = 2x", "x = 2y", False),
    ("f(x) = 2x", "y = 2x", False),
    ("2:3", "4:6", True),
    ("2:3", "3:2", False),
    ("2:3", r"\frac{2}{3}", False),
    ("8:30 a.m.", "8:30", True),
    ("8:30 p.m.", "8:30", False),
    ("1010_2", "1010_2", True),
    ("1010_2", "10", False),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1, 2)", False),
    (r"2^{-80}", r"2^{-81}", False),
    (r"\frac{1}{1500!}", r"\frac{1}{1501!}", False),
    (r"\frac{1}{1500!}", r"\frac{1501}{1501!}", True),
    (r"\sqrt{2}", r"\sqrt{2}+10^{-60}", False),
    (r"\log_2 8", "3", True),
    (r"\sin 30^\circ", "0.5", True),
    (r"\sqrt[3]{-8}", "-2", True),
    ("(-8)^{1/3}", "-2", True),
    (r"\sqrt{x^2}", "|x|", True),
    (r"\sqrt{x^2}", "x", False),
    ("e^{i\\pi}", "-1", True),
    (r"x^2 + C", r"x^2", False),
    (r"\arctan x", r"\tan^{-1} x", True),
    (r"\tan^{-1} x", r"\frac{1}{\tan x}", False),
    (r"\int_0^1 x\,dx", r"\frac{1}{2}", True),
    (r"\sum_{n=1}^{4} n", "10", True),
    (r"\sum_{n=1}^{4} n", "9", False),
]


@pytest.mark.parametrize(("gold", "answer", "right"), RULES)
def test_rules(gold: Any, answer: str, right: bool) -> None:
    verdict = said(gold, rf"\boxed{{{answer}}}")
    assert verdict.verdict == ("right" if right else "wrong"), verdict


def test_a_unit_may_be_left_out_if_one_says_so() -> None:
    optional = Rules(unit="optional")
    assert verify(read_gold("6 cm"), r"\boxed{6}", optional).verdict == "right"
    assert verify(read_gold("6 cm"), r"\boxed{6\text{ m}}", optional).verdict == "wrong"
    assert verify(read_gold(r"35\%"), r"\boxed{35}", optional).verdict == "right"
    assert verify(read_gold(r"35\%"), r"\boxed{3500}", optional).verdict == "wrong"


def test_tolerance_is_relative() -> None:
    rules = Rules(tolerance=0.01)
    assert verify(read_gold("200"), r"\boxed{202}", rules).verdict == "right"
    assert verify(read_gold("200"), r"\boxed{202.1}", rules).verdict == "wrong"
    assert verify(read_gold("2^{-80}"), r"\boxed{2^{-81}}", rules).verdict == "wrong"
    assert verify(read_gold(r"\sqrt{2}"), r"\boxed{1.41}", rules).verdict == "right"
    assert verify(read_gold(r"\sqrt{2}"), r"\boxed{1.41}").verdict == "wrong"


numbers = st.fractions(max_denominator=10**6).filter(lambda value: abs(value) < 10**9)


@settings(deadline=None, max_examples=60)
@given(numbers, numbers)
def test_fractions_are_compared_exactly(gold: Fraction, answer: Fraction) -> None:
    def latex(value: Fraction) -> str:
        return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"

    plain = f"{answer.numerator}/{answer.denominator}"
    assert (said(latex(gold), rf"\boxed{{{plain}}}").verdict == "right") == (gold == answer)
    assert said(latex(gold), rf"\boxed{{{latex(gold)}}}").verdict == "right"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_a_set_is_the_same_in_any_order_and_a_tuple_is_not(items: list[int], random: Any) -> None:
    turned = list(items)
    random.shuffle(turned)
    inside, other = ", ".join(map(str, items)), ", ".join(map(str, turned))
    assert said(rf"\{{{inside}\}}", rf"\boxed{{\{{{other}\}}}}").verdict == "right"
    assert (said(f"({inside})", rf"\boxed{{({other})}}").verdict == "right") == (items == turned)


@pytest.mark.parametrize(
    ("text", "factor", "dimensions"),
    [
        ("km/h", Fraction(5, 18), (("m", 1), ("s", -1))),
        ("square inches", Fraction(254, 10000) ** 2, (("m", 2),)),
        ("cubic feet", Fraction(3048, 10000) ** 3, (("m", 3),)),
        ("m squared", Fraction(1), (("m", 2),)),
        ("L", Fraction(1, 1000), (("m", 3),)),
        ("dozen eggs", None, None),
        ("or more", None, None),
        ("percent", None, None),
        ("cm^0", None, None),
        ("", None, None),
    ],
)
def test_units(text: str, factor: Fraction | None, dimensions: Any) -> None:
    unit = unit_of(text)
    assert (None if unit is None else (unit.factor, unit.dimensions)) == (None if factor is None else (factor, dimensions))
