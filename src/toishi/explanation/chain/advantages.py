"""Links 3 and 4: the group's baseline and each answer's advantage, formed again from the scores by the run's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.shaping import shaped
from toishi.explanation.chain.comparing import SUMS, Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import AdvantageLink, BaselineLink, CriticNumbers, MemberAdvantage, MemberBaseline
from toishi.explanation.chain.scores import composed_again
from toishi.explanation.formula import formula, numbers_of, worked
from toishi.explanation.rounding import as_number, single_bound
from toishi.explanation.step import left_out_because
from toishi.explanation.surprises import TokenAdvantage, Whitening, raw_surprises, whitened, whitening_of
from toishi.types import Group, GroupBaseline, Rollout

__all__ = ["adopted", "advantage_bound", "advantage_link", "as_number", "baseline_link", "groups_again"]

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
    if "baseline" not in evidence.absent:
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
        tied=again.is_tied and evidence.algorithm.needs_group,
        members=tuple(_standing(rollout, evidence) for rollout in again.rollouts),
        check=comparing.check(how),
    )


def advantage_link(evidence: Evidence, again: Sequence[Group], how: str) -> AdvantageLink:
    """Each answer's advantage, with the row's formula in its numbers."""
    if "advantage" in evidence.absent:
        return _advantages_alone(evidence, how)
    comparing = Comparing("advantage")
    mine = next(group for group in again if group.rollouts[0].id.group == evidence.number)
    bound, members = advantage_bound(evidence, mine), []
    whitening = whitening_of(again, evidence.algorithm, evidence.max_new_tokens)
    for rollout, found in zip(evidence.rollouts, mine.rollouts, strict=True):
        _compare(rollout, found, comparing, bound)
        row, limit = evidence.algorithm, evidence.max_new_tokens
        parts = numbers_of(found, mine, again, row, limit)
        tokens = whitened(raw_surprises(found, row, limit), whitening, row)
        _compare_tokens(rollout, found, tokens, mine, comparing)
        members.append(
            MemberAdvantage(
                member=rollout.id.member,
                recorded=rollout.advantage,
                recomputed=found.advantage,
                subtracted=None if parts is None else parts.subtracted,
                divisor=None if parts is None else parts.divisor,
                rewards=() if parts is None else parts.rewards,
                worked=worked(mine, again, row, limit, member=rollout.id.member, digits=WORKED_DIGITS),
                tokens=tokens,
                texts=_texts(evidence, rollout, tokens),
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
        critic=_critic(evidence, whitening) if evidence.algorithm.needs_critic else None,
    )


def _critic(evidence: Evidence, whitening: Whitening | None) -> CriticNumbers:
    row = evidence.algorithm
    return CriticNumbers(
        gamma=row.gamma,
        gae_lambda=row.gae_lambda,
        whitening=whitening,
        learns_alone=not evidence.loss_row.moves_policy,
    )


def _texts(evidence: Evidence, rollout: Rollout, tokens: Sequence[TokenAdvantage]) -> tuple[str, ...]:
    known = evidence.tokens.get((rollout.id.group, rollout.id.member), ())
    ids = rollout.completion.token_ids
    return tuple(known[one.token] if one.token < len(known) else str(ids[one.token]) for one in tokens)


def _compare_tokens(
    recorded: Rollout, found: Rollout, tokens: Sequence[TokenAdvantage], group: Group, comparing: Comparing
) -> None:
    """A critic's advantages and returns once more, by plain arithmetic over the answer's own numbers."""
    if not tokens or (group.baseline is not None and not group.baseline.kept):
        return
    where = f"#{recorded.id.member}"
    advantages, returns = recorded.advantage_per_token, recorded.returns or ()
    comparing.numbers(f"{where}, by hand", [advantages[one.token] for one in tokens], [one.advantage for one in tokens])
    comparing.number(f"{where}, returns", len(returns), found.completion.num_tokens, 0.0)
    if returns:
        comparing.numbers(f"{where}, return", [returns[one.token] for one in tokens], [one.target for one in tokens])


def _advantages_alone(evidence: Evidence, how: str) -> AdvantageLink:
    """The advantages that are on record, where nothing says how they came about."""
    members = tuple(
        MemberAdvantage(
            member=rollout.id.member,
            recorded=rollout.advantage,
            recomputed=None,
            subtracted=None,
            divisor=None,
            rewards=(),
            worked="",
        )
        for rollout in evidence.rollouts
    )
    check = Comparing("advantage").check(how)
    return AdvantageLink(
        formula="", combine="sum", baseline="unknown", scale="unknown", epsilon=0.0, members=members, check=check
    )


def advantage_bound(evidence: Evidence, group: Group) -> float:
    """How far a recorded advantage may be from its recomputation: float64 sums, unless another program made them in float32."""
    return single_bound(group, evidence.algorithm) if evidence.source and evidence.source.single_precision else SUMS


def adopted(again: Sequence[Group], evidence: Evidence) -> tuple[Group, ...]:
    """The recomputed groups with the recorded advantages wherever both agree: what a float32 loss was made from, to the bit."""
    if evidence.source is None or not evidence.source.single_precision:
        return tuple(again)
    return tuple(_adopted(group, one, evidence) for group, one in zip(again, evidence.report.groups, strict=True))


def _adopted(again: Group, recorded: Group, evidence: Evidence) -> Group:
    bound = advantage_bound(evidence, again)
    rollouts = (
        replace(found, advantage=one.advantage)
        if "advantage" in evidence.absent or abs(as_number(one.advantage) - as_number(found.advantage)) <= bound
        else found
        for found, one in zip(again.rollouts, recorded.rollouts, strict=True)
    )
    return replace(again, rollouts=tuple(rollouts))


def _standing(rollout: Rollout, evidence: Evidence) -> MemberBaseline:
    found = shaped(rollout, evidence.algorithm, evidence.max_new_tokens)
    return MemberBaseline(
        member=rollout.id.member,
        counts=found.counts,
        left_out="" if found.counts else left_out_because(rollout),
        earned=found.total if found.counts else None,
    )


def _compare(recorded: Rollout, found: Rollout, comparing: Comparing, bound: float) -> None:
    where, one, other = f"#{recorded.id.member}", recorded.advantage, found.advantage
    if isinstance(one, tuple) and isinstance(other, tuple):
        comparing.numbers(where, one, other, bound)
    elif isinstance(one, tuple) or isinstance(other, tuple):
        comparing.fact(f"{where}: one number, or one for each token", False)
    else:
        comparing.number(where, one, other, bound)
