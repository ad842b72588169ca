"""Rules about where the run is going: the reward against its own best, against held-out prompts, against unpaid rewards."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from toishi.evaluate import Evaluation
from toishi.health.history import Change, History, Window, change_of

REWARD = "reward/mean"
BLOCK = 10
ENDS = 5
CLEAR_RISE = 0.5
"""In spreads of single answers: four prompts a step go up and down by less."""

ROOM = 0.75
"""An unpaid reward that finds more than this share of the answers right need not rise any further."""

ABOUT_ANSWERS = {"judge", "rubric", "reward_model", "code", "command", "gym", "steps", "function"}
"""Kinds of reward that may be the truth although they do not count answers as right and wrong; forms and lengths are not."""


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
    interval = curve[-1].interval  # None with few prompts: then nothing lies clearly beyond it
    lags = interval is not None and heldout.difference < 0.25 * training.difference and training.after > interval[1]
    if not lags and not heldout.is_beyond(-3):
        return None
    return (
        f"the training reward rose from {training.before:.2f} to {training.after:.2f} between steps {curve[0].step} and "
        f"{curve[-1].step}, while the held-out value ({curve[-1].mode}) went from {heldout.before:.2f} to {heldout.after:.2f}"
    )


def unpaid_reward(history: History, limit: float) -> str | None:
    """What is paid rises while a reward of weight 0, measured on the same answers, falls or stays behind.

    Rises are counted in spreads of single answers, so that neither weights nor ranges matter. Staying behind is looked at only
    where answers are counted as right and wrong and there is room to rise; a fall, for every reward that is about the answer.
    """
    if len(history.steps) < 2 * ENDS:
        return None
    first, last = history.steps.first(ENDS), history.steps.last(ENDS)
    paid = change_of(first, last, REWARD)
    if paid is None or not paid.is_beyond(3):
        return None
    rise = paid.difference / (_spread(first, last, "reward/std") or math.inf)
    if rise < CLEAR_RISE:
        return None
    for name in _unpaid(history):
        found = change_of(first, last, f"rewards/{name}/mean")
        if found is None:
            continue
        fell = found.is_beyond(-3)
        if fell or (_has_room(last, name) and _lags(found, _spread(first, last, f"rewards/{name}/std"), rise, limit)):
            how = "fell" if fell else "stayed behind"
            return (
                f"the reward rose from {paid.before:.2f} in {first} to {paid.after:.2f} in {last}, while '{name}' (weight 0, "
                f"the same answers) {how}: {found.before:.2f} to {found.after:.2f}"
            )
    return None


def _unpaid(history: History) -> list[str]:
    """Rewards of weight 0 that are about the answer."""
    unpaid = [reward for reward in history.config.rewards if reward.weight == 0]
    return [
        reward.name
        for reward in unpaid
        if history.latest.values(f"rewards/{reward.name}/right")
        or "function" in reward.options
        or reward.options.get("kind", reward.name) in ABOUT_ANSWERS
    ]


def _has_room(window: Window, name: str) -> bool:
    """The reward counts answers as right and wrong, and not nearly all are right."""
    share = window.share(f"rewards/{name}/right", "answers/count")
    return share is not None and bool(window.values(f"rewards/{name}/right")) and share < ROOM


def _lags(found: Change, spread: float, rise: float, limit: float) -> bool:
    """It gained less than `limit` of the rise, and its noise does not hide half of it."""
    if spread == 0:
        return True
    return found.difference / spread < limit * rise and (found.difference + 2 * found.standard_error) / spread < 0.5 * rise


def _spread(first: Window, last: Window, name: str) -> float:
    """The larger of the two windows' mean spreads of single answers; 0 when there is none."""
    return max(first.mean(name) or 0.0, last.mean(name) or 0.0)


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
