"""How far an account of a step or a forecast of another one may be trusted, and an advantage by reward part.

Symbols as in `influence`: D_j measured change of a text (nats), d_j first-order change, q_j = D_j - d_j what bends, Δθ the
weights' change; a prime marks the step that is forecast.

Decisions:
1. The real step is measured. A straight-line account explains it, and what the account leaves over is shown.
2. Every forecast is anchored at the measured step and has a half-width; a change within it has no sign.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

KAPPA = 0.05
"""Relative error of a straight-line account for each nat of the largest change; near the worst that was measured."""
STRAIGHT_NATS, TOO_FAR_NATS = 1.0, 10.0

Trust = Literal["straight", "bent", "too_far"]


def anchored(measured_R: Tensor, difference_R: Tensor, curvature_R: Tensor, length_ratio: float) -> Tensor:
    """Forecast of each text's change (nats), held fast at the step that was really taken.

        D'_j = D_j + (d'_j - d_j) + q_j · (|Δθ'|²/|Δθ|² - 1)

    measured_R    D_j of the real step
    difference_R  d'_j - d_j to first order
    curvature_R   q_j = D_j - d_j of the real step: grows with the square of the step's length
    length_ratio  |Δθ'| / |Δθ|

    >>> round(anchored(torch.tensor([0.9]), torch.tensor([0.5]), torch.tensor([-0.1]), 2.0).item(), 4)
    1.1
    """
    return measured_R + difference_R + curvature_R * (length_ratio**2 - 1.0)


def half_widths(
    errors_R: Tensor,
    curvature_R: Tensor,
    forecast_R: Tensor,
    difference_R: Tensor,
    length_ratio: float,
    kappa: float = KAPPA,
) -> Tensor:
    """How far each forecast may be off (nats), [R].

        2 se_j + |q_j| · max(1, |Δθ'|²/|Δθ|²) + kappa · max|D'| · |d'_j - d_j|

    97 of 100 forecasts on one prompt of one model lay inside: an estimate, no guarantee.

    >>> round(half_widths(torch.tensor([0.01]), torch.tensor([-0.02]), torch.tensor([2.0]), torch.tensor([0.5]), 0.5).item(), 4)
    0.09
    """
    largest = float(forecast_R.abs().max()) if len(forecast_R) else 0.0
    return 2 * errors_R + curvature_R.abs() * max(1.0, length_ratio**2) + kappa * largest * difference_R.abs()


def trust(largest_change: float) -> Trust:
    """How far a straight-line account of changes up to `largest_change` (nats) goes.

    straight  up to 1 nat: within about 5 %; bent  up to 10 nats: within 5-10 % once curvature is measured
    too_far   beyond: no forecast is given

    >>> trust(0.9), trust(-3.0), trust(12.0)
    ('straight', 'bent', 'too_far')
    """
    size = abs(largest_change)
    return "straight" if size <= STRAIGHT_NATS else "bent" if size <= TOO_FAR_NATS else "too_far"


def gap(measured_R: Tensor, linear_R: Tensor) -> float:
    """Share of the measured changes that a straight line leaves over: |measured - linear| / |measured|; 0 where nothing moved.

    >>> round(gap(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.5])), 3)
    0.1
    """
    size = float(torch.linalg.vector_norm(measured_R))
    return float(torch.linalg.vector_norm(measured_R - linear_R)) / size if size > 0 else 0.0


def advantage_parts(parts_GK: Tensor, advantages_G: Tensor) -> tuple[Tensor, Tensor]:
    """A group's advantages by reward part, [G, K], and what is left over, [G]. Together they are the advantages.

    Before it is divided by a spread an advantage is linear in the rewards, so with the real step's divisor held fixed

        A_ik = f · (part_ik - mean_i part_ik),   f = A_l / (r_l - mean r)

    taken at the member l whose reward lies farthest from the mean. Changing one part changes the divisor as well, so this is an
    account of the real step, not a forecast. A spread of 0 leaves everything over.

    parts_GK  contribution of each reward to each member's sum; members outside the baseline are left out before

    Rewards 3 and 1 = parts (2, 1) and (0, 1): the second part does not differ and has no share.

    >>> parts_GK, left_G = advantage_parts(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([1.0, -1.0]))
    >>> parts_GK.tolist(), left_G.tolist()
    ([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0])
    """
    centred_GK = parts_GK - parts_GK.mean(0)
    centred_G = centred_GK.sum(1)
    farthest = int(centred_G.abs().argmax()) if len(centred_G) else 0
    if not len(centred_G) or float(centred_G[farthest]) == 0.0:
        return torch.zeros_like(parts_GK), advantages_G.clone()
    split_GK = centred_GK * (advantages_G[farthest] / centred_G[farthest])
    return split_GK, advantages_G - split_GK.sum(1)
