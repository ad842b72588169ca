"""The reward `number`, with the answers that try to get paid without being right."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import pytest

from tests.rewards.judging import asked, judge
from toishi.config import RewardConfig
from toishi.errors import ConfigError, DataError
from toishi.rewards import build_rewards, check_prompts
from toishi.rewards.number import NumberReward
from toishi.rewards.reading import read_gold, read_numbers
from toishi.types import Prompt

TWELVE = asked("What is 5 + 7?", gold=12)

RIGHT = ["12", "5 + 7 = 12", "It is 12.", "The sum is **12**.", "１２", "12.0", "+12", "$12", "12 apples"]
WRONG = [
    ("", "no number found, gold 12", False),
    (":", "no number found, gold 12", False),
    ("...!?", "no number found, gold 12", False),
    ("二", "no number found, gold 12", False),
    ("twelve", "no number found, gold 12", False),
    ("NaN", "no number found, gold 12", False),
    ("the answer is correct", "no number found, gold 12", False),
    ("1e309", "read 100000000000...(310 digits), gold 12", True),
    ("1e999999999", "could not read '1e999999999' as one number, gold 12", False),
    ("-12", "read -12, gold 12", True),
    ("12, no, 13", "read 13, gold 12", True),
    ("12 or 13", "read 13, gold 12", True),
    ("11,12", "could not read '11,12' as one number, gold 12", False),
    (" ".join(map(str, range(1, 41))), "could not read '40' as one number, gold 12", False),
    ("What is 5 + 7?", "no number found, gold 12", False),
    ("5 + 7", "could not read '7' as one number, gold 12", False),
    ("x12", "no number found, gold 12", False),
    ("1/12", "read 1/12, gold 12", True),
    ("2^12", "could not read '2^12' as one number, gold 12", False),
    ("700 012", "read 700012, gold 12", True),
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_answers_are_paid(text: str) -> None:
    judgement = judge(NumberReward(), text, TWELVE)
    assert (judgement.value, judgement.readable) == (1.0, True)


@pytest.mark.parametrize(("text", "reason", "readable"), WRONG)
def test_wrong_answers_are_not(text: str, reason: str, readable: bool) -> None:
    judgement = judge(NumberReward(), text, TWELVE)
    assert (judgement.value, judgement.reason, judgement.readable) == (0.0, reason, readable)


def test_repeating_a_question_that_ends_with_its_answer_is_not_paid() -> None:
    prompt = asked("What is 10 - 5? Answer with just the number.", gold=5)
    assert judge(NumberReward(), "What is 10 - 5?", prompt).value == 0.0
    assert judge(NumberReward(), "What is 10 - 5? 5", prompt).value == 1.0
    assert judge(NumberReward(), "10 - 5 = 5", prompt).value == 1.0


def test_a_cut_off_answer_is_not_right_unless_asked_for() -> None:
    cut = judge(NumberReward(), "It is 12", TWELVE, "length")
    assert (cut.value, cut.reason, cut.readable) == (0.0, "cut off at the token limit", False)
    assert judge(NumberReward(require_stop=False), "It is 12", TWELVE, "length").value == 1.0


@pytest.mark.parametrize(
    ("where", "text", "value"),
    [
        ("last", "5 + 7 = 12", 1.0),
        ("only", "5 + 7 = 12", 0.0),
        ("only", "It is 12.", 1.0),
        ("whole", "It is 12.", 0.0),
        ("whole", " 12. ", 1.0),
        ("whole", "", 0.0),
        ("only", "12 13", 0.0),
    ],
)
def test_where_the_number_is_looked_for(where: Literal["last", "only", "whole"], text: str, value: float) -> None:
    assert judge(NumberReward(where=where), text, TWELVE).value == value


def test_tolerance_is_absolute_and_inclusive() -> None:
    reward = NumberReward(tolerance=0.1)
    golds = [judge(reward, text, asked(gold=0.3)).value for text in ("0.4", "0.2", "0.41", "0.19")]
    assert golds == [1.0, 1.0, 0.0, 0.0]


def test_another_column_can_be_the_gold() -> None:
    prompt = asked(gold=1, columns={"total": "12"})
    (reward,) = build_rewards([RewardConfig(name="number", gold_column="total")], columns=frozenset({"total"}))  # type: ignore[call-arg]
    assert (reward.columns, judge(reward, "12", prompt).value) == (("total",), 1.0)


@pytest.mark.parametrize("gold", [None, "x+2", [12], True])
def test_an_unreadable_gold_is_a_failure_and_never_a_number(gold: Any) -> None:
    judgement = judge(NumberReward(), "12", asked(gold=gold))
    assert (judgement.status, judgement.value) == ("failed", None)


def test_unreadable_golds_are_listed_before_the_start() -> None:
    golds = ["7\\sqrt{3}", "\\pm 5", "08:30", "{2,7}", "x+2", "No", "", 12, 1.5, "12"]
    prompts = [Prompt(id=f"row {number}", text="?", gold=gold) for number, gold in enumerate(golds, start=1)]
    with pytest.raises(DataError) as caught:
        check_prompts([NumberReward()], prompts)
    lines = str(caught.value).splitlines()
    assert lines[0] == "7 prompts cannot be scored:"
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [f"row {number}" for number in range(1, 8)]
    check_prompts([NumberReward()], prompts[7:])


def test_a_long_list_of_unreadable_golds_is_cut_with_a_count() -> None:
    with pytest.raises(DataError, match=r"\.\.\. and 5 more"):
        check_prompts([NumberReward()], [Prompt(id=str(number), text="?", gold="x") for number in range(25)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerence": 1}, r"reward 'number'\.tolerence: unknown option; did you mean 'tolerance'\?"),
        ({"tolerance": -1}, r"reward 'number'\.tolerance: .*greater than or equal to 0, got -1"),
        ({"where": "first"}, r"reward 'number'\.where: .*'last', 'only' or 'whole', got 'first'"),
        ({"require_stop": "yes"}, r"reward 'number'\.require_stop: .*boolean, got 'yes'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_rewards([RewardConfig(name="number", **options)], columns=frozenset())


@pytest.mark.parametrize("text", ["1_000", "12_345.6", "1_000_000.", "0x1F", "0XFF", "0b101", "0o17", "it is 0x1F."])
def test_numbers_of_programs_are_unreadable_and_not_read_by_half(text: str) -> None:
    (reading,) = read_numbers(text)
    assert reading.value is None
    for gold in (0, 1, 12, 1000, 31):
        assert judge(NumberReward(), text, asked(gold=gold)).value == 0.0


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("0 x 5 = 0", 0), ("10x", 10), ("0bytes", 0), ("5_", 5), ("0 apples", 0)]
)
def test_a_unit_after_a_number_is_still_a_unit(text: str, value: int) -> None:
    assert read_numbers(text)[-1].value == value


@pytest.mark.parametrize(
    ("gold", "value"),
    [(Decimal("1.50"), Fraction(3, 2)), (Decimal("1E+3"), Fraction(1000)), (Decimal("-0.1"), Fraction(-1, 10))],
)
def test_a_decimal_is_a_gold(gold: Decimal, value: Fraction) -> None:
    assert read_gold(gold) == value
    assert isinstance(read_gold(Decimal("NaN")), str)
    assert isinstance(read_gold(Decimal("Infinity")), str)


PARTS = [
    *(
        "minus 5 apples - 5",
        r"\sqrt{5}",
        r"\frac{1}{5}x",
        "1 / 5",
        "3/ 5",
        "3 /5",
        "3÷5",
        "2^ 5",
        "2^{ 5}",
        "2** 5",
        "2**5",
        "log(5)",
    ),
    *(
        "5×10³",
        "5·10^3",
        "5²",
        "5⁻¹",
        "5½",
        "5!",
        "5^",
        "5i",
        "5e",
        "5k",
        "5K",
        "5M",
        "5 million",
        "5 tenths",
        "5 dozen",
        "5ths",
    ),
    *(
        "6–5",
        "6-5",
        "3 1/5",
        "⅓ 5",
        "- 5",
        "-(5)",
        "-{5}",
        "-**5**",
        r"-\text{5}",
        "-US$5",
        "-\n5",
        r"-\$5",
        "negative 5",
        "minus 5",
    ),
    *("It is not 5", "1·5", "1'5", "٣٫٥", "10E 5", "6 5", r"6\cdot 5", r"\boxed{6} (step 5)", r"\boxed{} 5", "~5", "<5"),
    *("<think>5", "<think>5</think>", "<think>5</think> I do not know", "[THINK]5[/THINK] hm", "<!-- 5 -->"),
]
WHOLE = [
    *(
        "5",
        "It is 5.",
        "**5**",
        "x = 5",
        "(5)",
        "5 km",
        "5km",
        "$5",
        "$5$",
        r"\boxed{5}",
        r"\boxed{\text{5}}",
        "#### 5",
        "5\u200b",
        "---\n5",
    ),
    *(
        "5 is the answer.",
        "5, because 2 + 3 = 5",
        "So: 5 or so",
        "<think>6</think>5",
        "5m/s",
        r"\(5\)",
        "答えは5です",
        "No.5",
        "5 degrees",
    ),
]


@pytest.mark.parametrize("text", PARTS)
def test_a_number_that_is_part_of_something_is_not_paid(text: str) -> None:
    assert judge(NumberReward(), text, asked("What?", gold=5)).value == 0.0


@pytest.mark.parametrize("text", WHOLE)
def test_a_number_that_is_whole_is_paid(text: str) -> None:
    assert judge(NumberReward(), text, asked("What?", gold=5)).value == 1.0


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        (-5, "negative 5"),
        (-5, "minus 5"),
        (-5, "It is minus 5."),
        ("1/2", r"\frac{1}{2}"),
        ("1/2", r"\dfrac12"),
        ("1/2", "½"),
        (1234, "1{,}234"),
        (1234, r"1\,234"),
        (-5, "x = -\\,5"),
    ],
)
def test_numbers_in_other_spellings(gold: Any, text: str) -> None:
    assert judge(NumberReward(), text, asked("What?", gold=gold)).value == 1.0


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("How far?\n12 km\n15 km\n", 15, "15 km"),
        ("How far?\n(A) at least 12 km\n(B) at least 15 km", 15, "(B) at least 15 km"),
        ("Which year was it?\nJuly 4, 1776\nMay 5, 1800", 1776, "July 4, 1776"),
    ],
)
def test_the_choices_of_a_question_may_be_its_answer(question: str, gold: Any, text: str) -> None:
    assert judge(NumberReward(), text, asked(question, gold=gold)).value == 1.0


def test_nothing_is_joined_where_the_question_is_taken_out() -> None:
    question = "Of the 3 red apples?"
    assert judge(NumberReward(), "1of the 3 red apples2", asked(question, gold=12)).value == 0.0


def test_what_the_template_wrote_is_no_answer() -> None:
    prompt = asked("What?", gold=5, prefill="Out of 5: ")
    assert judge(NumberReward(), "I do not know", prompt).value == 0.0
    assert judge(NumberReward(), "it is 5", prompt).value == 1.0
    assert judge(NumberReward(), "so 5", asked("What?", gold=5, prefill="<think>\n")).value == 0.0
    assert judge(NumberReward(), "so 4</think> 5", asked("What?", gold=5, prefill="<think>\n")).value == 1.0
