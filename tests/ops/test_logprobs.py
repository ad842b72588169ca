"""Log-probs and entropies against closed forms and finite differences."""

from __future__ import annotations

import math

import pytest
import torch

from toishi.ops.logprobs import logprobs_and_entropy, token_logprobs

LOGITS = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], dtype=torch.float64)
TARGETS = torch.tensor([2, 0])


@pytest.mark.parametrize("temperature", [0.6, 1.0, 2.5])
def test_against_the_definition(temperature: float) -> None:
    logprobs, entropy = logprobs_and_entropy(LOGITS, TARGETS, temperature)
    for row, target, logprob, spread in zip(
        LOGITS.tolist(), TARGETS.tolist(), logprobs.tolist(), entropy.tolist(), strict=True
    ):
        masses = [math.exp(value / temperature) for value in row]
        probs = [mass / math.fsum(masses) for mass in masses]
        assert logprob == pytest.approx(math.log(probs[target]), abs=1e-14)
        assert spread == pytest.approx(-math.fsum(p * math.log(p) for p in probs), abs=1e-14)
    assert token_logprobs(LOGITS, TARGETS, temperature).tolist() == logprobs.tolist()


def test_gradient_is_that_of_finite_differences() -> None:
    logits = LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: logprobs_and_entropy(z, TARGETS, 0.7), (logits,))


def test_impossible_tokens_add_nothing_to_value_or_gradient() -> None:
    logits = torch.tensor([[0.0, -math.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    logprobs, entropy = logprobs_and_entropy(logits, torch.tensor([0]), 1.0)
    two = torch.tensor([[0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    same_logprobs, same_entropy = logprobs_and_entropy(two, torch.tensor([0]), 1.0)
    assert (logprobs.item(), entropy.item()) == pytest.approx((same_logprobs.item(), same_entropy.item()), abs=1e-15)
    (grad,) = torch.autograd.grad(entropy.sum() + logprobs.sum(), logits)
    (same,) = torch.autograd.grad(same_entropy.sum() + same_logprobs.sum(), two)
    assert grad[0, [0, 2]].tolist() == pytest.approx(same[0].tolist(), abs=1e-15)
    assert grad[0, 1].item() == 0.0


def test_a_confident_token_keeps_the_digits_of_its_gradient() -> None:
    """p = 1 - 1e-6: in float32 1 - p holds one digit when it is subtracted, as torch's log_softmax does."""
    gap = math.log(2e6)  # against two others at 0
    missed = 2 / (2 + math.exp(torch.tensor(gap).item()))
    logits = torch.tensor([[0.0, gap, 0.0]], requires_grad=True)
    for found in (token_logprobs(logits, torch.tensor([1]), 1.0), logprobs_and_entropy(logits, torch.tensor([1]), 1.0)[0]):
        (gradient,) = torch.autograd.grad(found.sum(), logits)
        assert found.item() == pytest.approx(math.log1p(-missed), rel=1e-5)
        assert gradient[0].tolist() == pytest.approx([-missed / 2, missed, -missed / 2], rel=2e-6)
    (subtracted,) = torch.autograd.grad(torch.log_softmax(logits, -1)[0, 1], logits)
    assert abs(subtracted[0, 1].item() / missed - 1) > 1e-2


def test_a_token_that_cannot_be_drawn_has_a_very_low_logprob_and_leaves_the_entropy_alone() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    logprobs, entropy = logprobs_and_entropy(logits, torch.tensor([1]), 1.0)
    assert logprobs.item() < -1e29
    assert entropy.item() == pytest.approx(math.log(2))


def test_half_precision_logits_are_raised_to_float32() -> None:
    logprobs, entropy = logprobs_and_entropy(LOGITS.bfloat16(), TARGETS, 1.0)
    assert logprobs.dtype == entropy.dtype == torch.float32
    exact, _ = logprobs_and_entropy(LOGITS, TARGETS, 1.0)  # these logits are exact in bfloat16
    assert logprobs.tolist() == pytest.approx(exact.tolist(), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperature_must_be_positive(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        token_logprobs(LOGITS, TARGETS, temperature)
