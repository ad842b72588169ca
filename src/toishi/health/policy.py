"""Rules about the policy itself: how sure it is, how far it moved, how hard it is held."""

from __future__ import annotations

import statistics

from toishi.health.history import History
from toishi.health.signal import is_solved

ENTROPY = "entropy/mean_nats"
START_STEPS, RECENT_STEPS = 3, 3
CRITIC_STEPS = 10


def entropy_collapse(history: History, limit: float) -> str | None:
    """Next to no entropy left, absolutely and against the start, although the prompts are not solved.

    The bar is max(limit, 5% of the start) nats, at most half the start: a model that begins sure of itself has not collapsed.
    A policy that answers nearly everything right has little entropy too; it is left in peace.
    """
    levels = _entropies(history)
    if levels is None:
        return None
    start, now = levels
    if now >= min(max(limit, 0.05 * start), 0.5 * start):
        return None
    if is_solved(history):
        return None
    high = [row["step"] for row in history.steps.rows if (row.get(ENTROPY) or 0.0) >= 0.8 * start]
    steps = history.step - max(high)
    return f"entropy fell from {start:.2f} to {now:.2f} nats in {steps} steps, and the prompts are not solved"


def entropy_explosion(history: History, limit: float) -> str | None:
    """The answers turn to noise."""
    levels = _entropies(history)
    if levels is None:
        return None
    start, now = levels
    if now <= limit * start or now - start < 0.5:
        return None
    return f"entropy rose from {start:.2f} nats in {history.steps.first(START_STEPS)} to {now:.2f}: the answers turn to noise"


def _entropies(history: History) -> tuple[float, float] | None:
    """(start, now), or None before there are enough steps to compare."""
    start, now = history.steps.first(START_STEPS).mean(ENTROPY), history.steps.last(RECENT_STEPS).mean(ENTROPY)
    if start is None or now is None or len(history.steps) < START_STEPS + RECENT_STEPS:
        return None
    return start, now


def kl_reference(history: History, limit: float) -> str | None:
    """Far from the model of step 0 without a better reward to show for it, or by a jump over everything before."""
    name = "update/kl_policy_ref"
    level, recent = history.steps.last(3).mean(name), history.latest.values(name)
    if level is not None and len(history.steps) >= 10 and level > limit and not history.reward_rose:
        return (
            f"the KL to the model of step 0 is {level:.2f} nats per token in {history.steps.last(3)}; the reward did not rise"
        )
    earlier = history.steps.before_last(1).last(10).values(name)
    if not recent or len(earlier) < 5:
        return None
    usual = statistics.median(earlier)
    if recent[0] > 0.5 * limit and recent[0] > 5 * usual and recent[0] > 2 * max(earlier):
        return (
            f"the KL to the model of step 0 jumped to {recent[0]:.2f} nats per token (median of 10 steps before: {usual:.2f})"
        )
    return None


def policy_jump(history: History, limit: float) -> str | None:
    """Step after step the updates move the policy too far. The first three are left out: Adam starts with its largest moves.

    Sequence-sum ratios are products over whole answers: of those rows only the KL is read.
    """
    recent = history.steps.after_first(3).last(3)
    moved = recent.values("update/kl_old_policy_k3")
    if len(moved) == 3 and min(moved) > limit:
        return f"in each of {recent} the updates moved the policy by at least {min(moved):.2f} nats per token"
    if history.config.algorithm.ratio_level == "sequence_sum":
        return None
    means, largest = recent.values("update/ratio_mean"), recent.values("update/ratio_max")
    if len(means) == 3 and (max(means) < 0.5 or min(means) > 2.0):
        return f"the mean importance ratio was {statistics.fmean(means):.2f} in {recent} (expected near 1)"
    if len(largest) == 3 and min(largest) > 20:
        return f"the largest importance ratio was at least {min(largest):.0f} in each of {recent}"
    return None


def clipping(history: History, limit: float) -> str | None:
    """Most of the signal is clipped away. Sequence-level bounds are tight on purpose and not watched."""
    recent = history.steps.last(3)
    shares = [recent.mean(f"update/clip_{side}_share") for side in ("low", "high", "dual")]
    total = sum(share for share in shares if share is not None)
    if history.config.algorithm.ratio_level != "token" or len(recent) < 3 or total <= limit:
        return None
    return f"{total:.0%} of the tokens of {recent} were held by the clip bounds and taught nothing"


def blind_critic(history: History, limit: float) -> str | None:
    """The critic does not know more of what comes than a constant would, long after it began to learn.

    Where nearly every answer is right there is little to know: it is left in peace.
    """
    learned = history.steps.between(history.config.critic.warmup_steps, history.step).last(CRITIC_STEPS)
    shares = learned.values("critic/explained_variance")
    if len(shares) < CRITIC_STEPS or statistics.fmean(shares) > limit or is_solved(history):
        return None
    return (
        f"the critic explained {statistics.fmean(shares):.2f} of the spread of the returns in {learned}: a constant explains "
        "0, so its values only add noise"
    )
