"""What may be asked, and advantages by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.making import group
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import algorithm
from toishi.algorithms.terms import Gate, Term
from toishi.counterfactual.advantages import changed_groups, require_recorded
from toishi.counterfactual.change import Change, change_of, read_score, read_scores
from toishi.counterfactual.ranges import Range, range_of
from toishi.errors import ConfigError, RecordError
from toishi.types import Group, Rollout, Score

BY_HAND = [1.53, 0.99, 0.46, -0.60, -1.13, 0.46, -1.13, -0.60]
"""Of scores 6 5 4 2 1 4 1 2: mean 3.125, sample standard deviation 1.885."""
ROW = algorithm("grpo").model_copy(update={"scale": "group_std"})


def judged(*scores: float | None, number: int = 0, step: int = 1) -> Group:
    """A group with one reward `judge`; None: it failed on the answer."""
    made = group(number, [5, 6], [[9 + member, 4] for member in range(len(scores))], scores, step)
    return replace(made, rollouts=tuple(map(scored, made.rollouts)))


def scored(rollout: Rollout) -> Rollout:
    if rollout.reward is None:
        lost = Score(reward="judge", value=None, status="failed", reason="no answer")
        return replace(rollout, scores=(lost,), status="failed", failure="reward judge: no answer")
    return replace(rollout, scores=(Score(reward="judge", value=rollout.reward),))


def advantages(found: Group) -> list[Any]:
    return [rollout.advantage for rollout in found.rollouts]


def changed(groups: list[Group], change: Change, number: int = 0, row: Any = ROW, **given: Any) -> tuple[Group, ...]:
    return changed_groups(
        groups, number, change, row, terms=given.get("terms", ()), ranges=given.get("ranges", {}), max_new_tokens=8
    )


def test_advantages_are_those_by_hand() -> None:
    (found,) = changed([judged(6, 5, 4, 2, 1, 4, 1, 9)], change_of({7: 2.0}))
    assert advantages(found) == pytest.approx(BY_HAND, abs=0.005)


def test_several_changes_hold_together() -> None:
    (found,) = changed([judged(6, 5, 4, 2, 9, 4, 1, 9, 5)], change_of({7: 2.0, "judge:4": 1}, [8]))
    assert advantages(found)[:8] == pytest.approx(BY_HAND, abs=0.005)
    assert advantages(found)[8] == 0.0


def test_a_failed_answer_with_a_score_joins_the_baseline() -> None:
    groups = [judged(6, 5, 4, 2, 1, 4, 1, None)]
    (found,) = changed(groups, change_of({7: 2.0}))
    assert advantages(found) == pytest.approx(BY_HAND, abs=0.005)
    assert found.rollouts[7].status == "completed"
    assert found.baseline is not None
    assert found.baseline.count == 8


def test_other_groups_keep_theirs_unless_the_rule_looks_at_the_step() -> None:
    groups = [judged(1, 0, 0, 1), judged(3, 1, number=1)]
    plain = assign_advantages(groups, ROW, max_new_tokens=8)
    assert advantages(changed(groups, change_of({0: 7.0}))[1]) == advantages(plain[1])
    row = algorithm("grpo").model_copy(update={"baseline": "group_mean", "scale": "batch_std"})
    plain = assign_advantages(groups, row, max_new_tokens=8)
    assert advantages(changed(groups, change_of({0: 7.0}), row=row)[1]) != advantages(plain[1])


def test_gates_are_decided_again() -> None:
    made = judged(1, 1, 0, 0)
    both = [
        replace(each, scores=(*each.scores, Score(reward="style", value=4.0, weight=0.5)), reward=None)
        for each in made.rollouts
    ]
    terms = [Term(name="judge"), Term(name="style", weight=0.5, gate=Gate(reward="judge"))]
    (found,) = changed([replace(made, rollouts=tuple(both))], change_of({"judge:3": 1.0}), terms=terms)
    assert found.rewards == (3.0, 3.0, 0.0, 3.0)


def test_a_tied_group_has_no_advantages() -> None:
    (found,) = changed([judged(1, 0)], change_of({1: 1.0}))
    assert advantages(found) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_of({4: 1.0}), r"group 0 has no answer 4; it has: 0, 1, 2"),
        (change_of({"style:1": 1.0}), "there is no reward 'style'; the rewards are: judge"),
        (change_of({1: 1.0, "judge:1": 2.0}), "answer 1, reward 'judge': its score is given twice"),
        (change_of(drop=[0, 1]), r"with 0, 1 left out, 1 of 3 answers count \(2\)"),
        (change_of({1: 11.0}), "answer 1, reward 'judge': 11 is outside the reward's range, 1 to 10"),
    ],
)
def test_what_cannot_be_is_said(change: Change, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        changed([judged(1, 0, 0.5)], change, ranges={"judge": Range(1.0, 10.0, scaled=True)})


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(ConfigError, match="the step has no group 7; it has: 0, 1"):
        changed([judged(1, 0), judged(1, 0, number=1)], change_of({0: 1.0}), number=7)


def test_several_rewards_have_to_be_named() -> None:
    made = judged(1, 0)
    both = tuple(replace(each, scores=(*each.scores, Score(reward="style", value=1.0))) for each in made.rollouts)
    with pytest.raises(ConfigError, match=r"Say --score NAME:1=9; the rewards are: judge, style"):
        changed([replace(made, rollouts=both)], change_of({1: 9.0}))


def test_parts_of_an_answer_are_no_single_score() -> None:
    made = judged(1, 0)
    parts = tuple(Score(reward="judge", value=1.0, span=(place, place + 1)) for place in (0, 1))
    steps = tuple(replace(each, scores=parts) for each in made.rollouts)
    with pytest.raises(ConfigError, match="scored 2 parts of it"):
        changed([replace(made, rollouts=steps)], change_of({1: 9.0}))


@pytest.mark.parametrize(
    ("scores", "drop", "settings", "words"),
    [
        ({}, (), None, "nothing is changed"),
        ({3: 1.0}, (3,), None, "answer 3 is both scored and left out"),
        ({3: float("nan")}, (), None, "expected a finite number"),
        ({-1: 1.0}, (), None, "expected the number of an answer"),
        ({}, (), {"sampling.temperature": 2}, "sampled and scored already"),
        ({}, (), {"algorithm.name": "dr_grpo"}, "another whole rule is --set algorithm=dr_grpo"),
        ({"style": 1.0}, (), None, "'reward:number'"),
        ({("style", 1, 2): 1.0}, (), None, r"expected \(reward, answer\), got \('style', 1, 2\)"),
    ],
)
def test_no_question(scores: Any, drop: Any, settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        change_of(scores, drop, settings)


@pytest.mark.parametrize("text", ["3", "=3", "a=1", "3=x", ":3=1"])
def test_an_unreadable_score_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="expected ANSWER=SCORE or REWARD:ANSWER=SCORE"):
        read_score(text)


def test_a_score_given_twice_is_not_dropped() -> None:
    assert read_scores(["1=2", "judge:1=3"]) == {1: 2.0, ("judge", 1): 3.0}
    with pytest.raises(ConfigError, match="--score '1=3': the same score is given twice, first as 2"):
        read_scores(["1=2", "1=3"])


def test_a_reward_name_may_hold_a_colon() -> None:
    assert read_score("a:b:3=-1.5") == (("a:b", 3), -1.5)


def test_a_judges_scores_are_on_its_own_scale() -> None:
    scale = range_of({"name": "judge", "judge": {}, "scale": "1-5"})
    assert scale.to_value(2.0, "") == 0.25
    assert scale.to_score(0.25) == 2.0
    assert range_of({"name": "judge", "mode": "expected"}) == Range(1.0, 9.0, scaled=True)
    assert range_of({"name": "rubric", "criteria": []}) == Range(0.0, 1.0)


def test_advantages_that_do_not_follow_are_refused() -> None:
    (made,) = assign_advantages([judged(1, 0)], ROW, max_new_tokens=8)
    require_recorded([made], ROW, 8)
    forged = replace(made, rollouts=(replace(made.rollouts[0], advantage=0.9), made.rollouts[1]))
    with pytest.raises(RecordError, match="does not follow from the recorded rewards"):
        require_recorded([forged], ROW, 8)
