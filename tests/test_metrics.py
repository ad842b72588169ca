"""Numbers of a step by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.making import group
from toishi.metrics import sampler_gap, step_metrics
from toishi.types import RolloutId, TokenStreams, Update


def metrics_of(rewards: list[float | None]) -> dict[str, float | int | None]:
    groups = [group(0, [1, 2], [[3, 4], [5, 6, 7], [8]], rewards)]
    return step_metrics(groups, [], refill_rounds=0, next_prompt=1, gap=None)


def test_rewards_groups_and_lengths() -> None:
    found = metrics_of([1.0, 0.0, None])
    assert found["reward/mean"] == 0.5
    assert found["reward/std"] == 0.5
    assert found["answers/unscored"] == 1
    assert (found["groups/mixed"], found["groups/all_wrong"], found["groups/all_right"]) == (1, 0, 0)
    assert found["answers/mean_tokens"] == 2.0
    assert found["answers/max_tokens"] == 3
    assert (found["answers/mean_tokens_above"], found["answers/mean_tokens_below"]) == (2.0, 3.0)
    assert found["answers/distinct_share"] == pytest.approx(1 / 3)
    assert found["entropy/mean_nats"] == 1.0


def test_huge_rewards_do_not_overflow() -> None:
    assert metrics_of([1e200, -1e200, 1e200])["reward/std"] == pytest.approx(1e200 * (8 / 9) ** 0.5)


def test_nothing_scored_has_no_mean() -> None:
    found = metrics_of([None, None, None])
    assert found["reward/mean"] is None
    assert found["reward/std"] is None


def stream(member: int, **columns: tuple[float, ...]) -> TokenStreams:
    return TokenStreams(rollout=RolloutId(1, 0, member), computed=True, **columns)  # type: ignore[arg-type]


def test_divergence_from_the_sampling_policy_and_clips_count_tokens_with_loss_only() -> None:
    """ratio 2 twice: k3 = 2 - 1 - log 2 for each; the third token carries no loss."""
    half, one = -0.6931471805599453, 0.0
    groups = [group(0, [1, 2], [[3, 4, 5]], [1.0])]
    rollout = groups[0].rollouts[0]
    groups = [replace(groups[0], rollouts=(replace(rollout, completion=replace(rollout.completion, loss_mask=(1, 1, 0))),))]
    moved = stream(0, old_logprob=(half, half, 0.0), logprob=(one, one, 0.0), ratio=(2.0, 2.0, 0.0), clip=(2, 0, 0))
    scalars = dict.fromkeys(
        ("update/loss", "update/grad_norm", "update/grad_norm_clipped", "update/lr", "update/tokens", "update/rollouts"), 1.0
    )
    update = Update(step=1, index=0, scalars=scalars | {"update/skipped": 0.0}, streams=(moved,))
    found = step_metrics(groups, [update], refill_rounds=0, next_prompt=1, gap=None)
    assert found["update/kl_old_policy_k3"] == pytest.approx(1 + half)
    assert found["update/ratio_mean"] == 2.0
    assert found["update/ratio_min"] == 2.0
    assert found["update/clip_high_share"] == 0.5
    assert found["update/tokens_computed"] == 2


def test_sampler_gap_uses_the_log_probs_before_the_first_update() -> None:
    groups = [group(0, [1, 2], [[3, 4]], [1.0])]  # sampled at -1.0
    later = stream(0, old_logprob=(-1.25, -1.0), logprob=(-9.0, -9.0))
    assert sampler_gap(groups, [later]) == (0.125, 0.25)
    assert sampler_gap(groups, []) is None
