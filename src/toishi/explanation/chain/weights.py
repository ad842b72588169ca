"""Link 5: the weight of every token, d loss / d log-prob, from its factors and by autograd.

Decisions:
1. Both roads start from the advantages formed again from the scores and from the recorded log-probs.
2. Shown is the first update that computed the group unless another is asked for: there ratios are 1, and what the trace says
   about heaviest tokens and about SFT is about that update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toishi.errors import ConfigError
from toishi.explanation.audit_updates import can_move, recompute
from toishi.explanation.chain.comparing import WEIGHTS, Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.factors import Denominators, Factors, factors_of
from toishi.explanation.chain.model import MemberWeights, SharedStart, TokenPush, WeightsLink
from toishi.explanation.chain.shared import shared_starts
from toishi.types import Group, Rollout, RolloutId, TokenStreams, Update

Rollouts = Mapping[RolloutId, Rollout]
AUTOGRAD = {"float64": 1e-6, "float32": 1e-3}
AUTOGRAD_OTHERWISE = 0.3
"""Bound of the trace's own comparison through the model's logits: its forward pass is packed in another way."""


def shown_update(evidence: Evidence, asked: int | None) -> Update | None:
    """The asked-for update, or the first that computed an answer of the group; the step's first when none did.

    Raises ConfigError for an update that the step does not have.
    """
    updates = evidence.report.updates
    if asked is not None:
        for update in updates:
            if update.index == asked:
                return update
        raise ConfigError(
            f"step {evidence.report.step} has no update {asked}; it has "
            + (f"updates 0 to {len(updates) - 1}" if updates else "none")
        )
    able = (update for update in updates if any(stream.computed for stream in evidence.streams(update).values()))
    return next(able, updates[0] if updates else None)


def weights_link(evidence: Evidence, again: Sequence[Group], update: Update, how: str) -> WeightsLink:
    """Every token of the group in the update, with its factors."""
    row, comparing = evidence.loss_row, Comparing("weights")
    rollouts: Rollouts = {rollout.id: rollout for group in again for rollout in group.rollouts}
    streams = [replace(stream, advantage=rollouts[stream.rollout].advantage_per_token) for stream in update.streams]
    counts = _denominators(update, rollouts, evidence, comparing)
    loss, autograd = _by_autograd(update, streams, rollouts, evidence)
    comparing.number("loss", update.scalars.get("update/loss", loss), loss, WEIGHTS * _largest_advantage(streams))
    found = {
        stream.rollout: factors_of(rollouts[stream.rollout], stream, stream.advantage, row, counts)
        for stream in streams
        if stream.computed
    }
    scale = max((factors.scale for mine in found.values() for factors in mine), default=0.0)
    mine = evidence.streams(update)
    members = tuple(
        _member(evidence, rollouts[rollout.id], mine.get(rollout.id), found.get(rollout.id), autograd, scale, comparing)
        for rollout in evidence.rollouts
    )
    everything = sum(abs(weight) for stream in update.streams for weight in stream.token_weight)
    return WeightsLink(
        update=update.index,
        num_updates=len(evidence.report.updates),
        reduction=row.reduction,
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
        max_length=counts.max_length,
        surrogate=row.surrogate,
        ratio_level=row.ratio_level,
        clip_low=row.clip_low,
        clip_high=row.clip_high,
        dual_clip=row.dual_clip,
        kl=row.kl if row.needs_reference else "none",
        kl_coef=row.kl_coef,
        entropy_slope=-row.entropy_coef / max(1, counts.num_tokens),
        loss=loss,
        group_share=sum(member.absolute for member in members) / everything if everything > 0 else None,
        through_logits=_through_logits(evidence, update, comparing),
        members=members,
        starts=_starts(evidence, members),
        check=comparing.check(how),
    )


def _starts(evidence: Evidence, members: Sequence[MemberWeights]) -> tuple[SharedStart, ...]:
    ids = {rollout.id.member: rollout.completion.token_ids for rollout in evidence.rollouts}
    texts = {rollout.id.member: _texts(evidence, rollout) for rollout in evidence.rollouts}
    return shared_starts(ids, texts, {found.member: [-token.weight for token in found.tokens] for found in members})


def _texts(evidence: Evidence, rollout: Rollout) -> list[str]:
    """Of each token; its number where no text is on record."""
    texts = evidence.tokens.get((rollout.id.group, rollout.id.member), ())
    return [texts[i] if i < len(texts) else str(token) for i, token in enumerate(rollout.completion.token_ids)]


def _denominators(update: Update, rollouts: Rollouts, evidence: Evidence, comparing: Comparing) -> Denominators:
    taking_part = [rollouts[stream.rollout].completion for stream in update.streams]
    tokens = sum(sum(completion.loss_mask) for completion in taking_part)
    for name, count in (("tokens", tokens), ("rollouts", len(taking_part))):
        comparing.number(f"number of {name}", update.scalars.get(f"update/{name}", count), count, 0.0)
    return Denominators(max(1, tokens), max(1, len(taking_part)), evidence.max_new_tokens)


def _by_autograd(
    update: Update, streams: Sequence[TokenStreams], rollouts: Rollouts, evidence: Evidence
) -> tuple[float, dict[RolloutId, list[float]]]:
    computed = [stream for stream in streams if stream.computed]
    if not computed:
        return 0.0, {}
    loss, columns = recompute(update, computed, rollouts, evidence.loss_row, evidence.max_new_tokens)
    values = iter(columns["token_weight"].tolist())
    return loss, {
        stream.rollout: [next(values) for trained in rollouts[stream.rollout].completion.loss_mask if trained]
        for stream in computed
    }


def _member(
    evidence: Evidence,
    rollout: Rollout,
    stream: TokenStreams | None,
    factors: Sequence[Factors] | None,
    autograd: Mapping[RolloutId, Sequence[float]],
    scale: float,
    comparing: Comparing,
) -> MemberWeights:
    member = rollout.id.member
    moves = can_move(rollout, evidence.loss_row)
    if stream is None or not stream.computed or factors is None:
        if stream is not None:
            comparing.fact(f"#{member}: nothing to compute", not moves)
        why = "not_in_update" if stream is None else "nothing_to_push"
        return MemberWeights(member=member, computed=False, why_not=why, total=0.0, absolute=0.0, tokens=())
    comparing.numbers(f"#{member}, advantage", stream.advantage, rollout.advantage_per_token)
    texts = evidence.tokens.get((rollout.id.group, member), ())
    own, by_autograd = iter(factors), iter(autograd[rollout.id])
    tokens = []
    for place, trained in enumerate(rollout.completion.loss_mask):
        text = texts[place]
        if not trained:
            tokens.append(_silent(place, text))
            continue
        push = _push(place, text, stream, next(own), next(by_autograd))
        _compare(f"#{member}, token {place}", push, stream, scale, comparing)
        tokens.append(push)
    return MemberWeights(
        member=member,
        computed=True,
        why_not="",
        total=sum(stream.token_weight),
        absolute=sum(map(abs, stream.token_weight)),
        tokens=tuple(tokens),
    )


def _push(place: int, text: str, stream: TokenStreams, own: Factors, autograd: float) -> TokenPush:
    return TokenPush(
        token=place,
        text=text,
        has_loss=True,
        logprob=stream.logprob[place],
        advantage=own.advantage,
        ratio=own.ratio,
        clip=own.clip,
        ratio_factor=own.ratio_factor,
        correction=own.correction,
        share=own.share,
        pooling=own.pooling,
        kl_slope=own.kl_slope,
        policy_part=own.policy_part,
        kl_part=own.kl_part,
        product=own.product,
        weight=stream.token_weight[place],
        autograd=autograd,
    )


def _silent(place: int, text: str) -> TokenPush:
    """A token without loss: given to the model, not sampled by it."""
    nothing = dict.fromkeys(("advantage", "ratio_factor", "share", "kl_slope", "policy_part", "kl_part", "product"), 0.0)
    return TokenPush(
        token=place, text=text, has_loss=False, logprob=None, ratio=1.0, clip=0, correction=1.0, pooling=1.0, weight=0.0,
        autograd=0.0, **nothing,
    )  # fmt: skip


def _compare(where: str, push: TokenPush, stream: TokenStreams, scale: float, comparing: Comparing) -> None:
    bound = WEIGHTS * scale
    comparing.number(f"{where}, ratio", stream.ratio[push.token], push.ratio, WEIGHTS * max(1.0, push.ratio))
    comparing.number(f"{where}, clip branch", stream.clip[push.token], push.clip, 0.0)
    comparing.number(f"{where}, by its factors", push.weight, push.product, bound)
    comparing.number(f"{where}, by autograd", push.weight, push.autograd, bound)


def _through_logits(evidence: Evidence, update: Update, comparing: Comparing) -> float | None:
    trace = evidence.trace
    if trace is None or trace.check is None or trace.check.group != evidence.number or update is not evidence.report.updates[0]:
        return None
    bound = AUTOGRAD.get(trace.dtype, AUTOGRAD_OTHERWISE)
    comparing.number("largest distance to autograd through the logits", trace.check.largest_relative, 0.0, bound)
    return trace.check.largest_relative


def _largest_advantage(streams: Sequence[TokenStreams]) -> float:
    return max((abs(value) for stream in streams for value in stream.advantage), default=0.0) + 1.0
