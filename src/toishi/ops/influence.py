"""What one optimizer step does to the log-probs of texts, and what it would have done with other advantages.

Symbols. A text's log-prob is S_j = Σ_t log π(y_jt). R rows: texts j with their gradients g_j = ∇S_j before the step. B of them
are answers i that were learned from, with weight w_i (share of the loss), advantage A_i and coefficient c_i = w_i·A_i. Tensors
are float64.

    gamma = Σ_i c_i g_i + gamma_fix     the direction of ascent: minus the gradient of the loss before clipping
    K_RR  = <g_i, g_j>                   k_fix_R = <g_j, gamma_fix>        k_fix_fix = |gamma_fix|²

gamma_fix holds what no advantage multiplies: the KL term and the entropy term.

Decisions:
1. An account of the real step may hold the optimizer's divisor fixed, since it then is a constant. A forecast for other
   advantages must not: Adam's own update is done again on a fixed sample of coordinates.
2. Forecasts and their bounds are in `influence_bounds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamRule:
    """AdamW's numbers in one update. `count` is the update's number since the state was fresh, from 1."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    count: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sum over all coordinates as a sample gives it, with its standard error; [R] each."""

    values_R: Tensor
    errors_R: Tensor


def coefficients(weights_B: Tensor, advantages_B: Tensor) -> Tensor:
    """c_i = w_i·A_i, [B].

    >>> coefficients(torch.tensor([0.5, 0.5]), torch.tensor([1.0, -1.0])).tolist()
    [0.5, -0.5]
    """
    return weights_B * advantages_B


def direction_norm(products_BB: Tensor, coefficients_B: Tensor, fix_B: Tensor | None = None, fix_fix: float = 0.0) -> float:
    """|gamma| before clipping, from products alone: sqrt(c'Kc + 2 c'k_fix + k_fix_fix).

    Two orthogonal gradients of length 1 and 2 with coefficients 3 and 2: gamma is 5 long.

    >>> direction_norm(torch.tensor([[1.0, 0.0], [0.0, 4.0]]), torch.tensor([3.0, 2.0]))
    5.0
    """
    square = float(coefficients_B @ products_BB @ coefficients_B) + fix_fix
    square += 0.0 if fix_B is None else 2.0 * float(coefficients_B @ fix_B)
    return math.sqrt(max(0.0, square))


def clip_scale(norm: float, limit: float | None) -> float:
    """What the gradient is multiplied by: 1, or limit / norm where it is longer than the limit. None: never clipped.

    >>> clip_scale(5.0, 1.0), clip_scale(0.5, 1.0), clip_scale(5.0, None)
    (0.2, 1.0, 1.0)
    """
    return 1.0 if limit is None or norm <= limit else limit / norm


def shares(
    products_BB: Tensor, coefficients_B: Tensor, fix_B: Tensor | None = None, fix_fix: float = 0.0
) -> tuple[Tensor, float]:
    """Each answer's share of the push, [B], and that of the part without advantages. Together they are 1.

        phi_i = c_i <g_i, gamma> / |gamma|²

    Below 0: the answer was pulled against the step. All 0 for a gamma of 0.

    >>> share_B, rest = shares(torch.tensor([[1.0, 0.0], [0.0, 4.0]]), torch.tensor([3.0, 2.0]))
    >>> [round(share, 2) for share in share_B.tolist()], rest
    ([0.36, 0.64], 0.0)
    """
    fix_B = torch.zeros_like(coefficients_B) if fix_B is None else fix_B
    pulls_B = coefficients_B * (products_BB @ coefficients_B + fix_B)
    rest = float(coefficients_B @ fix_B) + fix_fix
    whole = float(pulls_B.sum()) + rest
    return (pulls_B / whole, rest / whole) if whole > 0 else (torch.zeros_like(pulls_B), 0.0)


def pulls(metric_RB: Tensor, coefficients_B: Tensor, scale: float) -> Tensor:
    """What each answer's push did to each text to first order (nats), [R, B]: scale · c_i <g_j, M g_i>.

    metric_RB  products under the step's own metric M: lr for SGD; lr · a / (√v̂ + eps), a = (1 - β1)/(1 - β1^t), for AdamW with
               the divisor of the step that was taken. For attribution only.

    >>> pulls(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([1.0, -1.0]), scale=0.5).tolist()
    [[1.0, -0.5], [0.5, -1.0]]
    """
    return scale * metric_RB * coefficients_B


def sgd_changes(
    products_RB: Tensor,
    coefficients_B: Tensor,
    *,
    scale: float,
    lr: float,
    fix_R: Tensor | None = None,
    rest_R: Tensor | None = None,
) -> Tensor:
    """First-order change of each text by an SGD step (nats), [R].

        d_j = lr · s · (K c + k_fix)_j + rest_j

    scale   clipping factor s of these coefficients: `clip_scale(direction_norm(...), limit)`
    rest_R  what momentum and weight decay do, which no advantage of this step changes

    >>> products = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> sgd_changes(products, torch.tensor([1.0, -1.0]), scale=0.5, lr=0.1).tolist()
    [0.05000000074505806, -0.05000000074505806]
    """
    ascent_R = products_RB @ coefficients_B + (0.0 if fix_R is None else fix_R)
    return lr * scale * ascent_R + (0.0 if rest_R is None else rest_R)


