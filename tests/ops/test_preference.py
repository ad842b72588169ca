"""Preference losses: numbers worked out by hand, slopes against float64 autograd."""

from __future__ import annotations

import math

import pytest
import torch

from toishi.ops.preference import PREFERENCES, centred, sigmoid_loss


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


def test_bradley_terry_with_margin_and_centring_by_hand() -> None:
    # r+ = 1.2, r- = .4, m = .5: h = .3, -log sigma(.3) = log(1 + e^-.3) = .554355; + .1 (1.6)^2 = .256
    plain = sigmoid_loss(1.2, 0.4, 1, 1, 1.0, 0.0, margin=0.5)
    found = centred(plain, 1.2, 0.4, 0.1)
    assert plain.loss == pytest.approx(0.5543552444685272, abs=1e-12)
    assert found.loss == pytest.approx(0.8103552444685272, abs=1e-12)
    # sigma(-.3) = .425557; slopes -+.425557 + 2 * .1 * 1.6
    assert found.by_chosen == pytest.approx(-0.425557483188341 + 0.32, abs=1e-12)
    assert found.by_rejected == pytest.approx(0.425557483188341 + 0.32, abs=1e-12)


@pytest.mark.parametrize("kind", PREFERENCES)
@pytest.mark.parametrize(("smoothing", "margin", "factor"), [(0.0, 0.0, 0.0), (0.2, 0.7, 0.0), (0.0, -0.3, 0.25)])
def test_slopes_are_those_of_autograd(kind: str, smoothing: float, margin: float, factor: float) -> None:
    c, r = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.7, -0.4))
    beta, chosen, rejected = 0.3, 5, 2
    if kind == "sigmoid":
        h = beta * (c - r) - margin
        loss = -(1 - smoothing) * torch.nn.functional.logsigmoid(h) - smoothing * torch.nn.functional.logsigmoid(-h)
    else:
        loss = (c / chosen - r / rejected - 1 / (2 * beta) - margin) ** 2
    loss = loss + factor * (c + r) ** 2
    by_c, by_r = torch.autograd.grad(loss, [c, r])
    found = centred(PREFERENCES[kind](1.7, -0.4, chosen, rejected, beta, smoothing, margin), 1.7, -0.4, factor)
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    assert (found.by_chosen, found.by_rejected) == pytest.approx((by_c.item(), by_r.item()), rel=1e-12)


@pytest.mark.parametrize("far", [5e3, -5e3])
def test_pairs_far_apart_stay_finite(far: float) -> None:
    found = sigmoid_loss(far, 0.0, 1, 1, 1.0, 0.0)
    assert math.isfinite(found.loss)
    assert found.loss == pytest.approx(max(0.0, -far))
    assert found.by_chosen == pytest.approx(-1.0 if far < 0 else 0.0)
