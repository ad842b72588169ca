"""Golds, completions and whether they are right: reported failures of other checkers, and pairs of our own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.answers.cases_of import cases, paid
from toishi.answers.reading import read_gold
from toishi.answers.verifying import check_gold

REPORTED = cases("answers")
PAIRS = cases("pairs")
TYPES = sorted({pair["type"] for pair in PAIRS})

# Each was paid the other way round, or not read at all, by a checker in wide use.
SILENT: list[tuple[Any, str, int]] = [
    (r"7\sqrt{3}", r"\boxed{7\sqrt{3}}", 1),
    (r"7\sqrt{3}", r"\boxed{7}", 0),
    (r"1.5\times10^{3}", r"\boxed{1500}", 1),
    (r"1.5\times10^{3}", r"\boxed{1.5}", 0),
    ("3x-y+4=0", r"\boxed{3x+y+4=0}", 0),
    (r"\pm 5", r"\boxed{5}", 0),
    (r"\{2, 7\}", r"\boxed{7}", 0),
    (r"2 \text{ and } 7", r"\boxed{7}", 0),
    (r"2 \text{ and } 7", r"\boxed{7, 2}", 1),
    ("08:30", r"\boxed{8}", 0),
    ("08:30", r"\boxed{8:30}", 1),
    ("512", r"\boxed{12 500}", 0),
    ("512", r"\boxed{12\,500}", 0),
    ("12500", r"\boxed{12 500}", 1),
    ("6 cm", r"\boxed{6\text{ m}}", 0),
    ("$2^{-80}$", r"\boxed{2^{-81}}", 0),
    ("5", r"First \boxed{4}; wrong, so \boxed{5}.", 1),
    (r"$\{4,5\}$", r"First \boxed{4}; wrong, so \boxed{5}.", 0),
    ("No", r"\boxed{\text{No}}", 1),
    ("No", r"\boxed{\text{Yes}}", 0),
    ("C", r"\boxed{\text{C}}", 1),
    ("x+2", r"\boxed{2+x}", 1),
    ("x+2", r"\boxed{x}", 0),
    ("5", "The answer is 5.", 1),
    ("5", "**5**", 1),
    ("5", r"\fbox{5}", 1),
    ("(2,7)", r"\boxed{(7,2)}", 0),
    ("[2,7)", r"\boxed{(2,7)}", 0),
    ("28%", r"\boxed{28\%}", 1),
    (r"35\%", r"\boxed{0.35}", 1),
    ("73", "**73**", 1),
    ("13", r"\boxed{\text{13}}", 1),
    (r"1-\frac1e", r"\boxed{1+\frac{1}{e}}", 0),
    (r"-2\pi", r"\boxed{-2*pi}", 1),
    (r"e^{16}", r"\boxed{exp(16)}", 1),
]


@pytest.mark.parametrize("case", REPORTED, ids=[case["kind"] for case in REPORTED])
def test_reported_cases(case: dict[str, Any]) -> None:
    assert paid(case["gold"], case["completion"]) == case["right"]


@pytest.mark.parametrize(("gold", "completion", "right"), SILENT)
def test_what_fails_silently_elsewhere(gold: Any, completion: str, right: int) -> None:
    assert paid(gold, completion) == right


@pytest.mark.parametrize("type_", TYPES)
def test_no_wrong_pair_is_paid_and_nearly_all_right_ones_are(type_: str) -> None:
    pairs = [pair for pair in PAIRS if pair["type"] == type_]
    values = [paid(pair["gold"], pair["completion"]) for pair in pairs]
    wrong_paid = [pair for pair, value in zip(pairs, values, strict=True) if value == 1.0 and not pair["right"]]
    assert not wrong_paid
    unpaid = [pair for pair, value in zip(pairs, values, strict=True) if value != 1.0 and pair["right"]]
    assert len(unpaid) <= 0.03 * sum(pair["right"] for pair in pairs), unpaid
    assert all(value is not None for value in values)


def test_the_pairs_are_many_balanced_and_all_different() -> None:
    assert len(PAIRS) >= 300
    assert len({(str(pair["gold"]), pair["completion"]) for pair in PAIRS}) == len(PAIRS)
    assert not {case["completion"] for case in REPORTED} & {pair["completion"] for pair in PAIRS} - {""}
    counts = Counter((pair["type"], pair["right"]) for pair in PAIRS)
    for type_ in TYPES:
        assert counts[type_, 0] >= 10
        assert counts[type_, 1] >= 10
    assert sum(pair["held_out"] for pair in PAIRS) >= 60
    assert all(pair["why"] for pair in PAIRS)


@pytest.mark.parametrize("name", ["hard", "unseen"])
def test_pairs_that_were_written_later(name: str) -> None:
    wrong = [pair for pair in cases(name) if paid(pair["gold"], pair["completion"]) != pair["right"]]
    assert not wrong


def test_every_gold_is_right_as_its_own_answer() -> None:
    for pair in PAIRS:
        assert check_gold(read_gold(pair["gold"])) is None, pair["gold"]


def test_the_gold_of_another_row_is_not_paid() -> None:
    golds = [r"7\sqrt{3}", r"\pm 5", "08:30", "{2,7}", "x+2", "No", "C", "6 cm", "35%", "(2, 7)", "[2, 7)", "y = 2x", "12500"]
    for gold in golds:
        for other in golds:
            assert paid(gold, rf"So it is \boxed{{{other}}}") == float(gold == other), (gold, other)
