"""What an optimizer step with other coefficients would have done to the log-probs: from the record alone, with a half-width.

Decisions:
1. Anchored at the step that was really taken and measured; only the difference of the two steps is forecast.
2. SGD: exact products. AdamW: its own update done again on the stored sample of coordinates, since its divisor changes with the
   gradient (see `ops.influence`).
3. The gradient's length is scaled from the measured one, so that asking for no change gives back what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.counterfactual.pushes import Pushes
from toishi.counterfactual.recorded import Measured
from toishi.ops import influence as maths
from toishi.ops.influence_bounds import Trust, anchored, half_widths, trust


@dataclass(frozen=True)
class Forecast:
    """Change of every watched text by the step that is asked for, in the order of the account's texts (nats).

    gradient_norm, clip_factor  of the step that is asked for
    length_ratio  its length, relative to the real one
    trust         by the largest change of both steps: a measured step that bent too far is no anchor either
    """

    changes_T: Tensor
    half_widths_T: Tensor
    gradient_norm: float
    clip_factor: float
    length_ratio: float
    trust: Trust


def forecast(measured: Measured, new: Pushes, max_grad_norm: float | None) -> Forecast:
    """The step with `new` in place of what was pushed."""
    old = measured.pushes
    texts = measured.influence.texts
    rows_T = torch.tensor([text.row for text in texts], dtype=torch.long)
    measured_T = torch.tensor([text.measured for text in texts], dtype=torch.float64)
    curvature_T = torch.tensor([text.rest for text in texts], dtype=torch.float64)
    if not new.moves:
        nothing_T = torch.zeros_like(measured_T)
        return Forecast(nothing_T, nothing_T, 0.0, 1.0, 0.0, "straight")
    norm = _norm(measured, new)
    before = _norm(measured, old)
    length = measured.influence.gradient_norm * (norm / before if before > 0 else 1.0)
    clip = maths.clip_scale(length, max_grad_norm)
    same = torch.equal(old.coefficients_R, new.coefficients_R) and new.fixed_ratio == 1.0
    if same and clip == measured.influence.clip_factor:
        return Forecast(measured_T, torch.zeros_like(measured_T), length, clip, 1.0, _trust(measured_T))
    differ = _sgd if measured.rule is None else _adam
    difference, ratio = differ(measured, new, clip)
    changes_T = anchored(measured_T, difference.values_R[rows_T], curvature_T, ratio)
    widths_T = half_widths(difference.errors_R[rows_T], curvature_T, changes_T, difference.values_R[rows_T], ratio)
    return Forecast(changes_T, widths_T, length, clip, ratio, _trust(torch.cat([changes_T, measured_T])))


def _trust(changes: Tensor) -> Trust:
    return trust(float(changes.abs().max()) if len(changes) else 0.0)


def _norm(measured: Measured, pushes: Pushes) -> float:
    ratio = pushes.fixed_ratio
    fixed_R, fixed_fixed = ratio * measured.fixed_R, ratio**2 * measured.fixed_fixed
    return maths.direction_norm(measured.products_RR, pushes.coefficients_R, fixed_R, fixed_fixed)


def _sgd(measured: Measured, new: Pushes, clip: float) -> tuple[maths.Sampled, float]:
    """Difference of the two steps for every row, exact, and the ratio of their lengths."""
    old, lr, scale = measured.pushes, measured.influence.optimizer.lr, measured.influence.clip_factor
    changes = [
        maths.sgd_changes(
            measured.products_RR, pushes.coefficients_R, scale=factor, lr=lr, fix_R=pushes.fixed_ratio * measured.fixed_R
        )
        for pushes, factor in ((old, scale), (new, clip))
    ]
    difference_R = changes[1] - changes[0]
    squared = measured.influence.step_norm**2
    pushed = (lr * clip * _norm(measured, new)) ** 2 - (lr * scale * _norm(measured, old)) ** 2
    along = 2 * lr * float((clip * new.coefficients_R - scale * old.coefficients_R) @ measured.rest_R)
    ratio = math.sqrt(max(0.0, squared + pushed + along) / squared) if squared > 0 else 1.0
    return maths.Sampled(difference_R, torch.zeros_like(difference_R)), ratio


def _adam(measured: Measured, new: Pushes, clip: float) -> tuple[maths.Sampled, float]:
    """The same from the sample, with its standard error."""
    assert measured.rule is not None
    influence, real_I = measured.influence, measured.real_step_I
    ascent_I = maths.sampled_direction(measured.gradients_RI, new.coefficients_R, new.fixed_ratio * measured.fixed_I)
    step_I = maths.adam_step(clip * ascent_I, measured.mean_I, measured.square_I, measured.rule)
    total, complete = influence.num_coordinates, influence.complete
    found = maths.sampled_product(measured.gradients_RI, step_I - real_I, total, complete=complete)
    length = float(torch.linalg.vector_norm(real_I))
    return found, float(torch.linalg.vector_norm(step_I)) / length if length > 0 else 1.0
