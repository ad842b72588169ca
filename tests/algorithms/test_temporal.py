"""Advantages from a critic's values, by hand: what token earns what, both ends of lambda, whitening, answers that were cut."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import pytest

from tests.algorithms.toy import changed, group
from toishi.algorithms.apply import assign_advantages, counted
from toishi.algorithms.rows import Algorithm
from toishi.types import Completion, Group, Rollout, Score

VALUES = {2: (0.5, 0.7), 3: (0.25, 0.5, 0.125)}


def valued(*, rewards: tuple[float | None, ...] = (0.8, 0.0), lengths: tuple[int, ...] = (2, 3), **values: Any) -> Group:
    """Answers of two and of three tokens."""
    made = group(rewards, [(0,) * length for length in lengths])
    rollouts = [replace(one, values=VALUES[one.completion.num_tokens]) for one in made.rollouts]
    rollouts[0] = replace(rollouts[0], **values)
    return replace(made, rollouts=tuple(rollouts))


def done(row: Algorithm, *groups: Group) -> list[Rollout]:
    return [one for made in assign_advantages(groups, row, max_new_tokens=8) for one in made.rollouts]


def completion(mask: tuple[int, ...], *, cut: bool = False) -> Completion:
    numbers = (0.0,) * len(mask)
    return Completion(
        token_ids=(0,) * len(mask), loss_mask=mask, sampled_logprobs=numbers, entropies=numbers, text="",
        finish_reason="length" if cut else "stop",
    )  # fmt: skip


def test_two_tokens_with_lambda_095() -> None:
    """delta = (0 + .7 - .5, .8 - .7) = (.2, .1); A = (.2 + .95 · .1, .1); R = A + V."""
    first, _ = done(changed("a2c", gae_lambda=0.95), valued())
    assert first.advantage_per_token == pytest.approx((0.295, 0.1), abs=1e-6)
    assert first.returns == pytest.approx((0.795, 0.8), abs=1e-6)


def test_three_tokens_with_discount() -> None:
    """Reward 0. gamma .5, lambda .5: delta = (.25 - .25, .0625 - .5, -.125); A_t = delta_t + .25 A_t+1."""
    _, second = done(changed("a2c", gae_lambda=0.5, gamma=0.5), valued())
    last, middle = -0.125, -0.4375 + 0.25 * -0.125
    assert second.advantage_per_token == pytest.approx((0.25 * middle, middle, last), abs=1e-12)
    assert second.returns == pytest.approx((0.25 + 0.25 * middle, 0.5 + middle, 0.0), abs=1e-12)


def test_lambda_1_is_what_was_earned_minus_the_value_and_lambda_0_the_next_surprise() -> None:
    whole, _ = done(changed("a2c", gae_lambda=1.0), valued())
    assert whole.advantage_per_token == pytest.approx((0.8 - 0.5, 0.8 - 0.7), abs=1e-12)
    assert whole.returns == pytest.approx((0.8, 0.8), abs=1e-12)
    step, _ = done(changed("a2c", gae_lambda=0.0), valued())
    assert step.advantage_per_token == pytest.approx((0.7 - 0.5, 0.8 - 0.7), abs=1e-12)
    assert step.returns == pytest.approx((0.7, 0.8), abs=1e-12)


def test_a_steps_reward_is_earned_at_its_last_token() -> None:
    """.25 for tokens 0 and 1, .5 for the answer: rewards (0, .25, .5), with lambda 1 returns (.75, .75, .5)."""
    scores = (Score(reward="step", value=0.25, span=(0, 2)), Score(reward="all", value=0.5))
    made = group((0.75,), [(0, 0, 0)])
    rollout = replace(made.rollouts[0], scores=scores, values=VALUES[3])
    (found,) = done(changed("a2c"), replace(made, rollouts=(rollout,)))
    assert found.returns == pytest.approx((0.75, 0.75, 0.5), abs=1e-12)
    assert found.advantage_per_token == pytest.approx((0.5, 0.25, 0.375), abs=1e-12)


def test_kl_in_the_reward_is_paid_token_by_token_before_the_recursion() -> None:
    """r = -.5 (logp - logp_ref) + [last] score, logp 0, logp_ref (-.2, -.4): rewards (-.1, .8 - .2)."""
    row = changed("a2c", kl="k1_in_reward", kl_coef=0.5)
    made = valued(rewards=(0.8,), lengths=(2,), ref_logprobs=(-0.2, -0.4))
    (first,) = done(row, made)
    assert first.returns == pytest.approx((0.5, 0.6), abs=1e-12)


def test_tokens_without_loss_are_passed_over() -> None:
    """Tokens 1 and 3 are a tool's. What falls on them belongs to the token with loss before: the score to token 2."""
    made = group((0.8,), [(0, 0, 0, 0)])
    rollout = replace(made.rollouts[0], completion=completion((1, 0, 1, 0)), values=(0.5, 9.0, 0.7, 9.0))
    (found,) = done(changed("a2c", gae_lambda=0.95), replace(made, rollouts=(rollout,)))
    assert found.advantage_per_token == pytest.approx((0.295, 0.0, 0.1, 0.0), abs=1e-12)
    assert found.returns == pytest.approx((0.795, 0.0, 0.8, 0.0), abs=1e-12)


