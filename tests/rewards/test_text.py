"""The reward `text`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.rewards import check_prompts
from toishi.rewards.text import TextReward

EXACT = TextReward(where="whole", normalise=False)


@pytest.mark.parametrize(
    ("text", "gold", "value"),
    [
        ("Yes", "Yes", 1.0),
        ("  Yes\n", "Yes", 1.0),
        ("yes", "Yes", 0.0),
        ("Yes.", "Yes", 0.0),
        ("Yes No", "Yes", 0.0),
        ("", "Yes", 0.0),
        (".", "Yes", 0.0),
        ("Is it Yes?", "Yes", 0.0),
        ("cafe\u0301", "café", 1.0),
        ("7", 7, 1.0),
        ("７", 7, 0.0),
        ("1.5", 1.5, 1.0),
        ("nil", "NiL", 0.0),
    ],
)
def test_letter_by_letter(text: str, gold: Any, value: float) -> None:
    assert judge(EXACT, text, asked(gold=gold)).value == value


@pytest.mark.parametrize(
    ("text", "gold", "value"),
    [
        ("yes.", "Yes", 1.0),
        ("STRASSE", "Straße", 1.0),
        ("Nile", "the Nile", 1.0),
        ("A dog", "dog", 1.0),
        ('"blue  whale"', "Blue whale", 1.0),
        (r"\boxed{\text{Blue whale}}", "blue whale", 1.0),
        ("The answer is the Nile.", "Nile", 1.0),
        ("<think>Congo</think>Nile", "Nile", 1.0),
        ("**Nile**", "Nile", 1.0),
        ("Nile or Congo", "Nile", 0.0),
        ("not the Nile", "Nile", 0.0),
        ("Nil", "Nile", 0.0),
        ("７", 7, 1.0),
        ("", "Nile", 0.0),
        ("...", "Nile", 0.0),
    ],
)
def test_normalised(text: str, gold: Any, value: float) -> None:
    assert judge(TextReward(), text, asked(gold=gold)).value == value


def test_other_spellings_are_right_too() -> None:
    reward = TextReward(aliases_column="also")
    prompt = asked(gold=["USA", "United States"], columns={"also": ["America"]})
    assert [judge(reward, text, prompt).value for text in ("usa", "The United States.", "America", "Canada")] == [1, 1, 1, 0]
    assert reward.columns == ("also",)
    assert judge(reward, "b", asked(gold="a", columns={"also": "b"})).value == 1.0


def test_where_the_text_may_stand() -> None:
    prompt = asked(gold="Nile")
    assert judge(TextReward(where="box"), "Nile", prompt).value == 0.0
    assert judge(TextReward(where="box"), r"\boxed{Nile}", prompt).value == 1.0
    assert judge(TextReward(where="whole"), r"The answer is Nile.", prompt).value == 0.0


def test_cut_off_and_unreadable() -> None:
    cut = judge(TextReward(), "Yes", asked(gold="Yes"), "length")
    assert (cut.value, cut.readable, cut.reason) == (0.0, False, "cut off at the token limit")
    assert judge(TextReward(require_stop=False), "Yes", asked(gold="Yes"), "length").value == 1.0
    assert judge(TextReward(), "one\ntwo", asked(gold="Yes")).readable is False


@pytest.mark.parametrize("gold", [None, "", "  ", True, [], ["Yes", ""], {"a": 1}, "..."])
def test_golds_that_are_not_text_are_refused(gold: Any) -> None:
    assert TextReward().problem(asked(gold=gold)) is not None
    judgement = judge(TextReward(), "Yes", asked(gold=gold))
    assert (judgement.status, judgement.value) == ("failed", None)


def test_the_named_column_is_read_and_long_answers_are_shortened() -> None:
    reward = TextReward(gold_column="label", where="whole")
    check_prompts([reward], [asked(columns={"label": "x"})])
    judgement = judge(reward, "y" * 100, asked(columns={"label": "x"}))
    assert (reward.columns, judgement.reason) == (("label",), f"read {'y' * 77 + '...'!r}, gold 'x'")
    assert TextReward().columns == ()


@pytest.mark.parametrize("gold", [float("nan"), "nan", [None], ["a", float("inf")], "\x00", "\ud800"])
def test_golds_that_stand_for_nothing_are_refused(gold: Any) -> None:
    problem = TextReward().problem(asked("Which?", gold=gold))
    assert problem is not None
    assert "gold" in problem


def test_a_line_of_the_question_may_be_the_answer() -> None:
    prompt = asked("When?\nJuly 4, 1776\nMay 5, 1800", gold="July 4, 1776")
    assert judge(TextReward(), "July 4, 1776", prompt).value == 1.0
