"""Rewards asked once more about answers that are there already: the same path as in training, with other numbers for the calls.

Decisions:
1. Everything goes through `score_groups`: contract, threads, retries and composition are those of training.
2. Only rewards that can tell one asking from another are asked again by number (`Repeatable`). Any other is simply asked: if it
   says the same, that is seen and not assumed.
3. A reward that is not asked again repeats what the record says of it; it is not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from toishi.algorithms.terms import Term
from toishi.rewards.base import Judgement, Repeatable, Reward
from toishi.scoring import Progress, score_groups
from toishi.types import Completion, Group, Prompt, Rollout, RolloutStatus, Score

Said = list[tuple[Judgement, ...]]


@dataclass(frozen=True)
class Again:
    """`reward`, asked for the `repeat`-th time more. Another reward to whoever asks, by the same name."""

    reward: Reward
    repeat: int

    @property
    def name(self) -> str:
        return self.reward.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.reward.columns

    @property
    def concurrent(self) -> bool:
        return bool(getattr(self.reward, "concurrent", False))

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> Said:
        if self.repeat and isinstance(self.reward, Repeatable):
            return self.reward.score_group_again(prompt, completions, self.repeat)
        return self.reward.score_group(prompt, completions)


@dataclass(frozen=True)
class Recorded:
    """A reward that says what it said: `scores` by the completion's identity."""

    name: str
    scores: Mapping[int, tuple[Score, ...]]
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, groups: Sequence[Group]) -> Recorded:
        """What the record of these groups says of the reward `name`."""
        return cls(name, {id(rollout.completion): said(rollout, name) for group in groups for rollout in group.rollouts})

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> Said:
        return [tuple(map(_judgement, self.scores[id(completion)])) for completion in completions]


def said(rollout: Rollout, reward: str) -> tuple[Score, ...]:
    """The scores that a rollout has of one reward."""
    return tuple(score for score in rollout.scores if score.reward == reward)


def value_of(rollout: Rollout, reward: str) -> float | None:
    """What a reward said of an answer, its parts summed, before weight and composition; None when it said nothing."""
    scores = said(rollout, reward)
    values = [score.value for score in scores if score.value is not None]
    return sum(values) if values and all(score.status != "failed" for score in scores) else None


def score_again(
    groups: Sequence[Group],
    rewards: Sequence[Reward],
    terms: Sequence[Term],
    names: Sequence[str],
    repeat: int,
    on_progress: Progress | None = None,
) -> tuple[Group, ...]:
    """`groups` scored anew: the rewards called `names` are asked for the `repeat`-th time more, others repeat the record."""
    asked: list[Reward] = [
        Again(reward, repeat) if reward.name in names else Recorded.of(reward.name, groups) for reward in rewards
    ]
    return score_groups([unscored(group) for group in groups], asked, terms, on_progress=on_progress)


def unscored(group: Group) -> Group:
    """The group as it was before it was scored. What had failed before that stays failed."""
    return replace(group, rollouts=tuple(map(_unscored, group.rollouts)), baseline=None)


def _unscored(rollout: Rollout) -> Rollout:
    if rollout.status == "failed" and not rollout.scores:
        return replace(rollout, advantage=None)
    status: RolloutStatus = "truncated" if rollout.completion.is_truncated else "completed"
    return replace(rollout, scores=(), reward=None, advantage=None, status=status, failure="")


def _judgement(score: Score) -> Judgement:
    return Judgement(
        value=score.value, reason=score.reason, status=score.status, span=score.span, readable=score.readable, kind=score.kind
    )
