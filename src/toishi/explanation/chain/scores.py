"""Links 1 and 2: what each reward said, and the reward as their weighted sum.

Decision: a score's value and weight are the start of the chain, there is nothing before them to recompute them from. What is
checked is that the recorded contribution follows from them by the run's gates, caps, noise and failures (their product, where
there are none), and that a score without a value says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toishi.algorithms.composing import composed
from toishi.explanation.chain.comparing import Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import MemberReward, MemberScores, RewardLink, ScoreLine, ScoresLink, SumTerm
from toishi.types import Group, Rollout, Score


def scores_link(evidence: Evidence, how: str) -> ScoresLink:
    """What each reward said of each answer."""
    comparing = Comparing("scores")
    again = composed_again(evidence.group, evidence).rollouts
    pairs = zip(evidence.rollouts, again, strict=True)
    members = tuple(_member(rollout, found, evidence, comparing) for rollout, found in pairs)
    return ScoresLink(members=members, check=comparing.check(how))


def reward_link(evidence: Evidence, how: str) -> RewardLink:
    """The weighted sum of each answer's scores."""
    comparing = Comparing("reward")
    members = []
    for rollout, found in zip(evidence.rollouts, composed_again(evidence.group, evidence).rollouts, strict=True):
        again = found.reward
        comparing.number(f"#{rollout.id.member}", rollout.reward, again)
        terms = tuple(
            SumTerm(reward=score.reward, weight=score.weight, value=score.value, use=score.use, paid=part)
            for score in rollout.scores
            if (part := score.contribution) is not None and score.value is not None
        )
        members.append(MemberReward(member=rollout.id.member, terms=terms, recorded=rollout.reward, recomputed=again))
    return RewardLink(members=tuple(members), check=comparing.check(how))


def composed_again(group: Group, evidence: Evidence) -> Group:
    """The group's contributions and rewards formed again from values and weights."""
    return composed(group, evidence.terms)


def _member(rollout: Rollout, again: Rollout, evidence: Evidence, comparing: Comparing) -> MemberScores:
    member = rollout.id.member
    rows = evidence.rows[rollout.id.group, member]["scores"]
    pairs = zip(again.scores, rows, strict=True)
    return MemberScores(
        member=member,
        answer=rollout.completion.text,
        num_tokens=rollout.completion.num_tokens,
        status=rollout.status,
        failure=rollout.failure,
        cut=rollout.completion.is_truncated,
        scores=tuple(_line(score, row, f"#{member}, {score.reward}", comparing) for score, row in pairs),
    )


def _line(score: Score, row: Mapping[str, Any], where: str, comparing: Comparing) -> ScoreLine:
    comparing.number(where, row["contribution"], score.contribution)
    comparing.fact(f"{where}: how it counts", (row.get("use") or "counted") == score.use)
    comparing.fact(f"{where}: a value if and only if it is ok", (score.value is not None) == (score.status == "ok"))
    return ScoreLine(
        reward=score.reward,
        value=score.value,
        weight=score.weight,
        contribution=row["contribution"],
        status=score.status,
        reason=score.reason,
        span=score.span,
        use=score.use,
    )