def test_a_cut_answer_is_worth_what_the_critic_says_of_it_where_that_is_asked_for() -> None:
    """Reward 0 and .6 after the last token: with lambda 1 both returns are .6. Otherwise nothing comes after the end."""
    cut: dict[str, Any] = {"reward": 0.0, "completion": completion((1, 1), cut=True), "status": "truncated"}
    bootstrapped, _ = done(changed("a2c", truncation="bootstrap", gamma=0.5), valued(value_after=0.6, **cut))
    assert bootstrapped.returns == pytest.approx((0.15, 0.3), abs=1e-12)
    ended, _ = done(changed("a2c"), valued(**cut))
    assert ended.returns == pytest.approx((0.0, 0.0), abs=1e-12)


def test_whitening_is_over_all_tokens_of_the_step_and_leaves_returns_alone() -> None:
    plain = done(changed("a2c", gae_lambda=0.95), valued(), valued(rewards=(0.2, 1.0)))
    white = done(changed("a2c", gae_lambda=0.95, whiten=True, std_epsilon=1e-8), valued(), valued(rewards=(0.2, 1.0)))
    raw = [number for one in plain for number in one.advantage_per_token]
    wanted = [(number - mean(raw)) / (stdev(raw) + 1e-8) for number in raw]
    assert [number for one in white for number in one.advantage_per_token] == pytest.approx(wanted, abs=1e-9)
    assert [one.returns for one in white] == [one.returns for one in plain]


def test_whitened_advantages_of_equal_surprises_are_0() -> None:
    made = valued(rewards=(0.0, 0.0), values=(0.0, 0.0))
    made = replace(made, rollouts=tuple(replace(one, values=(0.0,) * one.completion.num_tokens) for one in made.rollouts))
    assert not any(number for one in done(changed("ppo"), made) for number in one.advantage_per_token)


def test_an_answer_that_could_not_be_scored_has_no_returns_and_is_not_in_the_mean() -> None:
    row = changed("ppo")
    with_failed = done(row, valued(rewards=(0.8, None)))
    alone = done(row, valued(rewards=(0.8,), lengths=(2,)))
    assert with_failed[0] == alone[0]
    assert with_failed[1].returns is None
    assert with_failed[1].advantage_per_token == (0.0, 0.0, 0.0)
    (made,) = assign_advantages([valued(rewards=(0.8, None))], row, max_new_tokens=8)
    assert [one.id.member for one in counted([made], row)] == [0]


def test_values_are_asked_for() -> None:
    with pytest.raises(ValueError, match="needs the critic's values"):
        done(changed("ppo"), group((1.0,), [(0,)]))


def test_no_token_no_advantage() -> None:
    made = group((1.0,), [()])
    (found,) = done(changed("a2c"), replace(made, rollouts=(replace(made.rollouts[0], values=()),)))
    assert found.advantage_per_token == ()
    assert found.returns == ()
