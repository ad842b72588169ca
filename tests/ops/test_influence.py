"""A model of two weights by hand: products, norms, clipping, steps and forecasts with the numbers worked out beside them."""

from __future__ import annotations

import math

import pytest
import torch

from toishi.ops import influence as maths
from toishi.ops import influence_bounds as bounds


def d(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


G = torch.stack([d(3.0, 4.0), d(0.0, 2.0), d(-1.0, 1.0)])  # three texts; the first two are learned from
K = G @ G.T
C = d(0.5, -1.0)
GAMMA = d(1.5, 0.0)  # 0.5·(3, 4) - 1·(0, 2)


def test_norm_from_products_is_that_of_the_direction() -> None:
    assert maths.direction_norm(K[:2, :2], C) == pytest.approx(1.5)
    fix = d(0.5, 2.0)  # gamma = (2, 2)
    assert maths.direction_norm(K[:2, :2], C, G[:2] @ fix, float(fix @ fix)) == pytest.approx(math.sqrt(8))


def test_a_gradient_within_the_limit_is_left_alone() -> None:
    assert maths.clip_scale(1.0, 1.0) == 1.0
    assert maths.clip_scale(4.0, 1.0) == 0.25


def test_shares_with_a_fixed_part() -> None:
    fix = d(0.5, 2.0)
    share_B, rest = maths.shares(K[:2, :2], C, G[:2] @ fix, float(fix @ fix))
    gamma = d(2.0, 2.0)  # shares: c_i <g_i, gamma> / 8 = .5·14/8, -1·4/8; rest <fix, gamma>/8 = 5/8
    assert share_B.tolist() == pytest.approx([0.875, -0.5])
    assert rest == pytest.approx(0.625)
    assert float(share_B.sum()) + rest == pytest.approx(1.0)
    assert float(gamma @ gamma) == 8.0


def test_nothing_pushes_nothing() -> None:
    share_B, rest = maths.shares(K[:2, :2], d(0.0, 0.0))
    assert share_B.tolist() == [0.0, 0.0]
    assert rest == 0.0


def test_sgd_moves_texts_along_the_direction() -> None:
    found = maths.sgd_changes(K[:, :2], C, scale=0.5, lr=0.1, fix_R=d(1.0, 0.0, 0.0), rest_R=d(0.0, 0.0, 7.0))
    assert found.tolist() == pytest.approx([0.1 * 0.5 * (4.5 + 1.0), 0.0, 0.1 * 0.5 * -1.5 + 7.0])
    pulled = maths.pulls(0.1 * K[:, :2], C, 0.5)
    assert pulled.sum(1).tolist() == pytest.approx([0.225, 0.0, -0.075])


def test_adam_is_torchs_adamw() -> None:
    """Three steps of torch on gradients of a loss; the sample's formulas are in the direction of ascent."""
    weight = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.0)
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for count, gradient in enumerate([d(-1.0, 0.1), d(0.3, 0.2), d(-0.5, 0.0)], start=1):
        before = weight.detach().clone()
        weight.grad = gradient.clone()
        optimizer.step()
        rule = maths.AdamRule(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-4, count=count)
        step = maths.adam_step(-gradient, mean.detach(), square.detach(), rule)
        assert step.tolist() == pytest.approx((weight.detach() - before).tolist(), rel=1e-12)
        mean, square = 0.8 * mean - 0.2 * gradient, 0.95 * square + 0.05 * gradient**2


def test_a_sample_is_right_on_average_and_knows_its_error() -> None:
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(1, 5000, dtype=torch.float64, generator=generator)
    step = torch.sign(torch.randn(5000, dtype=torch.float64, generator=generator) + 0.5 * gradient[0])
    truth = float(gradient[0] @ step)
    misses = []
    for _ in range(300):
        picked = torch.randint(5000, (500,), generator=generator)
        found = maths.sampled_product(gradient[:, picked], step[picked], 5000)
        misses.append((float(found.values_R) - truth) / float(found.errors_R))
    spread = torch.tensor(misses)
    assert abs(float(spread.mean())) < 0.2
    assert 0.85 < float(spread.std()) < 1.15


def test_the_difference_of_two_steps_has_its_own_smaller_error() -> None:
    rule = maths.AdamRule(lr=1.0, beta1=0.9, beta2=0.999, eps=1e-8, count=1)
    zero, sources = d(0.0, 0.0), torch.tensor([0, 1])
    _, real = maths.adam_sample_changes(G, sources, C, zero, zero, rule, scale=1.0, num_coordinates=2, complete=True)
    assert real.tolist() == pytest.approx([1.0, 0.0])
    changed = d(0.5, -2.0)  # gamma' = (1.5, -2): the first coordinate's sign stays, the second falls
    found, _ = maths.adam_sample_changes(
        G, sources, changed, zero, zero, rule, scale=1.0, num_coordinates=2, minus_I=real, complete=True
    )
    assert found.values_R.tolist() == pytest.approx([-4.0, -2.0, -1.0], rel=1e-6)
    assert found.errors_R.tolist() == [0.0, 0.0, 0.0]


def test_half_widths_by_hand() -> None:
    found = bounds.half_widths(d(0.01, 0.02), d(-0.03, 0.0), d(-2.0, 1.0), d(0.5, -0.25), length_ratio=2.0)
    assert found.tolist() == pytest.approx([0.02 + 0.12 + 0.05 * 2 * 0.5, 0.04 + 0.05 * 2 * 0.25])


def test_a_parabola_is_forecast_exactly() -> None:
    """change(x) = a x + b x² along one direction: measured at x = 1, forecast at 3."""
    a, b = 0.8, -0.1
    found = bounds.anchored(d(a + b), d(3 * a - a), d(b), length_ratio=3.0)
    assert found.tolist() == pytest.approx([3 * a + 9 * b])


def test_trust_by_size() -> None:
    assert [bounds.trust(size) for size in (0.0, 1.0, -1.01, 10.0, -10.5)] == [
        "straight",
        "straight",
        "bent",
        "bent",
        "too_far",
    ]


def test_gap() -> None:
    assert bounds.gap(d(3.0, 4.0), d(3.0, 4.0)) == 0.0
    assert bounds.gap(d(3.0, 4.0), d(0.0, 0.0)) == 1.0
    assert bounds.gap(d(0.0), d(0.0)) == 0.0


def test_advantages_by_part_add_up() -> None:
    """Rewards 2, 1, 0 = parts (1, 1), (1, 0), (0, 0); standard scores with divisor 1."""
    split, left = bounds.advantage_parts(torch.stack([d(1, 1), d(1, 0), d(0, 0)]), d(1.0, 0.0, -1.0))
    third = 1 / 3
    assert torch.stack([d(third, 2 * third), d(third, -third), d(-2 * third, -third)]).tolist() == [
        pytest.approx(row) for row in split.tolist()
    ]
    assert left.tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-15)


def test_advantages_that_no_part_explains_are_left_over() -> None:
    split, left = bounds.advantage_parts(torch.stack([d(1.0), d(1.0)]), d(0.5, -0.5))
    assert split.tolist() == [[0.0], [0.0]]
    assert left.tolist() == [0.5, -0.5]
