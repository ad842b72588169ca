"""Off-policy weights and gap statistics against written-out arithmetic."""

from __future__ import annotations

import math

import pytest
import torch

from toishi.ops.offpolicy import effective_sample_size, gap_statistics, mask, truncated_importance

TRAINER = torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=torch.float64)
GAPS = (0.0, math.log(3), -math.log(3), math.log(1.5))
SAMPLER = TRAINER - torch.tensor(GAPS, dtype=torch.float64)


def test_truncated_importance_caps_above_only() -> None:
    assert truncated_importance(TRAINER, SAMPLER, 2.0).tolist() == pytest.approx((1.0, 2.0, 1 / 3, 1.5), abs=1e-12)


def test_mask_drops_both_sides_and_keeps_the_weight_inside() -> None:
    assert mask(TRAINER, SAMPLER, 2.0).tolist() == pytest.approx((1.0, 0.0, 0.0, 1.5), abs=1e-12)


@pytest.mark.parametrize("correction", [truncated_importance, mask])
def test_weights_are_constants(correction: object) -> None:
    trainer = TRAINER.clone().requires_grad_()
    assert callable(correction)
    assert not correction(trainer, SAMPLER, 2.0).requires_grad


def test_effective_sample_size() -> None:
    assert effective_sample_size(torch.tensor(GAPS)) == pytest.approx((35 / 6) ** 2 / (4 * (1 + 9 + 1 / 9 + 2.25)), abs=1e-6)
    assert effective_sample_size(torch.tensor([700.0, 700.0 - 800.0])) == pytest.approx(0.5)


def test_gap_statistics() -> None:
    found = gap_statistics(TRAINER, SAMPLER)
    log3, log15 = math.log(3), math.log(1.5)
    assert found["mean_abs"] == pytest.approx((2 * log3 + log15) / 4, abs=1e-12)
    assert found["max_abs"] == pytest.approx(log3, abs=1e-12)
    assert found["weight_mean"] == pytest.approx(35 / 24, abs=1e-12)
    assert found["weight_max"] == pytest.approx(3.0, abs=1e-12)
    k3 = ((3 - log3 - 1) + (1 / 3 + log3 - 1) + (1.5 - log15 - 1)) / 4
    assert found["kl_sampler_trainer_k3"] == pytest.approx(k3, abs=1e-12)
    assert found["effective_sample_size"] == pytest.approx(effective_sample_size(torch.tensor(GAPS)), abs=1e-6)
