"""Rules about where the run is going: the training reward against its own best, and against held-out prompts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from toishi.evaluate import Evaluation
from toishi.health.history import Change, History, change_of

REWARD = "reward/mean"
BLOCK = 10


def reward_drop(history: History, limit: float) -> str | None:
    """The reward fell far below what it had been: by `limit` of the spread of single rewards, and well beyond its noise."""
    recent = history.steps.last(BLOCK)
    earlier = [block for block in history.steps.before_last(BLOCK).blocks(BLOCK) if len(block.values(REWARD)) > 1]
    if not earlier:
        return None
    best = max(earlier, key=lambda block: block.mean(REWARD) or 0.0)
    change, spread = change_of(best, recent, REWARD), best.mean("reward/std") or 0.0
    if change is None or not change.is_beyond(-5) or -change.difference <= limit * spread:
        return None
    return f"the mean reward fell from {change.before:.2f} in {best} to {change.after:.2f} in {recent}"


def heldout_flat(history: History, limit: float) -> str | None:
    """Training reward up over the last evaluations while the held-out value is not.

    Two shapes: held-out gained less than a quarter of what training gained and lies clearly below it, or held-out fell.
    A held-out value above the training reward is no alarm: greedy answers are often ahead of sampled ones, which catch up.
    """
    curve = _curve(history.evaluations)[-int(limit) - 1 :]
    if len(curve) <= int(limit):
        return None
    before = history.steps.between(curve[0].step, curve[1].step)
    now = history.steps.between(curve[-2].step, curve[-1].step)
    training, heldout = change_of(before, now, REWARD), _heldout_change(curve)
    if training is None or heldout is None or not training.is_beyond(3):
        return None
    if training.difference < 0.25 * (before.mean("reward/std") or 0.0):
        return None
    lags = heldout.difference < 0.25 * training.difference and training.after > curve[-1].interval[1]
    if not lags and not heldout.is_beyond(-3):
        return None
    return (
        f"the training reward rose from {training.before:.2f} to {training.after:.2f} between steps {curve[0].step} and "
        f"{curve[-1].step}, while the held-out value ({curve[-1].mode}) went from {heldout.before:.2f} to {heldout.after:.2f}"
    )


def _curve(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """The evaluations of the mode that was measured most often, the greedy ones if equal."""
    by_mode = [[found for found in evaluations if found.mode == mode] for mode in ("greedy", "sampled")]
    return max(by_mode, key=len)


def _heldout_change(curve: Sequence[Evaluation]) -> Change | None:
    """From the first evaluation to the higher of (the last, the mean of the later ones), on the prompts that all share."""
    shared = set(curve[0].by_prompt).intersection(*(found.by_prompt for found in curve[1:]))
    if len(shared) < 2:
        return None
    start = statistics.fmean(curve[0].by_prompt[prompt] for prompt in shared)
    later = {prompt: statistics.fmean(found.by_prompt[prompt] for found in curve[1:]) for prompt in shared}
    gains = [later[prompt] - curve[0].by_prompt[prompt] for prompt in sorted(shared)]
    error = math.sqrt(statistics.variance(gains) / len(gains))
    last = statistics.fmean(curve[-1].by_prompt[prompt] for prompt in shared)
    mean = Change(start, statistics.fmean(later.values()), error)
    return replace(mean, after=max(mean.after, last))
