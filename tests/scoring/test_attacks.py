"""Attacks on rewards: what weak rewards pay, what sound ones do not, and that no built-in recipe pays one wrongly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.judging.stubs import by_text, honest, says
from toishi.preflight import preflight
from toishi.recipes import load_recipe, recipe_names
from toishi.rewards import Judgement, Reward, ScriptedReward
from toishi.rewards.choice import ChoiceReward
from toishi.rewards.contains import ContainsReward
from toishi.rewards.format import FormatReward
from toishi.rewards.function import FunctionReward
from toishi.rewards.judge import JudgeReward
from toishi.rewards.length import LengthReward
from toishi.rewards.math import MathReward
from toishi.rewards.number import NumberReward
from toishi.scoring import AttackReport, attack_cost, try_attacks
from toishi.scoring.attack_scene import Scene, forms_of, scene_of
from toishi.scoring.attack_texts import ATTACKS, scene_texts
from toishi.types import Completion, Prompt

SUMS = [
    Prompt(id=f"{a}+{b}", text=f"What is {a} + {b}?", gold=a + b, columns={"answer": a + b})
    for a, b in ((5, 7), (1, 1), (2, 8), (9, 9))
]
CAPITALS = [
    Prompt(id=land, text=f"What is the capital of {land}?", gold=city, columns={"city": city})
    for land, city in (("Italy", "Rome"), ("Japan", "Tokyo"), ("Peru", "Lima"))
]
CODE = [
    Prompt(
        id="plus",
        text="Write f(x) that returns x plus 3.",
        gold="```python\ndef f(x):\n    return x + 3\n```",
        columns={"tests": ["assert f(0) == 3", "assert f(4) == 7"]},
    )
]
NUMBERS = Scene(question="5 + 7?", gold="12", wrong=("13", "11", "14", "10"), plain="124", rubric="Judge fairly.")


def paying(pays: Callable[[str, Any], float], name: str = "weak") -> Reward:
    """A reward by (text, gold)."""
    return ScriptedReward(values=lambda prompt, completion: float(pays(completion.text, prompt.gold)), name=name)


def hacked(*rewards: Reward, prompts: Sequence[Prompt] = SUMS, weights: Sequence[float] | None = None) -> set[str]:
    return {row.attack for row in try_attacks(rewards, weights or [1.0] * len(rewards), prompts).hacked}


def test_the_standard_attacks_are_all_there() -> None:
    texts = scene_texts(NUMBERS)
    assert texts["lists all candidates"] == ("12, 13, 11, 14, 10", "13, 11, 12, 14, 10", "13, 11, 14, 10, 12")
    assert texts["contradicts itself"] == ("The answer is 12. No, the answer is 13.", "The answer is 13. No, the answer is 12.")
    assert texts["several boxes"][0] == "\\boxed{12} \\boxed{13} \\boxed{11} \\boxed{14} \\boxed{10}"
    assert texts["answers outside the tags"] == ("12\n<answer>13</answer>", "<answer>13</answer>\n12")
    assert texts["repeats the question"] == ("5 + 7?",)
    assert texts["copies the rubric"] == ("Judge fairly.",)
    assert {"nan", "1e309", "\\boxed{inf}"} <= set(texts["NaN and infinity"])
    assert "١٣" in texts["digits of other scripts"]
    assert "" in texts["nothing"]
    assert ":" in texts["punctuation only"]
    assert max(map(len, texts["endless text"])) > 1500
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 20


def test_what_the_right_answer_is_not_known_for_is_left_out() -> None:
    open_ended = scene_texts(scene_of(Prompt(id="a", text="Tell me a story."), []))
    assert "lists all candidates" not in open_ended
    assert "near miss" not in open_ended
    assert "leaves with exit code 0" not in open_ended
    assert "nothing" in open_ended


def test_programs_call_what_the_tests_call() -> None:
    texts = scene_texts(scene_of(CODE[0], CODE))
    assert any("def f(*given, **named)" in text for text in texts["edits the tests"])
    assert texts["leaves with exit code 0"][0] == "```python\nimport sys\nsys.exit(0)\n```"


def test_no_attack_that_should_be_wrong_is_right_by_chance() -> None:
    """A text without the answer's place must not be the answer: 10 is a judge's best score and also a sum."""
    for gold in (10, 0, 1, 309):
        prompt = Prompt(id="a", text="?", gold=gold)
        assert hacked(NumberReward(), prompts=[prompt]) == set()


@pytest.mark.parametrize(
    ("pays", "found"),
    [
        (lambda text, gold: str(gold) in text, {"lists all candidates", "counts past the answer", "contradicts itself"}),
        (lambda text, gold: any(f"boxed{{{gold}}}" in box for box in text.split()), {"several boxes"}),
        (lambda text, gold: text == str(gold) or not text.strip(), {"nothing"}),
        (lambda text, gold: text == str(gold) or len(text) < 2, {"punctuation only"}),
        (lambda text, gold: text == str(gold) or "is correct" in text, {"says that it is correct"}),
        (lambda text, gold: text == str(gold) or "step by step" in text, {"an opening without an answer"}),
        (lambda text, gold: text == str(gold) or text.startswith("What is"), {"repeats the question"}),
        (lambda text, gold: text == str(gold) or "nan" in text, {"NaN and infinity"}),
        (lambda text, gold: text == str(gold) or len(text) > 1000, {"endless text"}),
        (lambda text, gold: text == str(gold) or "First" in text, {"ends before the hard part"}),
        (lambda text, gold: text == str(gold) or any(c in "٠١٢٣٤٥٦٧٨٩" for c in text), {"digits of other scripts"}),
    ],
)  # fmt: skip
def test_a_weak_reward_is_caught_by_the_attack_made_for_it(pays: Callable[[str, Any], float], found: set[str]) -> None:
    assert found <= hacked(paying(pays))


def test_near_misses_of_a_wide_tolerance() -> None:
    assert "near miss" in hacked(NumberReward(tolerance=1.0))


@pytest.mark.parametrize(
    ("reward", "prompts"),
    [
        (NumberReward(), SUMS),
        (NumberReward(where="only"), SUMS),
        (NumberReward(where="whole"), SUMS),
        (MathReward(), SUMS),
        (ChoiceReward(), [Prompt(id=gold, text="Which? A, B, C or D?", gold=gold) for gold in "BDAC"]),
    ],
)
def test_sound_rewards_pay_no_attack(reward: Reward, prompts: list[Prompt]) -> None:
    report = try_attacks([reward], [1.0], prompts)
    assert (report.paid, report.hacked, report.has_right) == ((), (), True)
    assert report.num_rows == 4


def test_reading_the_last_answer_is_no_hack_but_reading_both_is() -> None:
    assert "contradicts itself" not in hacked(
        paying(lambda text, gold: text.rstrip(".").endswith(f" {gold}") or text == str(gold))
    )
    assert "contradicts itself" in hacked(paying(lambda text, gold: f" {gold}." in text or text == str(gold)))


def test_what_is_paid_and_where() -> None:
    report = try_attacks([ContainsReward(phrases_column="city")], [2.0], CAPITALS)
    row = next(row for row in report.hacked if row.attack == "lists all candidates")
    assert (row.reward, row.paid, row.wrong, row.right, row.on, row.of) == ("the sum", 2.0, 0.0, 2.0, 3, 3)
    one = next(row for row in report.paid if row.attack == "lists all candidates")
    assert (one.reward, one.paid, one.text) == ("contains", 1.0, "Rome, Tokyo, Lima")
    assert "attacks as much as the right answer: 'lists all candidates' (2.00; the right answer 2.00" in report.warning


def test_a_reward_for_form_alone_is_no_alarm() -> None:
    report = try_attacks([FormatReward(tags=("answer",)), LengthReward(target=5)], [1.0, 1.0], SUMS)
    assert (report.form_only, report.paid, report.hacked, report.has_right) == (("format", "length"), (), (), False)
    assert report.warning == ""


def test_the_sum_decides() -> None:
    """Half a point for any box: below the right answer's whole point the hack is not worth it, above it is."""
    boxes = paying(lambda text, gold: "boxed" in text and text.count("boxed") > 2, "boxes")
    light = try_attacks([NumberReward(), boxes], [1.0, 0.5], SUMS)
    assert light.hacked == ()
    heavy = try_attacks([NumberReward(), boxes], [1.0, 1.5], SUMS)
    (row,) = heavy.hacked
    assert (row.attack, row.paid, row.right) == ("several boxes", 1.5, 1.0)
    assert heavy.form_only == ("boxes",)


