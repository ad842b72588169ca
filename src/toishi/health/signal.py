"""Rules about the learning signal: groups that compare nothing, rewards that say nothing, answers without a reward."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from toishi.health.history import History, Window

MIN_STEPS, MIN_GROUPS = 10, 40
"""Ties are counted over at least so many steps and groups: four groups alone are tied by chance far too often."""

SAME_CAUSE_SHARE = 0.75
"""Tied groups of one kind above this share are named by their kind."""


LENGTH_REWARDS = {"length", "soft_overlong"}
"""Kinds of reward that are about length on purpose."""


@dataclass(frozen=True, slots=True)
class Ties:
    """How the groups of a window ended."""

    window: Window
    groups: int
    mixed: int
    wrong: int
    right: int

    @property
    def tied(self) -> int:
        return self.groups - self.mixed

    @property
    def are_wrong(self) -> bool:
        return self.wrong >= SAME_CAUSE_SHARE * self.tied

    @property
    def are_right(self) -> bool:
        return self.right >= SAME_CAUSE_SHARE * self.tied

    def __str__(self) -> str:
        mixed = f"only {self.mixed}" if self.mixed else "none"
        return f"{mixed} of {self.groups} groups had differing rewards in {self.window}"


def ties_of(window: Window) -> Ties:
    """The groups of a window, counted by how they were tied."""
    names = ("groups/count", "groups/mixed", "groups/all_wrong", "groups/all_right")
    return Ties(window, *(round(window.total(name)) for name in names))


def compares(history: History) -> bool:
    """The algorithm learns from differences inside a group."""
    return history.config.algorithm.needs_group or history.config.algorithm.filter == "drop_tied"


def silent_groups(history: History, limit: float) -> Ties | None:
    """The latest steps' groups, if fewer than `limit` of them teach."""
    if not compares(history):
        return None
    per_step = history.steps.mean("groups/count") or 0.0
    count = MIN_STEPS if per_step <= 0 else max(MIN_STEPS, -int(-MIN_GROUPS // per_step))
    if len(history.steps) < count:
        return None
    ties = ties_of(history.steps.last(count))
    return ties if ties.groups > 0 and ties.mixed < limit * ties.groups else None


def all_wrong(history: History, limit: float) -> str | None:
    """Most groups are tied at a reward of 0 or below."""
    ties = silent_groups(history, limit)
    if ties is None or not ties.are_wrong:
        return None
    best = max(history.steps.values("reward/mean"), default=0.0)
    never = ", and no answer was ever paid since step 1" if best <= 0 and history.steps.total("groups/mixed") == 0 else ""
    return f"{ties}; in {ties.wrong} every answer got the same reward of 0 or below{never}"


def solved(history: History, limit: float) -> str | None:
    """Most groups are tied above 0, and the reward is as good as it ever was."""
    ties = silent_groups(history, limit)
    if ties is None or not (ties.are_right and history.reward_is_at_best):
        return None
    reward = ties.window.mean("reward/mean") or 0.0
    return (
        f"{ties}; in {ties.right} every answer got the same reward above 0, and the mean reward is at its best ({reward:.2f}): "
        "good news, these prompts are solved if the reward is right"
    )


def tied_groups(history: History, limit: float) -> str | None:
    """Most groups are tied, for no single reason."""
    ties = silent_groups(history, limit)
    if ties is None or ties.are_wrong or (ties.are_right and history.reward_is_at_best):
        return None
    return f"{ties}; {ties.wrong} were tied at a reward of 0 or below, {ties.right} above 0"


def constant_reward(history: History, limit: float) -> str | None:
    """A reward function stuck at one value. Having risen to its best value is what success looks like: nothing is said then."""
    count = int(limit)
    recent = history.steps.last(count)
    if len(recent) < count:
        return None
    for name in reward_names(recent):
        means = recent.values(f"rewards/{name}/mean")
        if not recent.always(f"rewards/{name}/std", 0.0) or max(means) - min(means) > 1e-12:
            continue
        earlier = history.steps.before_last(count).values(f"rewards/{name}/mean")
        said = f"reward '{name}' gave {means[-1]:.3g} to every answer of {recent}"
        if not earlier:
            return f"{said}, so it compares nothing"
        if means[-1] < max(earlier) or means[-1] <= statistics.fmean(earlier):
            return f"{said}; before, its mean had reached {max(earlier):.3g}"
    return None


def silent_reward(history: History, limit: float) -> str | None:
    """A reward abstained on every answer for some steps."""
    recent = history.steps.last(int(limit))
    if len(recent) < int(limit):
        return None
    for name in reward_names(recent):
        abstained = recent.values(f"rewards/{name}/abstained")
        spoke = recent.values(f"rewards/{name}/mean") or recent.total(f"rewards/{name}/failed")
        if len(abstained) == len(recent) and min(abstained) > 0 and not spoke:
            return f"reward '{name}' abstained on all {sum(abstained):.0f} answers of {recent}"
    return None


def failed_rewards(history: History, _: float) -> str | None:
    """A reward broke on too many answers of the step."""
    answers = history.latest.total("answers/count")
    own = {reward.name: reward.max_failed_share for reward in history.config.rewards}
    for name in reward_names(history.latest):
        failed, limit, key = history.latest.total(f"rewards/{name}/failed"), own.get(name), "its max_failed_share"
        if limit is None:
            limit, key = history.config.health.max_failed_share, "health.max_failed_share"
        if answers and failed / answers > limit:
            kinds = _failure_kinds(history.latest, name)
            return f"reward '{name}' failed on {failed:.0f} of {answers:.0f} answers{kinds} ({key} is {limit:g})"
    return None


def _failure_kinds(latest: Window, name: str) -> str:
    """How often it failed in which way, most often first; empty where no kinds are told apart.

    >>> _failure_kinds(Window([{"rewards/a/failed": 6, "rewards/a/failed/raised": 1, "rewards/a/failed/timed_out": 5}]), "a")
    ': 5 timed_out, 1 raised'
    """
    prefix = f"rewards/{name}/failed/"
    found = {key.removeprefix(prefix): latest.total(key) for key in latest.rows[-1] if key.startswith(prefix)}
    ranked = sorted(((kind, count) for kind, count in found.items() if count), key=lambda item: -item[1])
    return ": " + ", ".join(f"{count:.0f} {kind}" for kind, count in ranked) if ranked else ""


def pays_length(history: History, limit: float) -> str | None:
    """A reward whose value goes with the answers' length at every one of the last steps; those about length are meant to."""
    recent = history.steps.last(10)
    meant = {reward.name for reward in history.config.rewards if reward.options.get("kind", reward.name) in LENGTH_REWARDS}
    for name in reward_names(recent):
        found = recent.values(f"rewards/{name}/length_correlation")
        if name not in meant and len(found) == 10 and (min(found) > limit or max(found) < -limit):
            what = "long" if found[0] > 0 else "short"
            by = statistics.fmean(found)
            return f"reward '{name}' pays {what} answers: its value and their length correlate by {by:.2f} in {recent}"
    return None


def unscored_answers(history: History, limit: float) -> str | None:
    """Too many answers have no reward."""
    recent = history.steps.last(5)
    share = recent.share("answers/unscored", "answers/count")
    if len(recent) < 5 or share is None or share <= limit:
        return None
    return f"{share:.0%} of the answers of {recent} have no reward (a reward failed, or all abstained), so they teach nothing"


def is_solved(history: History) -> bool:
    """Most groups of the last ten steps are all right, few all wrong, and the reward is as good as it ever was."""
    ties = ties_of(history.steps.last(10))
    return ties.right >= 0.5 * ties.groups and ties.wrong < 0.2 * ties.groups and history.reward_is_at_best


def identical_answers(history: History, limit: float) -> str | None:
    """Siblings that are copies of one another although the prompts are not solved."""
    recent = history.steps.last(5)
    distinct, size = recent.mean("answers/distinct_share"), history.config.train.group_size
    if len(recent) < 5 or distinct is None or size < 2 or is_solved(history):
        return None
    variety = (distinct * size - 1) / (size - 1)
    if variety >= limit:
        return None
    return f"the {size} answers to one prompt held {distinct * size:.1f} different texts on average in {recent}"


def reward_names(window: Window) -> list[str]:
    """
    >>> reward_names(Window([{"rewards/format/mean": 1.0, "rewards/format/std": 0.0, "reward/mean": 1.0}]))
    ['format']
    """
    keys = (key for key in window.rows[-1] if key.startswith("rewards/") and key.endswith("/mean"))
    return [key.removeprefix("rewards/").removesuffix("/mean") for key in keys]
