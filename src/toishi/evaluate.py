"""Held-out measurements: the mean reward on prompts that never train, with intervals, greedy and sampled.

Decisions:
1. The prompt is the unit: intervals come from a bootstrap over prompts, and differences are paired on the same prompts.
2. Greedy and sampled are separate results. Sampling at the training temperature sharpens as entropy falls, so a sampled gain
   alone overstates what was learned; greedy is the sober number.
3. Fewer than 10 prompts get no interval: a bootstrap over a handful of them is far too narrow ([1, 1] from two that agree).
4. A value splits into (share of answers that could be read) x (value of those): learning the format and learning the task look
   the same in one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from toishi.algorithms.terms import Term
from toishi.engines.base import Engine, Sampling
from toishi.errors import RecordError
from toishi.ops.stats import Interval, mean_interval, paired_difference
from toishi.record.lines import restored
from toishi.rewards.base import Reward
from toishi.rollout import EVALUATION_STREAM, sample_groups
from toishi.scoring import Scoring
from toishi.types import Group, Prompt, Rollout

Mode = Literal["greedy", "sampled", "pairs"]
MIN_PROMPTS = 10
"""For an interval: fewer prompts, each with a value, are too few to resample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One measurement. Intervals are 95%; None with fewer than `MIN_PROMPTS` prompts.

    value            mean reward over prompts (each prompt's mean over its samples)
    readable         share of answers in which an answer could be read; None when no reward looks for one
    value_readable   mean reward of the readable answers: value = readable * value_readable when unread answers get 0
    unscored         answers whose reward failed: outside of `value`
    change, change_interval  paired difference to the run's first evaluation of this mode on the same prompts
    by_prompt        prompt id -> mean reward, the raw material of every interval
    details          further numbers by name: of mode "pairs" (`ranking.DETAILS`), whose value is the share ranked right
    """

    step: int
    mode: Mode
    num_prompts: int
    samples: int
    temperature: float
    value: float
    interval: tuple[float, float] | None
    readable: float | None
    value_readable: float | None
    truncated: float
    mean_tokens: float
    unscored: int
    change: float | None = None
    change_interval: tuple[float, float] | None = None
    by_prompt: dict[str, float]
    details: dict[str, float | None] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Evaluation:
        """The evaluation back from its line in evaluations.jsonl; nothing scored gives nan again.

        Raises RecordError when the line lacks a field.
        """
        record = restored(record)
        record = {"details": {}, **record}  # lines of earlier runs have none
        missing = [name.name for name in fields(cls) if name.name not in record]
        if missing:
            raise RecordError(
                f"evaluations.jsonl: the line of step {record.get('step')} lacks {', '.join(missing)}. Restore it from a copy"
            )
        values = {name.name: record[name.name] for name in fields(cls)}
        for name in ("interval", "change_interval"):
            values[name] = None if values[name] is None else tuple(float(end) for end in values[name])
        return cls(**values)

    def compared_with(self, first: Evaluation) -> Evaluation:
        """The same evaluation with its paired difference to `first`, over the prompts that both have."""
        shared = [prompt for prompt in self.by_prompt if prompt in first.by_prompt]
        if not shared:
            return self
        found = paired_difference([self.by_prompt[p] for p in shared], [first.by_prompt[p] for p in shared])
        return replace(self, change=found.value, change_interval=ends(found, len(shared)))


def best_step(evaluations: Sequence[Evaluation]) -> int | None:
    """The step of the highest held-out value (the earliest of equals), None when nothing was measured.

    Greedy measurements are ranked where there are any, all of them on the prompts that they share: the look in between uses
    fewer prompts than those before and after.
    """
    measured = [found for found in evaluations if found.by_prompt]
    ranked = [found for found in measured if found.mode == "greedy"] or measured
    if not ranked:
        return None
    shared = set.intersection(*(set(found.by_prompt) for found in ranked))

    def value(found: Evaluation) -> float:
        return sum(found.by_prompt[prompt] for prompt in sorted(shared))

    return max(ranked, key=value).step


def evaluate(
    engine: Engine,
    prompts: Sequence[Prompt],
    rewards: Sequence[Reward],
    terms: Sequence[Term | float],
    sampling: Sampling,
    *,
    samples: int,
    seed: int,
    step: int,
) -> Evaluation:
    """Sample `samples` answers to each rendered prompt (one if greedy), score them, summarise."""
    count = 1 if sampling.greedy else samples
    with Scoring(rewards, terms, num_groups=len(prompts)) as scoring:
        sample_groups(
            prompts, engine, sampling, seed=seed, step=step, group_size=count, stream=EVALUATION_STREAM, on_group=scoring.add
        )
        groups = scoring.finish()
    return summarise(groups, sampling, step=step, samples=count)


def summarise(groups: Sequence[Group], sampling: Sampling, *, step: int, samples: int) -> Evaluation:
    """The evaluation that scored groups of answers amount to."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    by_prompt = {group.prompt.id: _mean([r for r in group.rewards if r is not None]) for group in groups}
    scored = {prompt: value for prompt, value in by_prompt.items() if value is not None}
    found = mean_interval(list(scored.values())) if scored else Interval(*(float("nan"),) * 3)
    readable = [rollout for rollout in rollouts if _readable(rollout) is True]
    judged = [rollout for rollout in rollouts if _readable(rollout) is not None]
    return Evaluation(
        step=step,
        mode="greedy" if sampling.greedy else "sampled",
        num_prompts=len(groups),
        samples=samples,
        temperature=sampling.temperature,
        value=found.value,
        interval=ends(found, len(scored)),
        readable=len(readable) / len(judged) if judged else None,
        value_readable=_mean([rollout.reward for rollout in readable if rollout.reward is not None]),
        truncated=_mean([float(rollout.completion.is_truncated) for rollout in rollouts]) or 0.0,
        mean_tokens=_mean([float(rollout.completion.num_tokens) for rollout in rollouts]) or 0.0,
        unscored=sum(rollout.reward is None for rollout in rollouts),
        by_prompt=scored,
    )


def ends(found: Interval, num_prompts: int) -> tuple[float, float] | None:
    """The interval, where there are enough prompts for one."""
    return (found.low, found.high) if num_prompts >= MIN_PROMPTS else None


def _readable(rollout: Rollout) -> bool | None:
    """Whether every reward that looks for an answer could read one; None when none looks."""
    marks = [score.readable for score in rollout.scores if score.readable is not None]
    return all(marks) if marks else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
