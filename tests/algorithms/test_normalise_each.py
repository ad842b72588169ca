"""GDPO (combine: normalise_each): numbers by hand, and what it must equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from tests.algorithms.test_composing import ABSTAINED, scored
from tests.algorithms.toy import PROMPT, changed, completion
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.terms import Term
from toishi.errors import RewardError
from toishi.explanation.formula import formula, worked
from toishi.types import Group, Rollout, RolloutId, Score

GDPO = changed("grpo", combine="normalise_each", std_epsilon=0.0)
SUM = changed("grpo", std_epsilon=0.0)
A, B = Term(name="a"), Term(name="b")
HALF = math.sqrt(0.5)


def advantages(groups: Sequence[Group], row: Any) -> list[list[Any]]:
    return [[rollout.advantage for rollout in group.rollouts] for group in assign_advantages(groups, row, max_new_tokens=8)]


def test_two_rewards_tell_more_apart_than_their_sum() -> None:
    """Groups of two: (0, 1) on one reward, and (0, 1) on both. The sums' own advantages are the same ± sqrt ½ for both groups.

    One by one they are ± sqrt ½ and ± 2 sqrt ½; their deviation over the step is sqrt((½ + ½ + 2 + 2) / 3) = sqrt(5/3).
    """
    groups = [scored([A, B], (0.0, 0.0), (1.0, 0.0)), scored([A, B], (0.0, 0.0), (1.0, 1.0), index=1)]
    assert advantages(groups, SUM) == [pytest.approx([-HALF, HALF]), pytest.approx([-HALF, HALF])]
    step = math.sqrt(5 / 3)
    expected = [[-HALF / step, HALF / step], [-2 * HALF / step, 2 * HALF / step]]
    assert advantages(groups, GDPO) == [pytest.approx(row, abs=1e-12) for row in expected]


def test_weights_come_after_the_normalisation() -> None:
    """b is worth 100 points with weight .01: normalised it is as large as a, and counts a quarter."""
    terms = [Term(name="a"), Term(name="b", weight=0.25)]
    groups = [scored(terms, (1.0, 0.0), (0.0, 100.0))]
    # a: ±sqrt ½, b: ∓sqrt ½ * .25; sums ±.75 sqrt ½, their deviation .75
    assert advantages(groups, GDPO) == [pytest.approx([HALF, -HALF], abs=1e-12)]
    three = [scored(terms, (1.0, 0.0), (0.0, 100.0), (0.0, 0.0))]
    # a: deviation sqrt ⅓: (⅔, -⅓, -⅓) sqrt 3; b: (-⅓, ⅔, -⅓) sqrt 3 * .25; sums sqrt 3 * (7/12, -2/12, -5/12)
    sums = [math.sqrt(3) * value / 12 for value in (7, -2, -5)]
    step = math.sqrt(sum(value**2 for value in sums) / 2)
    assert advantages(three, GDPO) == [pytest.approx([value / step for value in sums], abs=1e-12)]


def test_one_reward_is_the_sum_up_to_one_factor_for_the_step() -> None:
    """The factor is 1 / the deviation of the step's advantages."""
    groups = [scored([A], (1.0,), (0.0,), (0.0,)), scored([A], (0.25,), (0.75,), (1.0,), index=1)]
    plain = advantages(groups, SUM)
    step = math.sqrt(sum(value**2 for row in plain for value in row) / 5)
    assert advantages(groups, GDPO) == [pytest.approx([value / step for value in row], abs=1e-12) for row in plain]


def test_two_identical_rewards_are_as_one() -> None:
    values = ((1.0,), (0.0,), (0.3,))
    once = advantages([scored([A], *values)], GDPO)
    twice = advantages([scored([A, B], *((value, value) for (value,) in values))], GDPO)
    assert twice == [pytest.approx(once[0], abs=1e-12)]


def test_a_constant_reward_contributes_nothing() -> None:
    with_b = scored([A, Term(name="b", weight=9.0)], (1.0, 7.0), (0.0, 7.0), (0.3, 7.0))
    assert advantages([with_b], GDPO) == advantages([scored([A], (1.0,), (0.0,), (0.3,))], GDPO)


def test_a_tie_is_exactly_nothing() -> None:
    groups = [scored([A, B], (0.1, 0.3), (0.1, 0.3)), scored([A, B], (0.0, 1.0), (1.0, 1.0), index=1)]
    assert advantages(groups, GDPO)[0] == [0.0, 0.0]


def test_a_reward_that_abstains_is_compared_among_the_answers_it_speaks_of() -> None:
    """a: (1, 0, -) -> ± sqrt ½; b is constant; the third answer gets nothing of a."""
    (found,) = advantages([scored([A, B], (1.0, 0.5), (0.0, 0.5), (ABSTAINED, 0.5))], GDPO)
    deviation = math.sqrt((0.5 + 0.5) / 2)
    assert found == pytest.approx([HALF / deviation, -HALF / deviation, 0.0], abs=1e-12)


def test_a_negative_weight_turns_a_reward_round() -> None:
    one = advantages([scored([A], (1.0,), (0.0,))], GDPO)[0]
    turned = advantages([scored([Term(name="a", weight=-1.0)], (1.0,), (0.0,))], GDPO)[0]
    assert turned == [-value for value in one]


def test_a_reward_without_weight_is_nothing() -> None:
    terms = [A, Term(name="b", weight=0.0)]
    assert advantages([scored(terms, (1.0, 5.0), (0.0, 7.0))], GDPO) == advantages([scored([A], (1.0,), (0.0,))], GDPO)


def test_steps_are_refused() -> None:
    scores = (Score(reward="steps", value=1.0, span=(0, 1)),)
    rollout = Rollout(id=RolloutId(0, 0, 0), prompt=PROMPT, completion=completion([0]), scores=scores, reward=1.0)
    with pytest.raises(RewardError, match=r"scores intermediate steps .* set algorithm\.combine to 'sum'"):
        assign_advantages([Group(prompt=PROMPT, rollouts=(rollout,))], GDPO, max_new_tokens=8)


@pytest.mark.parametrize(
    "choices",
    [
        {"baseline": "batch_mean", "scale": "batch_std"},
        {"baseline": "none", "scale": "none"},
        {"scale": "batch_std"},
        {"reward_map": "plus_minus"},
        {"truncation": "soft_penalty", "soft_penalty_tokens": 4},
        {"kl": "k1_in_reward", "kl_coef": 0.1},
        {"credit": "reward_to_go"},
        {"statistics_over": "tokens"},
    ],
)
def test_choices_that_have_no_meaning_with_it_are_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="combine 'normalise_each'"):
        changed("grpo", combine="normalise_each", **choices)


def test_it_is_said_and_worked_in_numbers() -> None:
    row = changed("grpo", combine="normalise_each")
    assert formula(row) == (
        "advantage = (Σ weight · (value - mean) / (std + 0.0001)) / (std of these sums over the step + 0.0001), "
        "summed over the rewards"
    )
    terms = [Term(name="a"), Term(name="b", weight=0.25)]
    done = assign_advantages([scored(terms, (1.0, 0.0), (0.0, 100.0))], row, max_new_tokens=8)
    assert worked(done[0], done, row, 8, member=0) == (
        "member 0: (1·(1 - 0.5) / (0.7071 + 0.0001) + 0.25·(0 - 50) / (70.7107 + 0.0001)) / (0.7499 + 0.0001) = +0.7070"
    )
