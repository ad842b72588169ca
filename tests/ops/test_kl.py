"""KL estimators against exact enumeration over the vocabulary: the policy after the worked step, the reference before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from toishi.ops import kl

REFERENCE = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
POLICY = torch.tensor([0.514035, 0.297477, 0.136013, 0.052475], dtype=torch.float64)
SAMPLER = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
REVERSE = (0.108300, -0.014454, -0.057902, -0.035944)
FORWARD = (0.114035, -0.002523, -0.063987, -0.047525)
Estimator = Callable[[Tensor, Tensor], Tensor]


def on_policy_ratio_k3(logprobs: Tensor, ref: Tensor) -> Tensor:
    return kl.ratio_k3(logprobs, ref, (logprobs - logprobs.detach()).exp())


def expectation(estimator: Estimator, sampler: Tensor | None = None) -> tuple[float, list[float]]:
    """Exact expected value and expected gradient (in the policy's logits) over all tokens that could be sampled."""
    logits = POLICY.log().requires_grad_()
    values = estimator(logits.log_softmax(-1), REFERENCE.log())
    weights = POLICY / POLICY.sum() if sampler is None else sampler
    mean = (weights * values).sum()
    return mean.item(), torch.autograd.grad(mean, logits)[0].tolist()


def exact(loss: Callable[[Tensor], Tensor]) -> tuple[float, list[float]]:
    logits = POLICY.log().requires_grad_()
    value = loss(logits.log_softmax(-1))
    return value.item(), torch.autograd.grad(value, logits)[0].tolist()


KL_POLICY_REF = exact(lambda logprobs: (logprobs.exp() * (logprobs - REFERENCE.log())).sum())
KL_REF_POLICY = exact(lambda logprobs: (REFERENCE * (REFERENCE.log() - logprobs)).sum())


def test_the_exact_gradients_are_the_hand_numbers() -> None:
    assert KL_POLICY_REF[0] == pytest.approx(0.040142, abs=2e-6)
    assert KL_POLICY_REF[1] == pytest.approx(REVERSE, abs=2e-6)
    assert KL_REF_POLICY[1] == pytest.approx(FORWARD, abs=2e-6)


@pytest.mark.parametrize("estimator", [kl.k1, kl.k3, on_policy_ratio_k3])
def test_unbiased_values(estimator: Estimator) -> None:
    assert expectation(estimator)[0] == pytest.approx(KL_POLICY_REF[0], abs=1e-12)


def test_k2_value_is_biased() -> None:
    assert abs(expectation(kl.k2)[0] - KL_POLICY_REF[0]) > 1e-3


@pytest.mark.parametrize(
    ("estimator", "gradient"),
    [
        (kl.k1, [0.0] * 4),
        (kl.k2, KL_POLICY_REF[1]),
        (kl.k3, KL_REF_POLICY[1]),
        (on_policy_ratio_k3, KL_POLICY_REF[1]),
    ],
)
def test_expected_gradients(estimator: Estimator, gradient: list[float]) -> None:
    assert expectation(estimator)[1] == pytest.approx(gradient, abs=1e-12)


def test_ratio_k3_is_exact_for_tokens_of_another_policy() -> None:
    value, gradient = expectation(
        lambda logprobs, ref: kl.ratio_k3(logprobs, ref, (logprobs - SAMPLER.log()).exp()), sampler=SAMPLER
    )
    assert value == pytest.approx(KL_POLICY_REF[0], abs=1e-12)
    assert gradient == pytest.approx(KL_POLICY_REF[1], abs=1e-12)


def test_a_detached_ratio_loses_the_direction() -> None:
    _, gradient = expectation(lambda logprobs, ref: kl.ratio_k3(logprobs, ref, torch.ones_like(logprobs)))
    assert gradient == pytest.approx(KL_REF_POLICY[1], abs=1e-12)
