"""Advantages: hand numbers, exact enumeration of what each baseline is unbiased for, ties, missing members."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from toishi.ops.advantages import (
    advantages,
    batch_mean,
    batch_std,
    divided,
    group_std,
    leave_one_out,
    no_scale,
    reward_to_go,
    step_advantages,
    tied,
)

ALL = torch.ones(1, 4, dtype=torch.bool)


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def row(rewards: list[float], baseline: str, scale: str, ddof: int = 1, epsilon: float = 1e-4) -> list[float]:
    rewards_PG = table(rewards)
    valid_PG = ~rewards_PG.isnan()
    values = advantages(rewards_PG, valid_PG, baseline=baseline, scale=scale, ddof=ddof, epsilon=epsilon)
    return [float(value) for value in values[0]]


class TestHandNumbers:
    """Rewards (1, 0, 0, 0): mean .25, sample standard deviation .5, population sqrt(3)/4."""

    @pytest.mark.parametrize(
        ("baseline", "scale", "ddof", "expected"),
        [
            ("none", "none", 1, (1.0, 0.0, 0.0, 0.0)),
            ("group_mean", "none", 1, (0.75, -0.25, -0.25, -0.25)),
            ("batch_mean", "none", 1, (0.75, -0.25, -0.25, -0.25)),
            ("leave_one_out", "none", 1, (1.0, -1 / 3, -1 / 3, -1 / 3)),
            ("group_mean", "group_std", 1, (1.5, -0.5, -0.5, -0.5)),
            ("group_mean", "batch_std", 1, (1.5, -0.5, -0.5, -0.5)),
            ("group_mean", "group_std", 0, (math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3))),
            ("group_mean", "group_mean", 1, (3.0, -1.0, -1.0, -1.0)),
        ],
    )
    def test_one_right_of_four(self, baseline: str, scale: str, ddof: int, expected: tuple[float, ...]) -> None:
        assert row([1.0, 0.0, 0.0, 0.0], baseline, scale, ddof, epsilon=0.0) == pytest.approx(expected, abs=1e-12)

    def test_epsilon_is_added_to_the_divisor(self) -> None:
        assert row([1.0, 0.0, 0.0, 0.0], "group_mean", "group_std", epsilon=0.5)[0] == pytest.approx(0.75, abs=1e-12)

    @pytest.mark.parametrize(("right", "expected"), [(1, (2.645751, -0.377964)), (7, (0.377964, -2.645751))])
    def test_one_and_seven_right_of_eight(self, right: int, expected: tuple[float, float]) -> None:
        values = row([1.0] * right + [0.0] * (8 - right), "group_mean", "group_std", ddof=0, epsilon=0.0)
        assert (values[0], values[-1]) == pytest.approx(expected, abs=1e-6)

    def test_spread_amplifies_a_consolation_prize(self) -> None:
        values = row([0.01] * 7 + [0.05], "group_mean", "group_std")
        assert (values[0], values[-1]) == pytest.approx((-0.351, 2.457), abs=5e-4)

    def test_token_weighted_batch_statistics(self) -> None:
        rewards, valid, tokens = table([1.0, 0.0]), torch.ones(1, 2, dtype=torch.bool), torch.tensor([[3, 1]])
        assert batch_mean(rewards, valid, tokens)[0].tolist() == pytest.approx((0.25, -0.75), abs=1e-12)
        # four tokens 1 1 1 0: squared distances 3/16 + 9/16 = 3/4
        assert batch_std(rewards, valid, 1, tokens).item() == pytest.approx(0.5, abs=1e-12)
        assert batch_std(rewards, valid, 0, tokens).item() == pytest.approx(math.sqrt(3) / 4, abs=1e-12)


class TestTies:
    @pytest.mark.parametrize("baseline", ["batch_mean", "group_mean", "leave_one_out"])
    @pytest.mark.parametrize("scale", ["none", "group_std", "batch_std"])
    @pytest.mark.parametrize("epsilon", [0.0, 1e-4])
    @pytest.mark.parametrize("reward", [1.0, 0.0, 0.1, -7.3, 1e9])
    def test_tied_is_exactly_zero(self, baseline: str, scale: str, epsilon: float, reward: float) -> None:
        assert row([reward] * 7, baseline, scale, epsilon=epsilon) == [0.0] * 7

    @pytest.mark.parametrize("baseline", ["batch_mean", "group_mean", "leave_one_out"])
    def test_rounding_residue_is_a_tie(self, baseline: str) -> None:
        rewards = [0.3, 0.1 + 0.2, 0.3, 0.3]
        assert len(set(rewards)) == 2
        assert row(rewards, baseline, "group_std", epsilon=0.0) == [0.0] * 4
        assert tied(table(rewards), ALL).tolist() == [True]

    def test_a_tiny_real_difference_stays_small(self) -> None:
        values = row([0.35] * 7 + [0.350000001], "group_mean", "group_std")
        assert 0 < max(abs(value) for value in values) < 1e-4

    def test_all_zero_under_group_mean_scale(self) -> None:
        assert row([0.0] * 4, "group_mean", "group_mean", epsilon=0.0) == [0.0] * 4

    def test_unknown_divisor_gives_zero_even_without_baseline(self) -> None:
        assert row([1.0, 1.0], "none", "group_std") == [0.0, 0.0]

    def test_divided_leaves_no_infinity_behind_in_gradients(self) -> None:
        differences = torch.tensor([1.0, 2.0], requires_grad=True)
        (grad,) = torch.autograd.grad(divided(differences, torch.tensor([0.0, 2.0]), 0.0).sum(), differences)
        assert grad.tolist() == [0.0, 0.5]


class TestMissingMembers:
    def test_statistics_run_over_the_three_that_count(self) -> None:
        values = row([1.0, math.nan, 0.0, 0.0], "group_mean", "group_std", epsilon=0.0)
        assert values == pytest.approx((2 / math.sqrt(3), 0.0, -1 / math.sqrt(3), -1 / math.sqrt(3)), abs=1e-12)

    @pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out"])
    def test_a_group_of_one_has_no_advantage(self, baseline: str) -> None:
        assert row([5.0, math.nan], baseline, "none") == [0.0, 0.0]

    def test_an_empty_group_is_tied_and_zero(self) -> None:
        rewards, valid = table([1.0, 2.0]), torch.zeros(1, 2, dtype=torch.bool)
        for baseline in ("none", "batch_mean", "group_mean", "leave_one_out"):
            values = advantages(rewards, valid, baseline=baseline, scale="group_std" if baseline == "group_mean" else "none")
            assert values.tolist() == [[0.0, 0.0]]
        assert group_std(rewards, valid).tolist() == [[0.0]]
        assert tied(rewards, valid).tolist() == [True]

    def test_leave_one_out_uses_the_siblings_that_count(self) -> None:
        assert row([1.0, math.nan, 0.0, 0.5], "leave_one_out", "none") == pytest.approx((0.75, 0.0, -0.75, 0.0), abs=1e-12)

    def test_leave_one_out_leaves_all_of_an_owners_rewards_out(self) -> None:
        rewards, owner = table([1.0, 0.0, 0.5, 0.5]), torch.tensor([[0, 0, 1, 1]])
        assert leave_one_out(rewards, ALL, owner)[0].tolist() == pytest.approx((0.5, -0.5, 0.0, 0.0), abs=1e-12)

    def test_no_scale_is_one(self) -> None:
        assert no_scale(table([3.0, 4.0]), torch.ones(1, 2, dtype=torch.bool)).tolist() == [[1.0]]


@pytest.mark.parametrize(("baseline", "scale"), [("median", "none"), ("none", "range")])
def test_unknown_names_are_refused(baseline: str, scale: str) -> None:
    with pytest.raises(ValueError, match="known: baselines none, batch_mean"):
        advantages(table([1.0]), torch.ones(1, 1, dtype=torch.bool), baseline=baseline, scale=scale)


class TestExactEnumeration:
    """A policy over three answers; all groups that could be sampled, weighted by their probability."""

    PROBS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    REWARDS = torch.tensor([0.2, 1.0, -0.4], dtype=torch.float64)
    BINARY = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    def expected_gradient(self, rewards: Tensor, size: int, **choices: object) -> list[float]:
        """E[ (1/G) Σ A_i ∇ log π(y_i) ] in the logits."""
        total = torch.zeros(3, dtype=torch.float64)
        for answers in itertools.product(range(3), repeat=size):
            sampled = torch.tensor(answers)
            values = advantages(rewards[sampled][None], torch.ones(1, size, dtype=torch.bool), **choices)[0]  # type: ignore[arg-type]
            scores = torch.eye(3, dtype=torch.float64)[sampled] - self.PROBS
            total += self.PROBS[sampled].prod() * (values[:, None] * scores).mean(0)
        return [float(value) for value in total]

    def exact_gradient(self, rewards: Tensor) -> Tensor:
        """∇ E[r] in the logits: p_v (r_v - E r)."""
        return self.PROBS * (rewards - self.PROBS @ rewards)

    @pytest.mark.parametrize("size", [2, 3, 4])
    @pytest.mark.parametrize("baseline", ["none", "leave_one_out"])
    def test_exact_gradient(self, baseline: str, size: int) -> None:
        exact = self.exact_gradient(self.REWARDS).tolist()
        assert self.expected_gradient(self.REWARDS, size, baseline=baseline, scale="none") == pytest.approx(exact, abs=1e-12)

    @pytest.mark.parametrize("size", [2, 3, 4])
    @pytest.mark.parametrize("baseline", ["group_mean", "batch_mean"])
    def test_the_own_reward_in_the_baseline_shrinks_it(self, baseline: str, size: int) -> None:
        shrunk = (self.exact_gradient(self.REWARDS) * (1 - 1 / size)).tolist()
        assert self.expected_gradient(self.REWARDS, size, baseline=baseline, scale="none") == pytest.approx(shrunk, abs=1e-12)

    @pytest.mark.parametrize("size", [2, 3, 4])
    def test_maxrl_climbs_the_truncated_log_likelihood(self, size: int) -> None:
        """Σ_{k=1}^{G-1} (1-p)^(k-1) ∇p: the first G-1 terms of ∇ log p = ∇p / p."""
        p = float(self.PROBS @ self.BINARY)
        factor = sum((1 - p) ** (k - 1) for k in range(1, size))
        exact = (self.exact_gradient(self.BINARY) * factor).tolist()
        found = self.expected_gradient(self.BINARY, size, baseline="group_mean", scale="group_mean", epsilon=0.0)
        assert found == pytest.approx(exact, abs=1e-12)


class TestTokens:
    def test_reward_to_go(self) -> None:
        rewards = torch.tensor([0.0, -0.1, 0.0, 1.0], dtype=torch.float64)
        assert reward_to_go(rewards).tolist() == pytest.approx((0.9, 0.9, 1.0, 1.0), abs=1e-12)
        assert reward_to_go(rewards, gamma=0.5).tolist() == pytest.approx((0.075, 0.15, 0.5, 1.0), abs=1e-12)
        batch = rewards.repeat(2, 1)
        assert reward_to_go(batch, gamma=0.5)[1].tolist() == reward_to_go(rewards, gamma=0.5).tolist()

    def test_two_steps_that_end_on_one_token_add_up(self) -> None:
        values = step_advantages(torch.tensor([1.0, 2.0, -1.0]), torch.tensor([1, 1, 2]), num_tokens=4)
        assert values.tolist() == [2.0, 2.0, -1.0, 0.0]
