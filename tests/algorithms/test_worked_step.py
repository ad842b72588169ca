"""Every number of one step done by hand: advantages, losses, gradients, probabilities after it, a second update, SFT."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.algorithms.toy import (
    ANSWERS,
    REWARDS,
    advantages_of,
    changed,
    evaluate,
    gradient,
    group,
    logits,
    loss_of,
    pack,
    worked_rollouts,
)
from toishi.algorithms.apply import assign_advantages, counted
from toishi.algorithms.rows import Algorithm, algorithm

CLOSE = 1e-6
GRPO_PAPER = changed("grpo", std_ddof=0, std_epsilon=0.0)
DAPO_PAPER = changed("dapo", std_ddof=0, std_epsilon=0.0)
TRL_DEFAULT = changed("dapo", clip_high=0.2)
STEP_SIZE = 2.0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (GRPO_PAPER, (1.414214, 0.471405, -0.942809, -0.942809)),
        (algorithm("grpo"), (1.224245, 0.408082, -0.816163, -0.816163)),
        (algorithm("dr_grpo"), (0.3, 0.1, -0.2, -0.2)),
        (algorithm("rloo"), (0.4, 0.133333, -0.266667, -0.266667)),
    ],
)
def test_advantages(row: Algorithm, expected: tuple[float, ...]) -> None:
    assert advantages_of([group(REWARDS, ANSWERS)], row)[0] == pytest.approx(expected, abs=CLOSE)


FIRST_UPDATE = [
    (GRPO_PAPER, 0.0, (-0.223917, -0.094281, 0.094281, 0.223917), (0.011785, 0.011785, 0.023570, -0.047140)),
    (DAPO_PAPER, -0.134687, (-0.202031, -0.067344, 0.134687, 0.134687), (0.013469, 0.013469, 0.026937, -0.053875)),
    (algorithm("dr_grpo"), -0.025, (-0.0375, -0.0125, 0.025, 0.025), (0.0025, 0.0025, 0.005, -0.01)),
    (TRL_DEFAULT, -0.116595, (-0.174892, -0.058297, 0.116595, 0.116595), (0.011659, 0.011659, 0.023319, -0.046638)),
]


@pytest.mark.parametrize(("row", "loss", "first", "second"), FIRST_UPDATE)
def test_first_update(row: Algorithm, loss: float, first: tuple[float, ...], second: tuple[float, ...]) -> None:
    theta = logits()
    objective = loss_of(row, theta, worked_rollouts(row))
    assert objective.loss.item() == pytest.approx(loss, abs=CLOSE)
    grad = gradient(objective, theta)
    assert grad[0].tolist() == pytest.approx(first, abs=CLOSE)
    assert grad[1].tolist() == pytest.approx(second, abs=CLOSE)
    assert objective.clip_N.tolist() == [0] * 7
    assert objective.ratio_N.tolist() == [1.0] * 7


def after_one_step() -> Tensor:
    theta = logits()
    grad = gradient(loss_of(GRPO_PAPER, theta, worked_rollouts(GRPO_PAPER)), theta)
    return (theta - STEP_SIZE * grad).detach().requires_grad_()


def expected_reward(probs: Tensor) -> float:
    """An answer's reward is fixed by its first token."""
    return float(probs[0] @ torch.tensor(REWARDS, dtype=torch.float64))


def test_probabilities_after_a_gradient_step() -> None:
    before, after = logits().softmax(-1).detach(), after_one_step().softmax(-1).detach()
    assert after[0].tolist() == pytest.approx((0.514035, 0.297477, 0.136013, 0.052475), abs=CLOSE)
    assert after[1].tolist() == pytest.approx((0.093424, 0.093424, 0.182496, 0.630656), abs=CLOSE)
    assert expected_reward(before) == pytest.approx(0.59, abs=CLOSE)
    assert expected_reward(after) == pytest.approx(0.646261, abs=CLOSE)
    assert float((after[0] * (after[0] / before[0]).log()).sum()) == pytest.approx(0.040142, abs=CLOSE)
    first_token = pack(worked_rollouts(GRPO_PAPER))
    assert evaluate(logits(), first_token)[1][0].item() == pytest.approx(1.279854, abs=CLOSE)
    assert evaluate(after_one_step(), first_token)[1][0].item() == pytest.approx(1.128750, abs=CLOSE)


def test_second_update_on_the_same_samples() -> None:
    theta = after_one_step()
    objective = loss_of(GRPO_PAPER, theta, worked_rollouts(GRPO_PAPER), old=logits())
    second = 1.051093
    assert objective.ratio_N.tolist() == pytest.approx(
        (1.285089, second, 0.991591, second, 0.680064, second, 0.524746), abs=CLOSE
    )
    assert objective.clip_N.tolist() == [2, 0, 0, 0, 1, 0, 1]
    assert (objective.clip_N > 0).double().mean().item() == pytest.approx(0.428571, abs=CLOSE)
    assert objective.loss.item() == pytest.approx(-0.111592, abs=CLOSE)
    grad = gradient(objective, theta)
    assert grad[0].tolist() == pytest.approx((0.030035, -0.041048, 0.007947, 0.003066), abs=CLOSE)
    assert grad[1].tolist() == pytest.approx((0.011573, 0.011573, 0.022606, -0.045752), abs=CLOSE)


