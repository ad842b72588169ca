"""The loss of a micro-batch: terms that switch on and off, and what is refused. Numbers of rows are in test_worked_step."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.toy import changed, evaluate, gradient, group, logits, loss_of, pack, worked_rollouts
from toishi.algorithms.apply import assign_advantages, counted, token_objective
from toishi.algorithms.rows import algorithm


def other_logits() -> torch.Tensor:
    return torch.tensor([[0.1, -0.4, 0.3, 0.0], [0.5, 0.2, -0.1, 0.7]], dtype=torch.float64)


def test_entropy_only_spreads_the_distributions_and_uses_no_reward() -> None:
    row, theta = changed("entropy_only", entropy_coef=0.5), logits()
    members = worked_rollouts(row)
    objective = loss_of(row, theta, members)
    _, entropy_N = evaluate(theta, pack(members))
    assert objective.loss.item() == pytest.approx(-0.5 * entropy_N.mean().item(), abs=1e-12)
    assert objective.policy_loss_N.tolist() == [0.0] * 7
    assert objective.clip_N.tolist() == [0] * 7
    spread = gradient(objective, theta)
    after = theta - spread
    assert evaluate(after, pack(members))[1].mean() > entropy_N.mean()
    same = counted(assign_advantages([group([0.0] * 4, [m.completion.token_ids for m in members])], row, max_new_tokens=2), row)
    assert torch.equal(gradient(loss_of(row, theta, same), theta), spread)


def test_loss_is_the_sum_of_its_recorded_parts() -> None:
    row = changed("grpo", kl="k2", kl_coef=0.3, entropy_coef=0.01)
    theta, members = logits(), worked_rollouts(row)
    objective = loss_of(row, theta, members, old=other_logits(), ref=other_logits() * 2)
    assert objective.kl_N is not None
    entropy = evaluate(theta, pack(members))[1].mean()
    total = (objective.weights_N * (objective.policy_loss_N + 0.3 * objective.kl_N)).sum() - 0.01 * entropy
    assert objective.loss.item() == pytest.approx(total.item(), abs=1e-12)
    for recorded in (objective.policy_loss_N, objective.ratio_N, objective.clip_N, objective.kl_N, objective.weights_N):
        assert not recorded.requires_grad


def test_kl_in_the_reward_is_reported_and_not_added() -> None:
    row, theta = changed("reinforce", kl="k1_in_reward", kl_coef=0.3), logits()
    plain = algorithm("reinforce")
    members = worked_rollouts(plain)
    objective = loss_of(row, theta, members, ref=other_logits())
    tokens = pack(members)
    expected = evaluate(theta, tokens)[0] - evaluate(other_logits(), tokens)[0]
    assert objective.kl_N is not None
    assert objective.kl_N.tolist() == pytest.approx(expected.tolist(), abs=1e-12)
    assert objective.loss.item() == pytest.approx(loss_of(plain, theta, members).loss.item(), abs=1e-12)


def test_a_coefficient_of_zero_reports_kl_without_a_gradient() -> None:
    row, theta = changed("grpo", kl="k3"), logits()
    members = worked_rollouts(row)
    with_reference = loss_of(row, theta, members, ref=other_logits())
    assert with_reference.kl_N is not None
    assert torch.equal(gradient(with_reference, theta), gradient(loss_of(row, theta, members), theta))


@pytest.mark.parametrize(("off_policy", "weights"), [("truncated_importance", (1.25, 0.5, 1.0)), ("mask", (0.0, 0.0, 1.0))])
def test_off_policy_correction_weighs_the_policy_term_alone(off_policy: str, weights: tuple[float, ...]) -> None:
    """Trainer over sampler is 2, .5 and 1; the cap is 1.25."""
    row = changed("reinforce", off_policy=off_policy, off_policy_cap=1.25, kl="k2", kl_coef=1.0)
    logprobs_N = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64)
    objective = token_objective(
        row,
        logprobs_N=logprobs_N,
        entropy_N=torch.zeros_like(logprobs_N),
        old_logprobs_N=logprobs_N,
        advantages_N=torch.ones_like(logprobs_N),
        sequence_N=torch.arange(3),
        lengths_B=torch.ones(3, dtype=torch.long),
        num_tokens=3,
        num_sequences=3,
        max_length=2,
        ref_logprobs_N=logprobs_N - 0.5,
        sampled_logprobs_N=logprobs_N - torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64).log(),
    )
    assert objective.correction_N is not None
    assert objective.correction_N.tolist() == pytest.approx(weights, abs=1e-12)
    expected = [weight * loss for weight, loss in zip(weights, (1.0, 2.0, 0.5), strict=True)]
    assert objective.policy_loss_N.tolist() == pytest.approx(expected, abs=1e-12)
    assert objective.kl_N is not None
    assert objective.kl_N.tolist() == pytest.approx([0.125] * 3, abs=1e-12)


def test_missing_streams_are_named() -> None:
    row = changed("grpo", off_policy="mask")
    with pytest.raises(ValueError, match="off_policy 'mask' needs sampled_logprobs_N"):
        loss_of(row, logits(), worked_rollouts(row))
    row = changed("grpo", kl="k3", kl_coef=0.1)
    with pytest.raises(ValueError, match=r"kl 'k3' with kl_coef=0.1 needs ref_logprobs_N"):
        loss_of(row, logits(), worked_rollouts(row))


def test_float32_stays_float32() -> None:
    row = algorithm("grpo")
    objective = loss_of(row, logits().float().detach().requires_grad_(), worked_rollouts(row))
    assert objective.loss.dtype == objective.weights_N.dtype == torch.float32


def test_a_divergence_without_a_teacher_is_refused() -> None:
    row = changed("grpo", divergence_coef=0.5)
    with pytest.raises(ValueError, match="needs divergence_N"):
        loss_of(row, logits(), worked_rollouts(row))