def adam_step(direction_I: Tensor, mean_I: Tensor, square_I: Tensor, rule: AdamRule) -> Tensor:
    """AdamW's step along the clipped direction of ascent on some coordinates, without weight decay, [I].

        m = β1 m' + (1 - β1) s·gamma      v = β2 v' + (1 - β2) (s·gamma)²
        step = lr · m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + eps)

    direction_I       s·gamma: clipped already
    mean_I, square_I  m' and v' before the step. m' is kept in the direction of ascent: minus torch's `exp_avg`

    With fresh moments the step is lr times the sign:

    >>> rule, zero = AdamRule(lr=0.1, beta1=0.9, beta2=0.999, eps=0.0, count=1), torch.zeros(2, dtype=torch.float64)
    >>> [round(value, 9) for value in adam_step(torch.tensor([3.0, -0.5], dtype=torch.float64), zero, zero, rule).tolist()]
    [0.1, -0.1]
    """
    mean_I = rule.beta1 * mean_I + (1 - rule.beta1) * direction_I
    square_I = rule.beta2 * square_I + (1 - rule.beta2) * direction_I**2
    divisor_I = (square_I / (1 - rule.beta2**rule.count)).sqrt() + rule.eps
    step_I = rule.lr / (1 - rule.beta1**rule.count) * mean_I / divisor_I
    return torch.where(mean_I == 0, torch.zeros_like(step_I), step_I)


def sampled_direction(gradients_BI: Tensor, coefficients_B: Tensor, fix_I: Tensor | None = None) -> Tensor:
    """gamma on the sampled coordinates, before clipping: Σ_i c_i g_i + gamma_fix, [I].

    >>> sampled_direction(torch.eye(2), torch.tensor([0.5, -1.0])).tolist()
    [0.5, -1.0]
    """
    return coefficients_B @ gradients_BI + (0.0 if fix_I is None else fix_I)


def sampled_product(gradients_RI: Tensor, step_I: Tensor, num_coordinates: int, *, complete: bool = False) -> Sampled:
    """<g_j, step> over all coordinates, from a uniform sample with replacement.

        value_j = N / I · Σ_k g_jk step_k        error_j = N / I · sqrt(Σ_k (g_jk step_k)²)

    For the difference of two steps hand in their difference: the sample is common, and the error is smaller.
    num_coordinates  N, of the whole model
    complete         the sample holds every coordinate once: exact, no error

    Two of four coordinates:

    >>> found = sampled_product(torch.tensor([[3.0, 4.0]]), torch.ones(2), 4)
    >>> found.values_R.tolist(), found.errors_R.tolist()
    ([14.0], [10.0])
    """
    factor = 1.0 if complete else num_coordinates / max(1, step_I.shape[-1])
    terms_RI = gradients_RI * step_I
    errors_R = factor * torch.linalg.vector_norm(terms_RI, dim=-1)
    return Sampled(factor * terms_RI.sum(-1), torch.zeros_like(errors_R) if complete else errors_R)


def adam_sample_changes(
    gradients_RI: Tensor,
    sources_B: Tensor,
    coefficients_B: Tensor,
    mean_I: Tensor,
    square_I: Tensor,
    rule: AdamRule,
    *,
    scale: float,
    num_coordinates: int,
    fix_I: Tensor | None = None,
    minus_I: Tensor | None = None,
    complete: bool = False,
) -> tuple[Sampled, Tensor]:
    """First-order change of each text by AdamW's true step for these coefficients, and that step on the sample, [I].

    gradients_RI  g_jk of every row on the sampled coordinates
    sources_B     which rows the coefficients belong to
    scale         clipping factor s, from the exact products: `clip_scale(direction_norm(...), limit)`
    minus_I       a step to be subtracted first: with the real step's, the result is the *difference* and its own error
    Weight decay is not in it: it does not depend on advantages.

    One weight, fresh moments, eps 0: the step is lr whatever the coefficient's size.

    >>> rule, zero = AdamRule(lr=0.1, beta1=0.9, beta2=0.999, eps=0.0, count=1), torch.zeros(1, dtype=torch.float64)
    >>> gradient, first = torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([0])
    >>> for c in (1.0, 7.0, -7.0):
    ...     found, step_I = adam_sample_changes(gradient, first, torch.tensor([c], dtype=torch.float64), zero, zero, rule,
    ...                                         scale=1.0, num_coordinates=1, complete=True)
    ...     print(round(found.values_R.item(), 6))
    0.2
    0.2
    -0.2
    """
    direction_I = scale * sampled_direction(gradients_RI[sources_B], coefficients_B, fix_I)
    step_I = adam_step(direction_I, mean_I, square_I, rule)
    shown_I = step_I if minus_I is None else step_I - minus_I
    return sampled_product(gradients_RI, shown_I, num_coordinates, complete=complete), step_I
