"""The value loss by hand, its gradient, and how much a critic explains."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from toishi.ops.values import value_loss
from toishi.ops.variance import explained_variance


def double(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "loss", "slope", "code"),
    [
        (0.5, 0.0, 1.0, None, 0.125, -0.5, 0),
        (0.5, 0.0, 1.0, 0.2, 0.32, 0.0, 2),  # came nearer by .5: counts as .2, (1 - .2)^2 / 2
        (-0.5, 0.0, -1.0, 0.2, 0.32, 0.0, 1),
        (0.1, 0.0, 1.0, 0.2, 0.405, -0.9, 0),  # inside
        (0.2, 0.0, 1.0, 0.2, 0.32, -0.8, 0),  # on the bound: free
        (-0.5, 0.0, 1.0, 0.2, 1.125, -1.5, 0),  # went away: the unclipped square is the larger one
        (1.5, 0.0, 1.0, 0.2, 0.32, 0.0, 2),  # went past it: .5 beyond is nearer than .8 below
        (3.0, 0.0, 1.0, 0.2, 2.0, 2.0, 0),  # far past it
    ],
)
def test_by_hand(value: float, old: float, target: float, clip: float | None, loss: float, slope: float, code: int) -> None:
    values = double(value).requires_grad_()
    found, codes = value_loss(values, double(old), double(target), clip)
    (gradient,) = torch.autograd.grad(found.sum(), values, materialize_grads=True)
    assert found.tolist() == pytest.approx([loss], abs=1e-12)
    assert gradient.tolist() == pytest.approx([slope], abs=1e-12)
    assert codes.tolist() == [code]


def test_is_the_larger_of_both_squares() -> None:
    generator = torch.Generator().manual_seed(0)
    values, old, targets = (torch.randn(200, generator=generator, dtype=torch.float64) for _ in range(3))
    clipped = values.clamp(old - 0.3, old + 0.3)
    wanted = 0.5 * torch.maximum((values - targets) ** 2, (clipped - targets) ** 2)
    torch.testing.assert_close(value_loss(values, old, targets, 0.3)[0], wanted, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("values", "returns", "share"),
    [
        ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], 1.0),
        ([7.0, 8.0, 9.0], [0.0, 1.0, 2.0], 1.0),  # a constant error is no spread
        ([0.5, 0.5], [0.0, 1.0], 0.0),
        ([1.0, 0.0], [0.0, 1.0], -3.0),  # errors -1, 1: variance 1 against 1/4
        ([1.0, 2.0], [3.0, 3.0], None),
        ([], [], None),
    ],
)
def test_explained_variance(values: list[float], returns: list[float], share: float | None) -> None:
    found = explained_variance(values, returns)
    assert found is share if share is None else found == pytest.approx(share)
