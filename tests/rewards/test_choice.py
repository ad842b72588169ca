"""The reward `choice`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.rewards.choice import ChoiceReward


@pytest.mark.parametrize(
    ("text", "gold", "value"),
    [
        ("C", "C", 1.0),
        ("(C)", "C", 1.0),
        ("c", "C", 1.0),
        (r"\boxed{\text{C}}", "(C)", 1.0),
        (r"\boxed{C. Paris}", "C", 1.0),
        ("<think>B?</think>The answer is C: Paris.", "C", 1.0),
        ("The answer is option C.", "C", 1.0),
        ("B", "C", 0.0),
        ("B or C", "C", 0.0),
        ("B and C", "C", 0.0),
        ("(B) (C)", "C", 0.0),
        ("ABCD", "C", 0.0),
        ("Cats", "C", 0.0),
        ("", "C", 0.0),
        ("I cannot say.\nSorry.", "C", 0.0),
        ("A fine day", "A", 0.0),
    ],
)
def test_choice(text: str, gold: str, value: float) -> None:
    assert judge(ChoiceReward(), text, asked("Which?", gold=gold)).value == value


def test_letters_beyond_the_choices_are_no_answer() -> None:
    four = ChoiceReward(options=4)
    assert judge(four, "E", asked(gold="C")).readable is False
    assert judge(four, "D", asked(gold="C")).readable is True
    assert four.problem(asked(gold="E")) == "the gold is E, but there are 4 choices (A to D)"


def test_a_column_says_which_choices_a_row_has() -> None:
    reward = ChoiceReward(options_column="choices", gold_column="label")
    assert reward.columns == ("label", "choices")
    prompt = asked(columns={"choices": ["Rome", "Paris", "Bonn"], "label": "Paris"})
    assert reward.problem(prompt) is None
    assert judge(reward, "The answer is (B).", prompt).value == 1.0
    assert judge(reward, "A", prompt).value == 0.0
    assert judge(reward, "D", prompt).readable is False
    assert judge(reward, "B", asked(columns={"choices": 3, "label": "B"})).value == 1.0


@pytest.mark.parametrize(
    ("gold", "choices", "message"),
    [
        ("Paris", ["Rome", "Bonn"], "not one choice letter"),
        ("C", ["Rome", "Bonn"], "there are 2 choices"),
        ("A", ["Rome"], "2 to 26 choices"),
        ("A", None, "2 to 26 choices"),
        ("A", True, "2 to 26 choices"),
        (None, 4, "the row has no gold"),
        (3, 4, "not one choice letter"),
    ],
)
def test_rows_that_cannot_be_used(gold: Any, choices: Any, message: str) -> None:
    reward = ChoiceReward(options_column="choices")
    prompt = asked(gold=gold, columns={"choices": choices})
    assert message in (reward.problem(prompt) or "")
    assert judge(reward, "A", prompt).status == "failed"


def test_a_cut_off_answer_is_not_right() -> None:
    assert judge(ChoiceReward(), "C", asked(gold="C"), "length").value == 0.0
    assert judge(ChoiceReward(require_stop=False), "C", asked(gold="C"), "length").value == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\boxed{(B) 15 km}", 1.0),
        ("The answer is (B) 15 km", 1.0),
        ("B) 15 km", 1.0),
        (r"\boxed{B, Paris}", 1.0),
        ("The correct option is B.", 1.0),
        (r"\boxed{B. D}", 0.0),
        (r"\boxed{B. not}", 0.0),
        (r"\boxed{(B) is wrong}", 0.0),
        (r"\boxed{B. A-D}", 0.0),
        ("The answer is B. No, D.", 0.0),
        ("The answer is B. D is also possible.", 0.0),
        ("I don't think the answer is B", 0.0),
    ],
)
def test_one_letter_that_is_not_taken_back(text: str, value: float) -> None:
    question = "How far?\n(A) 12 km\n(B) 15 km\n(C) 1 km\n(D) 2 km"
    assert judge(ChoiceReward(options=4), text, asked(question, gold="B")).value == value