@pytest.mark.parametrize(
    ("kl", "loss", "first"),
    [
        ("k3", -0.108396, (0.036461, -0.038014, 0.007002, -0.005448)),
        ("ratio_k3", -0.109729, (0.033253, -0.040161, 0.007061, -0.000154)),
    ],
)
def test_second_update_with_kl_to_the_initial_policy(kl: str, loss: float, first: tuple[float, ...]) -> None:
    row = changed("grpo", std_ddof=0, std_epsilon=0.0, kl=kl, kl_coef=0.04)
    theta = after_one_step()
    objective = loss_of(row, theta, worked_rollouts(row), old=logits(), ref=logits())
    assert objective.loss.item() == pytest.approx(loss, abs=CLOSE)
    assert gradient(objective, theta)[0].tolist() == pytest.approx(first, abs=CLOSE)


def test_kl_per_token_and_token_mean() -> None:
    row = changed("grpo", kl="k3", kl_coef=0.04)
    plain = loss_of(row, after_one_step(), worked_rollouts(row), old=logits(), ref=logits()).kl_N
    assert plain is not None
    second = 0.001221
    assert plain.tolist() == pytest.approx((0.028984, second, 0.000036, second, 0.084882, second, 0.260843), abs=CLOSE)
    assert plain.mean().item() == pytest.approx(0.054058, abs=CLOSE)
    weighted_row = changed("grpo", kl="ratio_k3", kl_coef=0.04)
    weighted = loss_of(weighted_row, after_one_step(), worked_rollouts(weighted_row), old=logits(), ref=logits()).kl_N
    assert weighted is not None
    assert weighted.mean().item() == pytest.approx(0.033676, abs=CLOSE)


def test_gspo_second_update_is_held_everywhere() -> None:
    row = changed("gspo", std_ddof=0, std_epsilon=0.0)
    theta = after_one_step()
    objective = loss_of(row, theta, worked_rollouts(row), old=logits())
    one_per_answer = objective.ratio_N[torch.tensor([0, 2, 4, 6])]
    assert one_per_answer.tolist() == pytest.approx((1.162217, 1.020909, 0.845465, 0.524746), abs=CLOSE)
    assert objective.loss.item() == pytest.approx(-0.000330, abs=CLOSE)
    assert gradient(objective, theta).abs().max().item() == 0.0
    assert objective.clip_N.tolist() == [2, 2, 2, 2, 1, 1, 1]


def test_cispo_second_update_drops_nothing() -> None:
    row = changed("cispo", std_ddof=0, std_epsilon=0.0)
    theta = after_one_step()
    objective = loss_of(row, theta, worked_rollouts(row), old=logits())
    assert objective.loss.item() == pytest.approx(-0.072051, abs=CLOSE)
    assert gradient(objective, theta)[0].tolist() == pytest.approx((-0.175257, -0.017952, 0.113920, 0.079289), abs=CLOSE)
    assert objective.clip_N.tolist() == [0] * 7


def mean_nll(theta: Tensor, answer: tuple[int, ...]) -> Tensor:
    """Supervised fine-tuning on one answer: RAFT with that answer kept and nothing else."""
    row = algorithm("raft")
    kept = counted(assign_advantages([group([1.0], [answer])], row, max_new_tokens=2), row)
    return loss_of(row, theta, kept).loss


def test_the_same_prompt_under_sft() -> None:
    theta = logits()
    nll = mean_nll(theta, ANSWERS[0])
    assert nll.item() == pytest.approx(0.713558, abs=CLOSE)
    (grad,) = torch.autograd.grad(nll, theta)
    assert grad[0].tolist() == pytest.approx((-0.3, 0.15, 0.1, 0.05), abs=CLOSE)
    assert grad[1].tolist() == pytest.approx((0.05, 0.05, 0.1, -0.2), abs=CLOSE)
    after = (theta - STEP_SIZE * grad).detach()
    probs = after.softmax(-1)
    assert probs[0].tolist() == pytest.approx((0.604691, 0.184387, 0.135853, 0.075070), abs=CLOSE)
    assert probs[1].tolist() == pytest.approx((0.072982, 0.072982, 0.132074, 0.721962), abs=CLOSE)
    assert mean_nll(after, ANSWERS[0]).item() == pytest.approx(0.414410, abs=CLOSE)
    assert expected_reward(probs) == pytest.approx(0.657661, abs=CLOSE)


def test_first_grpo_update_is_sft_on_own_samples_with_signed_weights() -> None:
    theta = logits()
    signed = torch.zeros_like(theta)
    for advantage, answer in zip((1.414213562, 0.471404521, -0.942809042, -0.942809042), ANSWERS, strict=True):
        signed = signed + advantage / 4 * torch.autograd.grad(mean_nll(theta, answer), theta)[0]
    assert signed[0].tolist() == pytest.approx((-0.223917, -0.094281, 0.094281, 0.223917), abs=CLOSE)
    grad = gradient(loss_of(GRPO_PAPER, theta, worked_rollouts(GRPO_PAPER)), theta)
    assert grad.tolist() == [pytest.approx(row, abs=1e-8) for row in signed.tolist()]


@pytest.mark.parametrize(("row", "loss", "first", "second"), FIRST_UPDATE)
def test_first_adam_step_has_the_size_of_the_learning_rate(
    row: Algorithm, loss: float, first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    theta = logits()
    optimizer = torch.optim.Adam([theta], lr=0.1)
    theta.grad = gradient(loss_of(row, theta, worked_rollouts(row)), theta)
    before = theta.detach().clone()
    optimizer.step()
    assert (theta - before)[0].tolist() == pytest.approx((0.1, 0.1, -0.1, -0.1), abs=CLOSE)
