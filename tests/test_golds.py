"""How golds were read, counted by hand."""

from __future__ import annotations

from toishi.golds import readings
from toishi.rewards.format import FormatReward
from toishi.rewards.math import MathReward
from toishi.rewards.number import NumberReward
from toishi.types import Prompt


def rows(*golds: object) -> list[Prompt]:
    return [Prompt(id=f"row {number}", text="?", gold=gold) for number, gold in enumerate(golds, start=1)]


def test_types_are_counted_with_their_first_gold_and_the_odd_ones_are_listed() -> None:
    golds = [*range(30), *(r"\frac{1}{2} x" for _ in range(10)), "C", "3:30"]
    (found,) = readings([MathReward(), FormatReward(tags=("answer",))], rows(*golds))
    assert found.reward == "math"
    assert [(first.type, first.row, count) for first, count in found.types] == [
        ("number", "row 1", 30),
        ("expression", "row 31", 10),
        ("choice", "row 41", 1),
        ("time", "row 42", 1),
    ]
    assert [(gold.row, gold.raw, gold.shown) for gold in found.odd] == [("row 41", "'C'", "C"), ("row 42", "'3:30'", "03:30")]
    assert found.num_odd == 2


def test_at_most_five_odd_ones_are_listed_and_all_are_counted() -> None:
    (found,) = readings([MathReward()], rows(*range(200), *["C"] * 8))
    assert (len(found.odd), found.num_odd) == (5, 8)


def test_a_column_of_its_own_and_unreadable_golds() -> None:
    prompts = [
        Prompt(id="a", text="?", gold="x", columns={"right": "1,234"}),
        Prompt(id="b", text="?", columns={"right": "no"}),
    ]
    (found,) = readings([NumberReward(gold_column="right")], prompts)
    assert [(first.raw, first.type, first.shown, count) for first, count in found.types] == [("'1,234'", "number", "1234", 1)]
    assert readings([FormatReward(tags=("answer",))], prompts) == ()
