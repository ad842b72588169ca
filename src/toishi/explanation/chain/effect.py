"""Link 8: the probabilities before and after the step, measured by the trace.

Decision: what was measured cannot be recomputed without the model. What is checked is that the trace is of this step: same
tokens, log-probs before it as its first update saw them, and probabilities at chosen positions that agree with the log-probs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

from toishi.explanation.chain.advantages import as_number
from toishi.explanation.chain.comparing import NATS, NATS_OTHERWISE, Comparing
from toishi.explanation.chain.evidence import Evidence
from toishi.explanation.chain.model import AnswerEffect, EffectLink, TokenEffect
from toishi.record.trace import TextKind, TracedPosition, TracedText
from toishi.types import Group, Rollout, RolloutId, TokenStreams

SAME_PASS = 1e-4
"""Probabilities and log-probs of one forward pass, relative."""
UNMOVED = 1e-9
KINDS = get_args(TextKind)
"""In the order in which they are shown."""


def effect_link(evidence: Evidence, again: Group, how: str) -> EffectLink | None:
    """Every watched answer to the group's prompt, and one to another prompt; None without a trace."""
    trace = evidence.trace
    if trace is None:
        return None
    comparing, streams = Comparing("effect"), _first_streams(evidence)
    rollouts = {rollout.id.member: rollout for rollout in again.rollouts}
    noise = 0.0
    mine = [text for text in trace.texts if text.group in (evidence.number, None)]
    texts = sorted(mine, key=lambda text: KINDS.index(text.kind))
    for member, rollout in rollouts.items():
        text = trace.text(evidence.number, member)
        comparing.fact(f"#{member} is in the trace", text is not None)
        if text is not None:
            noise = max(noise, _compare(text, rollout, streams.get(rollout.id), trace.dtype, comparing))
    positions = tuple(place for place in trace.positions if place.group == evidence.number)
    for place in positions:
        _compare_position(place, trace.text(place.group, place.member), comparing)
    return EffectLink(
        answers=tuple(_answer(text, rollouts) for text in texts),
        positions=positions,
        temperature=trace.temperature,
        dtype=trace.dtype,
        noise=noise,
        check=comparing.check(how),
    )


def _first_streams(evidence: Evidence) -> Mapping[RolloutId, TokenStreams]:
    found: dict[RolloutId, TokenStreams] = {}
    for update in evidence.report.updates:
        for stream in update.streams:
            if stream.computed:
                found.setdefault(stream.rollout, stream)
    return found


def _compare(text: TracedText, rollout: Rollout, stream: TokenStreams | None, dtype: str, comparing: Comparing) -> float:
    """Compares an answer's log-probs before the step with the step's own; the largest distance."""
    where, completion = f"#{rollout.id.member}", rollout.completion
    comparing.fact(f"{where}: the same tokens", text.token_ids == completion.token_ids)
    comparing.fact(f"{where}: a log-prob for each token", len(text.before) == len(text.after) == len(text.token_ids))
    before = completion.sampled_logprobs if stream is None else stream.old_logprob
    bound, largest = NATS.get(dtype, NATS_OTHERWISE), 0.0
    for place, trained in enumerate(completion.loss_mask):
        if trained and place < min(len(text.before), len(before)):
            comparing.number(f"{where}, token {place}, log-prob before", text.before[place], before[place], bound)
            largest = max(largest, abs(text.before[place] - before[place]))
    return largest


def _compare_position(place: TracedPosition, text: TracedText | None, comparing: Comparing) -> None:
    where = f"#{place.member}, token {place.token}"
    if text is None or not place.alternatives or place.token >= len(text.before):
        comparing.fact(f"{where}: the position is in the answer", False)
        return
    own = place.alternatives[0]
    comparing.fact(f"{where}: the answer's own token first", own.token_id == text.token_ids[place.token])
    for name, probability, logprob in (("before", own.before, text.before), ("after", own.after, text.after)):
        again = math.exp(logprob[place.token])
        comparing.number(f"{where}, probability {name}", probability, again, SAME_PASS * again + 1e-12)
        total = math.fsum(getattr(other, name) for other in place.alternatives)
        comparing.fact(f"{where}, probabilities {name} sum to 1 at most", total <= 1.0 + SAME_PASS)


def _answer(text: TracedText, rollouts: Mapping[int, Rollout]) -> AnswerEffect:
    before, after = math.fsum(text.before), math.fsum(text.after)
    rollout = rollouts.get(text.member) if text.member is not None else None
    advantage = None if rollout is None else as_number(rollout.advantage)
    change = after - before
    asked = advantage is not None and abs(advantage) > UNMOVED
    tokens = zip(text.token_texts, text.before, text.after, strict=True)
    return AnswerEffect(
        kind=text.kind,
        member=text.member,
        text=text.text,
        before=before,
        after=after,
        change=change,
        times=math.exp(min(change, 700.0)),
        advantage=advantage,
        agreed=(advantage or 0.0) * change > 0 if asked and change != 0 else None,
        tokens=tuple(TokenEffect(text=piece, before=one, after=other) for piece, one, other in tokens),
    )
