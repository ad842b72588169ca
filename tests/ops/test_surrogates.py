"""Ratios and surrogates: values, gradients and codes in every branch, on both sides of each bound."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from toishi.ops.surrogates import FREE, HELD_DUAL, HELD_HIGH, HELD_LOW, SURROGATES, importance_ratio

LOW, HIGH, DUAL = 0.2, 0.3, 3.0


def run(name: str, ratio: float, advantage: float) -> list[float]:
    """Loss, d loss / d logprob and code of one token whose old log-prob is log .1."""
    old = torch.tensor([math.log(0.1)], dtype=torch.float64)
    logprobs = (old + math.log(ratio)).requires_grad_()
    ratio_N = importance_ratio(logprobs, old, torch.tensor([0]), 1, "token")
    loss_N, clip_N = SURROGATES[name](logprobs, ratio_N, torch.tensor([advantage], dtype=torch.float64), LOW, HIGH, DUAL)
    (grad,) = torch.autograd.grad(loss_N.sum(), logprobs)
    assert clip_N.dtype == torch.int8
    return [loss_N.item(), grad.item(), clip_N.item()]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "code"),
    [
        (1.0, 2.0, -2.0, -2.0, FREE),
        (1.25, 2.0, -2.5, -2.5, FREE),
        (1.4, 2.0, -2.6, 0.0, HELD_HIGH),
        (0.5, 2.0, -1.0, -1.0, FREE),
        (1.4, -2.0, 2.8, 2.8, FREE),
        (0.7, -2.0, 1.6, 0.0, HELD_LOW),
        (0.9, -2.0, 1.8, 1.8, FREE),
        (5.0, -2.0, 10.0, 10.0, FREE),
        (5.0, 0.0, 0.0, 0.0, FREE),
    ],
)
def test_clipped(ratio: float, advantage: float, loss: float, gradient: float, code: int) -> None:
    assert run("clipped", ratio, advantage) == pytest.approx([loss, gradient, code])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "code"),
    [
        (5.0, -2.0, 6.0, 0.0, HELD_DUAL),
        (2.9, -2.0, 5.8, 5.8, FREE),
        (0.7, -2.0, 1.6, 0.0, HELD_LOW),
        (5.0, 2.0, -2.6, 0.0, HELD_HIGH),
    ],
)
def test_dual_clip(ratio: float, advantage: float, loss: float, gradient: float, code: int) -> None:
    assert run("dual_clip", ratio, advantage) == pytest.approx([loss, gradient, code])


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "code"),
    [(1.1, 2.0, 1.1, FREE), (1.4, 2.0, 1.3, HELD_HIGH), (1.4, -2.0, 1.3, HELD_HIGH), (0.5, 2.0, 0.8, HELD_LOW)],
)
def test_stop_gradient_caps_the_weight_and_keeps_the_token(ratio: float, advantage: float, weight: float, code: int) -> None:
    logprob = math.log(0.1 * ratio)
    expected = [-weight * advantage * logprob, -weight * advantage, code]
    assert run("stop_gradient", ratio, advantage) == pytest.approx(expected)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 9.0])
def test_score_function_ignores_the_ratio(ratio: float) -> None:
    assert run("score_function", ratio, 2.0) == pytest.approx([-2.0 * math.log(0.1 * ratio), -2.0, FREE])


def test_a_token_exactly_on_the_bound_is_free() -> None:
    logprobs = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    ratio = torch.tensor([1.25, 0.75], dtype=torch.float64) * logprobs.exp()
    loss, clip = SURROGATES["clipped"](logprobs, ratio, torch.tensor([1.0, -1.0], dtype=torch.float64), 0.25, 0.25, DUAL)
    assert clip.tolist() == [FREE, FREE]
    assert torch.autograd.grad(loss.sum(), logprobs)[0].tolist() == [-1.25, 0.75]


class TestRatio:
    NEW = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64)
    OLD = torch.tensor([-1.3, -1.9, -0.7], dtype=torch.float64)
    SEQUENCE = torch.tensor([1, 0, 1])

    def ratio(self, level: str) -> tuple[Tensor, Tensor]:
        """Ratios, and the gradient of the first token's ratio."""
        new = self.NEW.clone().requires_grad_()
        ratio_N = importance_ratio(new, self.OLD, self.SEQUENCE, 3, level)
        return ratio_N.detach(), torch.autograd.grad(ratio_N[0], new)[0]

    @pytest.mark.parametrize(
        ("level", "exponents", "share"),
        [
            ("token", (0.3, -0.1, 0.2), (1.0, 0.0, 0.0)),
            ("sequence_mean", (0.25, -0.1, 0.25), (0.5, 0.0, 0.5)),
            ("sequence_sum", (0.5, -0.1, 0.5), (1.0, 0.0, 1.0)),
        ],
    )
    def test_values_and_gradients(self, level: str, exponents: tuple[float, ...], share: tuple[float, ...]) -> None:
        ratio, gradient = self.ratio(level)
        assert ratio.tolist() == pytest.approx([math.exp(e) for e in exponents], abs=1e-12)
        assert gradient.tolist() == pytest.approx([math.exp(exponents[0]) * s for s in share], abs=1e-12)

    def test_the_old_policy_gets_no_gradient(self) -> None:
        old = self.OLD.clone().requires_grad_()
        assert not importance_ratio(self.NEW, old, self.SEQUENCE, 2, "token").requires_grad

    @pytest.mark.parametrize("level", ["token", "sequence_sum"])
    @pytest.mark.parametrize("drift", [-500.0, 500.0])
    def test_a_ratio_beyond_float32_is_held_without_nan(self, level: str, drift: float) -> None:
        new = torch.tensor([drift], requires_grad=True)
        ratio_N = importance_ratio(new, torch.zeros(1), torch.tensor([0]), 1, level)
        advantage = torch.tensor([1.0 if drift > 0 else -1.0])
        loss_N, clip_N = SURROGATES["clipped"](new, ratio_N, advantage, LOW, HIGH, DUAL)
        assert loss_N.item() == pytest.approx(-1.3 if drift > 0 else 0.8)
        assert clip_N.item() == (HELD_HIGH if drift > 0 else HELD_LOW)
        assert torch.autograd.grad(loss_N.sum(), new)[0].item() == 0.0

    def test_unknown_level(self) -> None:
        with pytest.raises(ValueError, match="unknown ratio level 'word'; known: token, sequence_mean, sequence_sum"):
            importance_ratio(self.NEW, self.OLD, self.SEQUENCE, 2, "word")
