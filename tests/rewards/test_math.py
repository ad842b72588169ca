"""The reward `math`: from a group of completions to judgements."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.answers.cases_of import cases
from tests.rewards.judging import asked, judge
from toishi.config import Config, RewardConfig
from toishi.errors import ConfigError, DataError
from toishi.packages import missing_packages
from toishi.rewards import build_rewards, check_prompts
from toishi.rewards.math import MathReward
from toishi.rewards.scripted import answered
from toishi.scoring.dry_run import dry_run
from toishi.types import Prompt

REWARD = MathReward()


def test_the_four_outcomes() -> None:
    prompt = asked(gold="5")
    right, wrong, nothing, unread, undecided = (
        judge(REWARD, text, prompt)
        for text in (r"\boxed{5}", r"\boxed{6}", "hm\nhm", r"\boxed{banana split}", r"\boxed{9^{9^{9^9}}}")
    )
    assert (right.value, right.readable, right.reason) == (1.0, True, "right: read 5, gold 5")
    assert (wrong.value, wrong.readable) == (0.0, True)
    assert (nothing.value, nothing.readable, nothing.reason) == (0.0, False, "no_answer: no answer found, gold 5")
    assert (unread.value, unread.readable) == (0.0, False)
    assert (undecided.value, undecided.status, undecided.readable) == (None, "failed", None)
    assert undecided.reason.startswith("undecided: too large")


def test_a_completion_that_was_cut_off_is_not_right() -> None:
    cut = judge(REWARD, r"\boxed{5}", asked(gold="5"), "length")
    assert (cut.value, cut.readable, cut.reason) == (0.0, False, "cut off at the token limit")
    assert judge(MathReward(require_stop=False), r"\boxed{5}", asked(gold="5"), "length").value == 1.0


def test_the_question_repeated_is_no_answer() -> None:
    question = r"Is 7 or 8 prime? Put the number in a box, as in \boxed{7}."
    assert judge(REWARD, question, asked(question, gold="7")).readable is False
    assert judge(REWARD, question + r" It is \boxed{7}.", asked(question, gold="7")).value == 1.0
    assert judge(REWARD, "What is 12?", asked("What is 12?", gold="12")).value == 0.0


def test_a_prefilled_tag_is_known() -> None:
    prompt = asked(gold="5", prefill="<think>\n")
    assert judge(REWARD, r"\boxed{5}", prompt).value == 0.0
    assert judge(REWARD, r"\boxed{4}</think>\boxed{5}", prompt).value == 1.0


def test_options_reach_the_comparison() -> None:
    assert judge(MathReward(where="box"), "The answer is 5.", asked(gold="5")).value == 0.0
    assert judge(MathReward(where="anywhere"), "one\nand 5", asked(gold="5")).value == 1.0
    assert judge(MathReward(unit="optional"), r"\boxed{6}", asked(gold="6 cm")).value == 1.0
    assert judge(MathReward(tolerance=0.01), r"\boxed{3.14}", asked(gold=r"\pi")).value == 1.0
    assert judge(MathReward(type="text"), r"\boxed{x+1}", asked(gold="1+x")).value == 0.0
    assert judge(MathReward(gold_column="g"), r"\boxed{5}", asked(columns={"g": 5})).value == 1.0
    assert MathReward(gold_column="g").columns == ("g",)


@pytest.mark.parametrize(
    "options", [{"where": "box "}, {"type": "nmber"}, {"tolerance": 1}, {"tolerance": -0.1}, {"limit_s": 0}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"reward 'math'.{next(iter(options))}"):
        build_rewards([RewardConfig.model_validate({"name": "math"} | options)], columns=frozenset())


def test_golds_that_cannot_be_used_are_listed_with_their_rows() -> None:
    golds = [5, "", "3x +", r"7\sqrt{3}", None, r"\sum_{n=1}^{5} \operatorname{foo} n 77"]
    prompts = [Prompt(id=f"row {place}", text="?", gold=gold) for place, gold in enumerate(golds)]
    with pytest.raises(DataError) as caught:
        check_prompts([REWARD], prompts)
    listed = str(caught.value)
    assert "4 prompts cannot be scored" in listed
    assert [place for place in range(6) if f"row {place}:" in listed] == [1, 2, 4, 5]
    assert judge(REWARD, r"\boxed{5}", prompts[2]).status == "failed"


def test_golds_of_all_types_are_paid_and_those_of_other_rows_are_not() -> None:
    golds = [5, "x+2", r"\pm 3", "(1, 2]", "No", "08:30", "6 cm", [1, 4], [[1, 2], "a"]]
    prompts = [Prompt(id=str(gold), text="?", gold=gold) for gold in golds[:-2]]
    tried = dry_run([REWARD], [1.0], prompts)
    assert not tried.errors
    assert not tried.warnings
    assert [row.reward for row in tried.rows if row.answer == "the gold"] == [1.0] * len(prompts)
    assert judge(REWARD, r"\boxed{4, 1}", asked(gold=[1, 4])).value == 1.0
    assert judge(REWARD, r"\boxed{5}", asked(gold=[[1, 2], "a"])).value == 0.0


def test_groups_are_scored_from_threads() -> None:
    assert REWARD.concurrent is True
    pairs = [pair for pair in cases("pairs") if pair["type"] in ("expression", "equation")]
    found: dict[int, float | None] = {}

    def work(place: int) -> None:
        pair = pairs[place]
        ((judgement,),) = REWARD.score_group(asked("Solve.", gold=pair["gold"]), [answered(pair["completion"])])
        found[place] = judgement.value

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[place] for place in range(len(pairs))] == [float(pair["right"]) for pair in pairs]


def test_the_package_is_asked_for_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate({"rewards": [{"name": "mine", "kind": "math"}]})
    assert missing_packages(config) == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "toishi[math]" in str(missing_packages(config)[0])
