"""Answers and golds that were written to get paid without being right, or to break the reading."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.answers.cases_of import cases, paid, said
from toishi.answers import verifying
from toishi.answers.extracting import extract
from toishi.answers.reading import read_answer, read_gold
from toishi.answers.reasoning import visible, without_reasoning
from toishi.answers.things import words_of
from toishi.answers.tokens import Unreadable
from toishi.answers.verifying import Rules, check_gold, verify, verify_group
from toishi.errors import DataError

ATTACKS = cases("attacks")
REFUSED: list[Any] = [
    "x>3, y<5",
    "x < -2, x > 2",
    r"x<1 or x>3, x\ne 5",
    "x=1, y<2",
    r"\frac{dy}{dx}",
    "20 C",
    r"\frac{d^2y}{dx^2}",
    r"\|v\|",
    "H_2O",
    "FF_{16}",
    "1-5",
    "2.5(3)",
    "2.[3]",
    "2.{3}",
    "The answer is 5",
    r"\infty+1",
    r"\sum_{k=1}^3 k \text{ million}",
    "nan",
    "NaN",
    "None",
    "null",
    [None],
    [float("nan")],
    ["a", None],
    [{"a": 1}],
    "\x00",
    "\ud800",
    10**5000,
]
NOT_FIVE_BUT_WORDS = [
    "tens",
    "tenths",
    "sixths",
    "pairs",
    "score",
    "gross",
    "doubled",
    "lakh",
    "quadrillion",
    "googol",
    "negative",
    "inverse",
    "oder",
    "bis",
    "false",
    "because",
]


@pytest.mark.parametrize("kind", sorted({case["why"] for case in ATTACKS}))
def test_reported_attacks(kind: str) -> None:
    wrong = [case for case in ATTACKS if case["why"] == kind and (paid(case["gold"], case["completion"]) == 1) != case["right"]]
    assert not wrong


@pytest.mark.parametrize("raw", REFUSED, ids=lambda raw: ascii(raw)[:20] if not isinstance(raw, int) else "long")
def test_golds_that_could_be_meant_in_two_ways_are_refused(raw: Any) -> None:
    with pytest.raises(DataError, match="the gold"):
        read_gold(raw)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("0.(3)", "1/3"),
        ("2.(3)", "7/3"),
        (r"0.\bar3", "1/3"),
        ("5 hundreds", "500"),
        ("1 box", "1 box"),
        ("3-5 days", "3-5 days"),
        ("dy/dx", "dy/dx"),
        ("5 because", "5 because"),
        ("(x, y) = (4, 5)", "(x = 4, y = 5)"),
        ("a:b", "a:b"),
    ],
)
def test_golds_that_were_misread(raw: str, shown: str) -> None:
    gold = read_gold(raw)
    assert gold.shown == shown
    assert check_gold(gold) is None


@pytest.mark.parametrize("raw", ["2^{20000}", "1e-9999", "10^{-5000}"])
def test_numbers_of_more_digits_than_python_writes_are_compared(raw: str) -> None:
    gold = read_gold(raw)
    assert check_gold(gold) is None
    assert [verify(gold, rf"\boxed{{{text}}}").verdict for text in (raw, "0", "1")] == ["right", "wrong", "wrong"]


def test_one_answer_does_not_fail_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gold = read_gold("3x-y+4=0")
    poison = [r"\boxed{\gcd(10^{5000},3^{9000}) cm}", r"\boxed{x=1e9999}", "\\boxed{\ud800}"]
    verdicts = verify_group(gold, [r"\boxed{y=3x+4}", *poison, r"\boxed{y=2}"])
    assert (verdicts[0].verdict, verdicts[-1].verdict) == ("right", "wrong")
    assert all(verdict.verdict in ("wrong", "undecided") for verdict in verdicts[1:-1])

    def read(text: str, gold: Any, **rest: Any) -> Any:
        if text == "7":
            raise OverflowError("made up")
        return read_answer(text, gold, **rest)

    monkeypatch.setattr(verifying, "read_answer", read)
    five = verify_group(read_gold("55"), [r"\boxed{55}", r"\boxed{7}", r"\boxed{54}"])
    assert [verdict.verdict for verdict in five] == ["right", "undecided", "wrong"]
    assert "OverflowError: made up" in five[1].reason


@pytest.mark.parametrize("text", ["\\boxed{5}" * 80_000, "\\boxed}" * 80_000, "\\boxed" + " " * 600_000, "\\boxed{" * 80_000])
def test_many_boxes_take_no_time(text: str) -> None:
    started = time.process_time()
    extract(text)
    assert time.process_time() - started < 1.5


@pytest.mark.parametrize("word", NOT_FIVE_BUT_WORDS)
def test_a_word_that_nobody_knows_is_not_read_over(word: str) -> None:
    assert paid("5", rf"\boxed{{5\text{{ {word}}}}}") == 0


def test_the_words_of_the_question_may_stand_behind_a_number() -> None:
    gold, answer = read_gold("5"), r"\boxed{5\text{ red gizmos}}"
    assert verify(gold, answer).verdict == "wrong"
    assert verify(gold, answer, Rules(things=words_of("How many red gizmos are there?"))).verdict == "right"
    tenths = Rules(things=words_of("How many tenths? Is it wrong?"))
    assert verify(gold, r"\boxed{5\text{ tenths}}", tenths).verdict == "wrong"
    assert verify(read_gold("5 gizmos"), r"\boxed{5 gizmo}").verdict == "right"


def test_a_set_within_a_tolerance_has_as_many_values() -> None:
    rules = Rules(tolerance=0.01)
    gold = read_gold(r"\{100, 101\}")
    assert verify(gold, r"\boxed{\{100\}}", rules).verdict == "wrong"
    assert verify(gold, r"\boxed{\{101, 100\}}", rules).verdict == "right"


@pytest.mark.parametrize(("gold", "answer"), [("'s", "s"), ("_x", "x"), ("!x", "x"), ("*p", "p"), (".5", "5"), ("5!", "5")])
def test_marks_of_a_text_are_part_of_it(gold: str, answer: str) -> None:
    text = read_gold(gold, "text")
    assert verify(text, rf"\boxed{{{answer}}}").verdict == "wrong"
    assert verify(text, rf"\boxed{{{gold}}}").verdict == "right"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think >a</think > b", " b"),
        ("[THINK]a[/THINK]b", "b"),
        ("◁think▷a◁/think▷b", "b"),
        ("<seed:think>a</seed:think>b", "b"),
        ("<|begin_of_thought|>a<|end_of_thought|>b", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", "b"),
        ("<|channel|>analysis<|message|>a", ""),
        ("<scratchpad>a</scratchpad>b", "b"),
        ("a<think>b</think>", "a"),
        ("<think><think>a</think>b", "b"),
        ("a<|end|>", "a"),
    ],
)
def test_reasoning_in_all_its_marks(text: str, left: str) -> None:
    assert without_reasoning(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a <!-- b --> c", "a  c"),
        ("a <!-- b", "a "),
        (r"\iffalse a \fi b", " b"),
        ("% a\nb", "\nb"),
        ("it is % a\nb", "it is \nb"),
        ("50% of 5", "50% of 5"),
        ("50 % of 5", "50 % of 5"),
        (r"5\% off", r"5\% off"),
    ],
)
def test_comments_are_not_seen(text: str, left: str) -> None:
    assert visible(text) == left


def test_units_keep_their_case() -> None:
    assert said("5 MHz", r"\boxed{5000 kHz}").verdict == "right"
    for gold, answer in (("5 MHz", "5 mHz"), ("5 MPa", "5 mPa"), ("5 mM", "5 Mm"), ("2 pounds", "£2"), ("5 zz", "5 ZZ")):
        assert said(gold, rf"\boxed{{{answer}}}").verdict == "wrong", gold


def test_symbols_that_are_no_formula_are_not_read() -> None:
    gold = read_gold("6")
    for behind in (r"\text{ not}", r"^\circ", r"\quad 1", r"\text{?}"):
        with pytest.raises(Unreadable):
            read_answer(rf"\sum_{{k=1}}^3 k {behind}", gold)
