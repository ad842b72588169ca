"""Preference losses: numbers worked out by hand, slopes against float64 autograd."""

from __future__ import annotations

import math

import pytest
import torch

from toishi.ops.preference import PREFERENCES, sigmoid_loss


def test_dpo_by_hand() -> None:
    # c = 1, r = -1, beta = .1: h = .2, loss = log(1 + e^-.2) = .598139, sigma(-.2) = .450166
    found = sigmoid_loss(1.0, -1.0, 3, 4, 0.1, 0.0)
    assert found.loss == pytest.approx(0.5981388693815918, abs=1e-12)
    assert found.by_chosen == pytest.approx(-0.0450166002687522, abs=1e-12)
    assert found.by_rejected == pytest.approx(0.0450166002687522, abs=1e-12)


def test_smoothing_by_hand() -> None:
    # epsilon = .1: .9 * .598139 + .1 * log(1 + e^.2) = .9 * .598139 + .1 * .798139
    found = sigmoid_loss(1.0, -1.0, 3, 4, 0.1, 0.1)
    assert found.loss == pytest.approx(0.9 * 0.5981388693815918 + 0.1 * 0.7981388693815918, abs=1e-12)
    assert found.by_chosen == pytest.approx(-0.1 * (0.45016600268752216 - 0.1), abs=1e-12)


@pytest.mark.parametrize("kind", PREFERENCES)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_slopes_are_those_of_autograd(kind: str, smoothing: float) -> None:
    c, r = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.7, -0.4))
    beta, chosen, rejected = 0.3, 5, 2
    if kind == "sigmoid":
        h = beta * (c - r)
        loss = -(1 - smoothing) * torch.nn.functional.logsigmoid(h) - smoothing * torch.nn.functional.logsigmoid(-h)
    else:
        loss = (c / chosen - r / rejected - 1 / (2 * beta)) ** 2
    by_c, by_r = torch.autograd.grad(loss, [c, r])
    found = PREFERENCES[kind](1.7, -0.4, chosen, rejected, beta, smoothing)
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    assert (found.by_chosen, found.by_rejected) == pytest.approx((by_c.item(), by_r.item()), rel=1e-12)


@pytest.mark.parametrize("far", [5e3, -5e3])
def test_pairs_far_apart_stay_finite(far: float) -> None:
    found = sigmoid_loss(far, 0.0, 1, 1, 1.0, 0.0)
    assert math.isfinite(found.loss)
    assert found.loss == pytest.approx(max(0.0, -far))
    assert found.by_chosen == pytest.approx(-1.0 if far < 0 else 0.0)
