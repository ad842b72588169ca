"""Rules about the numbers of the update: finite, of the usual size, and the same in sampler and trainer."""

from __future__ import annotations

import math
import statistics

from toishi.health.history import History, Window
from toishi.health.signal import compares

GAP = "sampler_gap/mean_abs"
NORM = "update/grad_norm"
GAP_LIMITS = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.1, "auto": 0.1}
"""Mean |log-prob as sampled - log-prob as trained| in nats that rounding alone explains."""


def not_finite(history: History, _: float) -> str | None:
    """A number of the step is NaN or infinite."""
    row = history.latest.rows[0]
    bad = [f"{name} is {value}" for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    return "; ".join(bad[:5]) or None


def gap_limit(history: History) -> float:
    """`health.max_sampler_gap`, or what the precision allows."""
    return history.config.health.max_sampler_gap or GAP_LIMITS.get(history.dtype, GAP_LIMITS["auto"])


def sampler_gap_at_start(history: History, _: float) -> str | None:
    """Sampler and trainer disagree at the first step, when their weights are the same."""
    gap, limit = history.latest.mean(GAP), gap_limit(history)
    if len(history.steps) != 1 or gap is None or gap <= limit:
        return None
    return (
        f"sampler and trainer give the same tokens log-probs that differ by {gap:.2g} nats on average at the first step; "
        f"{limit:g} is the limit for {history.dtype}"
    )


def sampler_gap(history: History, _: float) -> str | None:
    """Sampler and trainer drift apart while training."""
    recent, limit = history.steps.last(3), gap_limit(history)
    gap = recent.mean(GAP)
    if len(history.steps) < 4 or gap is None or gap <= limit:
        return None
    return f"sampler and trainer differ by {gap:.2g} nats per token in {recent}; {limit:g} is the limit for {history.dtype}"


def gradient_explosion(history: History, limit: float) -> str | None:
    """The gradient norm is far above its usual size: that of steps that taught, since ties leave only a KL term's small one."""
    now = history.latest.mean(NORM)
    taught = [row for row in history.steps.before_last(1).rows[-40:] if row.get("groups/mixed")]
    usual = [norm for norm in Window(taught[-20:]).values(NORM) if norm > 0]
    if now is None or len(usual) < 5:
        return None
    median = statistics.median(usual)
    if now <= limit * median or now <= 2 * max(usual):
        return None
    return f"the gradient norm is {now:.3g}, {now / median:.0f} times the median of {len(usual)} steps before ({median:.3g})"


def gradient_zero(history: History, limit: float) -> str | None:
    """Groups differed, and yet the gradient was exactly 0."""
    recent = history.steps.last(int(limit))
    taught = all(row.get("groups/mixed") and row.get("update/count") for row in recent.rows)
    if len(recent) < int(limit) or not recent.always(NORM, 0.0) or not taught:
        return None
    mixed = recent.total("groups/mixed")
    return f"the gradient norm was exactly 0 in {recent} although {mixed:.0f} groups had differing rewards"


def skipped_updates(history: History, limit: float) -> str | None:
    """Steps that change nothing. Where ties explain it, the rules about ties speak."""
    recent = history.steps.last(int(limit))
    mixed = recent.total("groups/mixed")
    if len(recent) < int(limit) or not recent.always("update/count", 0.0) or (mixed == 0 and compares(history)):
        return None
    if recent.rows[0]["step"] <= history.config.critic.warmup_steps:  # the critic learns alone: as it was asked for
        return None
    dropped = recent.total("groups/dropped")
    return (
        f"no optimizer update was made in {recent}: no answer had an advantage "
        f"({mixed:.0f} groups with differing rewards, {dropped:.0f} groups left out by the filter)"
    )


def loss_is_near_zero(history: History, _: float) -> str | None:
    """True of rows whose advantages are centred and whose surrogate is the ratio (1 at first) times the advantage."""
    row, loss, norm = history.config.algorithm, history.latest.mean("update/loss"), history.latest.mean(NORM)
    centred = (
        (row.baseline not in ("none", "critic") or row.whiten)
        and row.filter not in ("keep_best", "keep_positive")
        and row.policy_term
    )
    if not centred or row.surrogate not in ("clipped", "dual_clip") or row.entropy_coef != 0:
        return None
    if loss is None or not norm or any(history.steps.before_last(1).values(NORM)):
        return None
    return (
        f"a loss near 0 is normal here (it is {loss:.2g}): the ratio is 1 and a group's advantages cancel, "
        f"while the gradient does not (its norm is {norm:.2g})"
    )
