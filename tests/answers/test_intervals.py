"""Unions, differences and inequalities: expected values by hand."""

from __future__ import annotations

import pytest

from toishi.answers.reading import read_gold
from toishi.errors import DataError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"[0,2]\cup[2,5]", "[0, 5]"),
        (r"[0,2)\cup(2,5]", "[0, 2) ∪ (2, 5]"),
        (r"[0,2)\cup[2,5]", "[0, 5]"),
        (r"[3,5]\cup[0,4]", "[0, 5]"),
        (r"[0,9]\cup[1,2]", "[0, 9]"),
        (r"(0,1)\cup\{1\}", "(0, 1]"),
        (r"\{1\}\cup\{2\}", "{1, 2}"),
        (r"(1,2)\cup(3,4)", "(1, 2) ∪ (3, 4)"),
        (r"(a,b)\cup(c,d)", "(a, b) ∪ (c, d)"),
        (r"\mathbb{R}\setminus\{0\}", "(-oo, 0) ∪ (0, oo)"),
        (r"\mathbb{R}\setminus\{a\}", "(-oo, a) ∪ (a, oo)"),
        (r"[0,4]\setminus\{0,2,9\}", "(0, 2) ∪ (2, 4]"),
        (r"x \ne 1", "(-oo, 1) ∪ (1, oo)"),
        (r"x > 1 \text{ and } x \le 3", "(1, 3]"),
        (r"x \ge 1 \text{ and } x \le 1", "[1, 1]"),
        (r"x < 1 \text{ or } x > 3", "(-oo, 1) ∪ (3, oo)"),
        (r"1 \ge x > -2", "(-2, 1]"),
        (r"3 \le x", "[3, oo)"),
        (r"x \in (0, 1) \cup (2, 3)", "(0, 1) ∪ (2, 3)"),
        (r"\mathbb{R}", "(-oo, oo)"),
    ],
)
def test_intervals_are_read(text: str, shown: str) -> None:
    gold = read_gold(text)
    assert gold.shown == shown


@pytest.mark.parametrize(
    "text",
    [
        "[5, 2]",
        "x > 1, x < 5",
        "x < -2, x > 2",
        r"x < 1 \text{ or } x > 3, x \ne 5",
        r"x > 1 \text{ and } y < 2",
        "x = 1, y < 2",
        r"6 \in (5, 7)",
        r"x \not\in [2,7)",
        r"\{x : y > 3\}",
        r"[-\infty, 2]",
        r"1 < x > 0",
        r"1 < x+y < 3",
        r"x \ne y",
        r"(1,2,3) \cup (4,5)",
        r"[0,1] \setminus (2,3)",
        r"(a,b) \setminus \{c\}",
        r"\begin{pmatrix} 1 & 2 \\ 3 \end{pmatrix}",
        r"x \in",
        r"\{1, 2)",
        r"[1, 2\}",
    ],
)
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        read_gold(text)
