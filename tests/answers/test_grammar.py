"""Formulas: what is read, worked out and shown. Expected values by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from toishi.answers.exact import canonical, shown, value_of
from toishi.answers.grammar import Node, parse_formula
from toishi.answers.tidy import tidied
from toishi.answers.tokens import TooLarge, Unreadable, tokens_of


def parsed(text: str) -> Node:
    return parse_formula(tokens_of(tidied(text)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+3", Fraction(3)),
        ("2*-3", Fraction(-6)),
        ("6/-3", Fraction(-2)),
        ("1/2/2", Fraction(1, 4)),
        ("2^{3}!", Fraction(40320)),
        ("3!!", Fraction(720)),
        ("(-1)^{10^{9}}", Fraction(1)),
        ("(-1)^{10^{9}+1}", Fraction(-1)),
        ("2^{-3}", Fraction(1, 8)),
        ("8^{2/3}", Fraction(4)),
        (r"\sqrt[3]{\frac{8}{27}}", Fraction(2, 3)),
        (r"\sqrt9", Fraction(3)),
        ("√16", Fraction(4)),
        (r"\frac12", Fraction(1, 2)),
        (r"\frac{1}{2}3", None),
        ("3 1/2", Fraction(7, 2)),
        ("3½", Fraction(7, 2)),
        (r"-2\frac{1}{3}", Fraction(-7, 3)),
        (r"|{-3}|", Fraction(3)),
        (r"\lvert -3 \rvert", Fraction(3)),
        (r"\lfloor -1.5 \rfloor", Fraction(-2)),
        (r"\lceil 1.2 \rceil", Fraction(2)),
        (r"\max(1, 5, 2)", Fraction(5)),
        (r"\min(4, 2)", Fraction(2)),
        (r"\gcd(12, 18)", Fraction(6)),
        ("lcm(4, 6)", Fraction(12)),
        (r"\binom{6}{2}", Fraction(15)),
        (r"1.5 \times 10^{-3}", Fraction(3, 2000)),
        ("3 x 10^2", Fraction(300)),
        (".5", Fraction(1, 2)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        ("1.2e-3", Fraction(3, 2500)),
        ("２³", Fraction(8)),
        ("0*x", Fraction(0)),
    ],
)
def test_values(text: str, value: Fraction | None) -> None:
    if value is None:
        with pytest.raises(Unreadable):
            parsed(text)
    else:
        assert value_of(parsed(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{1}{0}",
        "0^0",
        "0^{-1}",
        "(-3)!",
        "1.5!",
        r"\sqrt[0]{2}",
        "2^3^2",
        "|3",
        "f(",
        r"\log",
        r"\sin_2 3",
        "x_",
        r"90^\circ + 1",
        r"\frac{10}",
        r"\lfloor 2",
        "3.5\\frac12",
        "2 3",
        "--3",
        "()",
    ],
)
def test_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        canonical(parsed(text))


@pytest.mark.parametrize("text", ["2^{10^6}", "5001!", "(2^{60000})(2^{60000})", "(" * 70 + "1" + ")" * 70])
def test_too_large(text: str) -> None:
    with pytest.raises(TooLarge):
        canonical(parsed(text))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("x - 1/3", "x - 1/3"),
        ("-x^2", "-x^2"),
        ("1/(2x)", "1/(2*x)"),
        (r"\frac{a}{b^2}", "a/b^2"),
        (r"x^{a+b}", "x^(a + b)"),
        (r"\sin^{-1} x", "arcsin(x)"),
        (r"\sin^2 2x", "sin(2*x)^2"),
        (r"\sin x \cos y", "cos(y)*sin(x)"),
        (r"f'(x)", "f'(x)"),
        ("n!", "n!"),
        ("(n+1)!", "(1 + n)!"),
        (r"\vec{u}", "vec u"),
        (r"\angle ABC", "angle ABC"),
        (r"x_{12}", "x_12"),
        (r"\theta", "theta"),
        ("x'", "x'"),
    ],
)
def test_shown(text: str, plain: str) -> None:
    assert shown(canonical(parsed(text))) == plain


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2ab", "ba*2"),
        ("a-b", "-b+a"),
        (r"\frac{x}{2}", "0.5x"),
        ("(x^2)^3", "x^6"),
        (r"\frac{1}{x^2}", "x^{-2}"),
        ("x+x", "x+x"),
    ],
)
def test_one_form(first: str, second: str) -> None:
    assert canonical(parsed(first)) == canonical(parsed(second))


def test_a_root_of_a_square_is_kept() -> None:
    assert canonical(parsed(r"\sqrt{x^2}")) != canonical(parsed("x"))
    assert canonical(parsed(r"(x^2)^{1/2}")) != canonical(parsed("x"))
