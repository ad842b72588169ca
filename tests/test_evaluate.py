"""Evaluations by hand: values, the split into readable and right, paired changes, the way through the record."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from toishi.engines.base import Sampling
from toishi.evaluate import Evaluation, best_step, summarise
from toishi.rewards.scripted import answered
from toishi.types import Group, Prompt, Rollout, RolloutId, Score

SAMPLED = Sampling(max_new_tokens=8)


def group(number: int, outcomes: list[tuple[float | None, bool | None]]) -> Group:
    prompt = Prompt(id=f"p{number}", text="?")
    rollouts = tuple(
        Rollout(
            id=RolloutId(0, number, member),
            prompt=prompt,
            completion=answered("one two", "stop" if readable else "length"),
            reward=value,
            scores=(Score(reward="r", value=value, readable=readable, status="ok" if value is not None else "failed"),),
        )
        for member, (value, readable) in enumerate(outcomes)
    )
    return Group(prompt=prompt, rollouts=rollouts)


def test_value_is_the_mean_over_prompts_and_splits_into_form_and_content() -> None:
    # prompt 0: right, wrong but readable, unreadable; prompt 1: right, and one that could not be scored
    groups = [group(0, [(1.0, True), (0.0, True), (0.0, False)]), group(1, [(1.0, True), (None, False)])]
    found = summarise(groups, SAMPLED, step=4, samples=3)
    assert found.by_prompt == {"p0": pytest.approx(1 / 3), "p1": 1.0}
    assert found.value == pytest.approx(2 / 3)
    assert found.interval is None  # two prompts are too few to resample
    assert found.readable == pytest.approx(3 / 5)
    assert found.value_readable == pytest.approx(2 / 3)
    assert found.truncated == pytest.approx(2 / 5)
    assert found.unscored == 1
    assert (found.step, found.mode, found.num_prompts, found.samples) == (4, "sampled", 2, 3)
    assert found.mean_tokens == pytest.approx((3 * 3 + 2 * 2) / 5)


def test_no_reward_that_looks_for_an_answer_no_split() -> None:
    found = summarise([group(0, [(0.5, None)])], SAMPLED, step=0, samples=1)
    assert found.readable is None
    assert found.value_readable is None
    assert found.value == 0.5


def test_nothing_scored_is_not_zero() -> None:
    found = summarise([group(0, [(None, None)])], SAMPLED, step=0, samples=1)
    assert found.value != found.value
    assert found.by_prompt == {}
    assert found.unscored == 1


def test_change_is_paired_on_the_prompts_that_both_have() -> None:
    first = summarise([group(n, [(0.25, True)]) for n in range(11)], SAMPLED, step=0, samples=1)
    later = summarise([group(n, [(0.75, True)]) for n in range(1, 13)], SAMPLED, step=9, samples=1)
    compared = later.compared_with(first)
    assert compared.change == pytest.approx(0.5)
    assert compared.change_interval is not None
    assert list(compared.change_interval) == pytest.approx([0.5, 0.5])
    assert later.compared_with(replace(first, by_prompt={"other": 1.0})) == later


@pytest.mark.parametrize("count", [1, 2, 9, 10])
def test_fewer_than_ten_prompts_have_no_interval(count: int) -> None:
    found = summarise([group(n, [(float(n % 2), True)]) for n in range(count)], SAMPLED, step=0, samples=1)
    found = found.compared_with(found)
    assert (found.interval is None, found.change_interval is None) == (count < 10, count < 10)
    assert found.value == pytest.approx((count // 2) / count)
    assert found.change == 0.0
    assert json.loads(json.dumps(found.as_record()))["interval"] == (list(found.interval) if found.interval else None)
    assert Evaluation.from_record(json.loads(json.dumps(found.as_record()))) == found


def test_prompts_without_a_value_do_not_count_for_an_interval() -> None:
    scored, unscored = [group(n, [(1.0, True)]) for n in range(9)], [group(n, [(None, None)]) for n in range(9, 20)]
    assert summarise([*scored, *unscored], SAMPLED, step=0, samples=1).interval is None


def test_an_evaluation_survives_its_record() -> None:
    found = summarise([group(0, [(1.0, True)]), group(1, [(0.0, True)])], SAMPLED, step=0, samples=1)
    found = found.compared_with(found)
    assert Evaluation.from_record(json.loads(json.dumps(found.as_record()))) == found


def test_best_step_compares_on_the_prompts_that_all_share() -> None:
    """Step 1 looks best on its one easy prompt; on that prompt alone step 2 is better."""
    hard = group(1, [(0.0, True)])
    before = summarise([group(0, [(0.1, True)]), hard], SAMPLED, step=0, samples=1)
    between = summarise([group(0, [(0.8, True)])], SAMPLED, step=1, samples=1)
    after = summarise([group(0, [(1.0, True)]), hard], SAMPLED, step=2, samples=1)
    assert best_step([before, between, after]) == 2
    assert best_step([before, between]) == 1
    assert best_step([replace(before, mode="greedy"), between, after]) == 0
    assert best_step([]) is None
    assert best_step([replace(before, by_prompt={})]) is None
