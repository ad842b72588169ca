"""Links 1 and 2: what each reward said, and the reward as their weighted sum.

Decision: a score's value and weight are the start of the chain, there is nothing before them to recompute them from. What is
checked is that the recorded contribution is their product, and that a score without a value says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toishi.explanation.chain.comparing import Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import MemberReward, MemberScores, RewardLink, ScoreLine, ScoresLink
from toishi.types import Rollout, Score


def scores_link(evidence: Evidence, how: str) -> ScoresLink:
    """What each reward said of each answer."""
    comparing = Comparing("scores")
    members = tuple(_member(rollout, evidence, comparing) for rollout in evidence.rollouts)
    return ScoresLink(members=members, check=comparing.check(how))


def reward_link(evidence: Evidence, how: str) -> RewardLink:
    """The weighted sum of each answer's scores."""
    comparing = Comparing("reward")
    members = []
    for rollout in evidence.rollouts:
        again = reward_again(rollout)
        comparing.number(f"#{rollout.id.member}", rollout.reward, again)
        terms = tuple((score.reward, score.weight, score.value) for score in rollout.scores if score.value is not None)
        members.append(MemberReward(member=rollout.id.member, terms=terms, recorded=rollout.reward, recomputed=again))
    return RewardLink(members=tuple(members), check=comparing.check(how))


def reward_again(rollout: Rollout) -> float | None:
    """Sum of weight times value; None when a part failed or every reward abstained."""
    parts = [score.contribution for score in rollout.scores if score.contribution is not None]
    failed = rollout.status == "failed" or any(score.status == "failed" for score in rollout.scores)
    return math.fsum(parts) if parts and not failed else None


def _member(rollout: Rollout, evidence: Evidence, comparing: Comparing) -> MemberScores:
    member = rollout.id.member
    rows = evidence.rows[rollout.id.group, member]["scores"]
    pairs = zip(rollout.scores, rows, strict=True)
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
    comparing.fact(f"{where}: a value if and only if it is ok", (score.value is not None) == (score.status == "ok"))
    return ScoreLine(
        reward=score.reward,
        value=score.value,
        weight=score.weight,
        contribution=row["contribution"],
        status=score.status,
        reason=score.reason,
        span=score.span,
    )