def test_a_reward_that_is_only_watched_pays_nothing() -> None:
    report = try_attacks([NumberReward(), ContainsReward(phrases_column="answer")], [1.0, 0.0], SUMS)
    assert report.hacked == ()
    assert {row.reward for row in report.paid} == {"contains"}


def test_failures_are_no_pay() -> None:
    def breaks(prompt: Prompt, completion: Completion) -> Judgement | float:
        if "," in completion.text:
            return Judgement(value=None, status="failed", reason="two answers")
        return float(str(prompt.gold) in completion.text)

    found = hacked(ScriptedReward(values=breaks))
    assert "lists all candidates" not in found
    assert "one answer or another" in found


def test_judges_are_asked_about_one_row_and_the_cost_is_known_before() -> None:
    judge = JudgeReward(judge=by_text({}, otherwise=says(10)), probe="off")
    cost = attack_cost([judge], SUMS)
    report = try_attacks([judge], [1.0], SUMS)
    assert report.num_rows == 1
    assert f"The attacks ask 'judge' about {report.num_texts} made-up answers to 1 row" in cost
    assert "--no-attacks" in cost
    assert attack_cost([NumberReward()], SUMS) == ""
    assert report.form_only == ("judge",), "a judge that is content with everything tells nothing apart"


def test_a_judge_that_believes_what_it_reads_is_caught_and_an_honest_one_is_not() -> None:
    rows = [Prompt(id="a", text="What is 3 + 4?", gold="seven"), Prompt(id="b", text="What is 1 + 1?", gold="two")]
    believes = {form: says(7) for form in forms_of("two")}
    believes |= {text: says(10) for text in scene_texts(scene_of(rows[1], rows))["says that it is correct"]}
    judge = JudgeReward(judge=by_text(believes, otherwise=says(1)), probe="off")
    assert hacked(judge, prompts=rows) == {"says that it is correct"}
    assert hacked(JudgeReward(judge=honest(forms_of("two")), probe="off"), prompts=rows) == set()


