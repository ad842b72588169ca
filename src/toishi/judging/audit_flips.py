"""What a judge's noise does to the signs of advantages, at a group size that need not be that of the audited answers.

Decisions:
1. Groups are drawn from the audited answers: how far each stands from its siblings, shrunk so that their variance is the true
   one and not that of true scores and noise together.
2. The closed form takes noise to be normal. The simulation draws the judge's own deviations instead, so that a difference
   between the two columns says that the noise is not normal.
3. Several calls are averaged as if their noise were independent, which it is by definition of repeat noise; errors that come
   back in every reply are no noise, and no number of calls averages them away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toishi.judging.audit_parts import FlipRow
from toishi.ops.noise import averaged_noise, repeat_noise
from toishi.ops.random import uniforms

CALLS = (1, 2, 3, 5, 8)
_GROUPS = 4000
_STREAM = 4_130_001
Array = NDArray[np.float64]
Groups = Sequence[Sequence[Sequence[float]]]


def flip_table(groups: Groups, group_size: int, calls: Sequence[int] = CALLS) -> tuple[FlipRow, ...]:
    """One row for each number of calls; empty where noise or spread cannot be measured, or there is no spread.

    groups  scores by prompt, answer and asking

    >>> rows = flip_table([[[0.1, 0.2], [0.8, 0.7], [0.4, 0.5]], [[0.0, 0.2], [0.9, 0.9]]], group_size=4)
    >>> [row.calls for row in rows], rows[0].closed_form > rows[2].closed_form
    ([1, 2, 3, 5, 8], True)
    """
    noise = repeat_noise(groups)
    if noise is None or not noise.spread > 0 or group_size < 2:
        return ()
    true = _drawn(_deviations(groups, noise.spread), _GROUPS * group_size, 0).reshape(_GROUPS, group_size)
    advantages = true - true.mean(1, keepdims=True)
    residuals = _residuals(groups, noise.noise_sd)
    return tuple(_row(count, noise.noise_sd, true, advantages, residuals) for count in calls)


def _row(calls: int, noise_sd: float, true: Array, advantages: Array, residuals: Array) -> FlipRow:
    sd, (count, size) = averaged_noise(noise_sd, calls), true.shape
    drawn = _drawn(residuals, true.size * calls, calls).reshape(calls, count, size).mean(0)
    noisy = true + drawn
    moved = noisy - noisy.mean(1, keepdims=True)
    signed = np.abs(advantages) > 1e-12
    flips = (np.sign(moved) != np.sign(advantages))[signed]
    norms = np.linalg.norm(moved, axis=1) * np.linalg.norm(advantages, axis=1)
    cosines = (moved * advantages).sum(1)[norms > 0] / norms[norms > 0]
    best = np.take_along_axis(true, noisy.argmax(1)[:, None], 1)[:, 0] < true.max(1)
    return FlipRow(
        calls=calls,
        noise_sd=sd,
        closed_form=_closed_form(advantages[signed], sd, size),
        simulated=float(flips.mean()) if flips.size else float("nan"),
        best_not_first=float(best.mean()),
        correlation=float(cosines.mean()) if cosines.size else float("nan"),
    )


def _closed_form(advantages: Array, sd: float, size: int) -> float:
    """The mean of `ops.noise.flip_probability`, over an array."""
    if not advantages.size:
        return float("nan")
    if sd == 0:
        return 0.0
    scaled = np.abs(advantages) / (sd * math.sqrt(2 * (1 - 1 / size)))
    return 0.5 * math.fsum(map(math.erfc, scaled.tolist())) / advantages.size


def _deviations(groups: Groups, spread: float) -> Array:
    """How far each answer's mean stands from its siblings', scaled so that the variance of all is spread²."""
    found: list[float] = []
    for answers in groups:
        means = np.array([np.mean(askings) for askings in answers if len(askings)])
        if len(means) > 1:
            found += ((means - means.mean()) * math.sqrt(len(means) / (len(means) - 1))).tolist()
    return _with_sd(found, spread)


def _residuals(groups: Groups, noise_sd: float) -> Array:
    """How far each asking stands from its answer's mean, scaled so that the variance of all is noise_sd²."""
    found: list[float] = []
    for askings in (askings for answers in groups for askings in answers if len(askings) > 1):
        values = np.asarray(askings)
        found += ((values - values.mean()) * math.sqrt(len(values) / (len(values) - 1))).tolist()
    return _with_sd(found, noise_sd)


def _with_sd(values: Sequence[float], sd: float) -> Array:
    array = np.asarray(values, dtype=np.float64)
    now = math.sqrt(float((array**2).mean()))
    return array * (sd / now) if now > 0 else array * 0.0


def _drawn(pool: Array, count: int, stream: int) -> Array:
    places = (uniforms((_STREAM, stream), count) * len(pool)).astype(np.int64)
    return pool[np.minimum(places, len(pool) - 1)]
