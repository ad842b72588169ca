"""Links 3 and 4: the group's baseline and each answer's advantage, formed again from the scores by the run's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.shaping import shaped
from toishi.explanation.chain.comparing import Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import AdvantageLink, BaselineLink, MemberAdvantage, MemberBaseline
from toishi.explanation.chain.scores import composed_again
from toishi.explanation.formula import formula, numbers_of, worked
from toishi.explanation.step import left_out_because
from toishi.types import Group, GroupBaseline, Rollout

Advantage = float | tuple[float, ...] | None
NO_BASELINE = GroupBaseline(mean=None, std=None, count=0)
WORKED_DIGITS = 6
"""So many that the four digits of an advantage follow from the numbers shown."""


def groups_again(evidence: Evidence) -> tuple[Group, ...]:
    """All groups of the step with rewards, baselines and advantages formed again from the scores."""
    composed = (composed_again(group, evidence) for group in evidence.report.groups)
    scored = tuple(
        replace(group, rollouts=tuple(replace(r, advantage=None) for r in group.rollouts), baseline=None) for group in composed
    )
    return assign_advantages(scored, evidence.algorithm, max_new_tokens=evidence.max_new_tokens)


def baseline_link(evidence: Evidence, again: Group, how: str) -> BaselineLink:
    """Mean, spread, count, and who was left out."""
    recorded, found = evidence.group.baseline or NO_BASELINE, again.baseline or NO_BASELINE
    comparing = Comparing("baseline")
    comparing.number("mean", recorded.mean, found.mean)
    comparing.number("spread", recorded.std, found.std)
    comparing.number("count", recorded.count, found.count, 0.0)
    comparing.fact("whether the group teaches", recorded.kept == found.kept)
    return BaselineLink(
        mean=recorded.mean,
        std=recorded.std,
        std_ddof=evidence.algorithm.std_ddof,
        count=recorded.count,
        size=len(again.rollouts),
        kept=recorded.kept,
        why=recorded.why,
        tied=again.is_tied,
        members=tuple(_standing(rollout, evidence) for rollout in again.rollouts),
        check=comparing.check(how),
    )


def advantage_link(evidence: Evidence, again: Sequence[Group], how: str) -> AdvantageLink:
    """Each answer's advantage, with the row's formula in its numbers."""
    comparing = Comparing("advantage")
    mine = next(group for group in again if group.rollouts[0].id.group == evidence.number)
    members = []
    for rollout, found in zip(evidence.rollouts, mine.rollouts, strict=True):
        _compare(rollout, found, comparing)
        row, limit = evidence.algorithm, evidence.max_new_tokens
        parts = numbers_of(found, mine, again, row, limit)
        members.append(
            MemberAdvantage(
                member=rollout.id.member,
                recorded=rollout.advantage,
                recomputed=found.advantage,
                subtracted=None if parts is None else parts.subtracted,
                divisor=None if parts is None else parts.divisor,
                rewards=() if parts is None else parts.rewards,
                worked=worked(mine, again, row, limit, member=rollout.id.member, digits=WORKED_DIGITS),
            )
        )
    return AdvantageLink(
        formula=formula(evidence.algorithm),
        combine=evidence.algorithm.combine,
        baseline=evidence.algorithm.baseline,
        scale=evidence.algorithm.scale,
        epsilon=evidence.algorithm.std_epsilon,
        members=tuple(members),
        check=comparing.check(how),
    )


def as_number(advantage: Advantage) -> float:
    """An answer's advantage as one number: the mean over its tokens when each has its own."""
    if isinstance(advantage, tuple):
        return sum(advantage) / len(advantage) if advantage else 0.0
    return advantage or 0.0


def _standing(rollout: Rollout, evidence: Evidence) -> MemberBaseline:
    found = shaped(rollout, evidence.algorithm, evidence.max_new_tokens)
    return MemberBaseline(
        member=rollout.id.member,
        counts=found.counts,
        left_out="" if found.counts else left_out_because(rollout),
        earned=found.total if found.counts else None,
    )


def _compare(recorded: Rollout, found: Rollout, comparing: Comparing) -> None:
    where, one, other = f"#{recorded.id.member}", recorded.advantage, found.advantage
    if isinstance(one, tuple) and isinstance(other, tuple):
        comparing.numbers(where, one, other)
    elif isinstance(one, tuple) or isinstance(other, tuple):
        comparing.fact(f"{where}: one number, or one for each token", False)
    else:
        comparing.number(where, one, other)