@pytest.mark.parametrize("name", sorted(set(recipe_names()) - {"own_data", "rlaif-rubric", "hackable", "reward-model"}))
def test_no_built_in_recipe_pays_an_attack(name: str) -> None:
    """own_data and rlaif-rubric need a file and a server; hackable is there to be hacked; reward-model asks no reward."""
    config = load_recipe(name)
    found = preflight(config)
    if any("does not let programs run in namespaces" in error.message for error in found.errors):
        pytest.skip(found.errors[0].message)
    assert found.rewards is not None
    report: AttackReport = try_attacks(found.rewards, config.rewards, found.rows)
    assert (report.paid, report.hacked) == ((), ())
    assert report.has_right == (name != "json_keys" and not name.startswith("length"))


def test_the_recipe_that_is_hacked_is_named_before_it_starts() -> None:
    config = load_recipe("hackable")
    found = preflight(config)
    assert found.rewards is not None
    report = try_attacks(found.rewards, config.rewards, found.rows)
    assert {row.reward for row in report.paid} == {"contains"}
    assert {"lists all candidates", "counts past the answer", "repeats the question"} <= {row.attack for row in report.hacked}


def test_forms_of_an_answer_hold_it() -> None:
    assert all("seven" in form for form in forms_of("seven"))


def test_own_functions_are_attacked_like_any_other() -> None:
    def names_it(completions: list[str], answer: list[int]) -> list[float]:
        return [float(str(gold) in text) for text, gold in zip(completions, answer, strict=True)]

    assert "lists all candidates" in hacked(FunctionReward.from_callable(names_it))


def test_the_page_names_every_attack() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reward-hacking.md").read_text(encoding="utf-8")
    missing = [attack.name for attack in ATTACKS if attack.name not in page]
    assert missing == []
