"""Every watched answer's log-probs before and after the step, with as few forward passes as can be.

Decisions:
1. Before and after come from the same packing, so their difference is the weights' alone.
2. What a single update computed anyway is not computed again: its answers' log-probs and probabilities before the step are
   those of its own forward pass.
3. Equal answers to one prompt are computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from toishi.session import Learner
from toishi.tracing.probing import Place, Probe, probe
from toishi.tracing.watched import Watched
from toishi.types import Rollout, RolloutId, Update

Answer = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """Which answers are run, and which are measured through an equal one.

    computed   run by the step's only update, in its order
    others     to be run before and after
    stand_ins  every watched answer -> the one that is run for it
    """

    computed: tuple[Rollout, ...]
    others: tuple[Rollout, ...]
    stand_ins: Mapping[RolloutId, RolloutId]


@dataclass(frozen=True)
class Measured:
    """Log-probs and probabilities of all watched answers on one side of the step."""

    probe: Probe
    stand_ins: Mapping[RolloutId, RolloutId]

    def logprobs(self, rollout: RolloutId) -> tuple[float, ...]:
        return self.probe.logprobs[self.stand_ins[rollout]]

    def probs(self, place: Place) -> Tensor:
        return self.probe.probs[self.stand_ins[place[0]], place[1]]


def plan(watched: Sequence[Watched], updates: Sequence[Update]) -> Plan:
    """Answers that the update computed come first, so that an equal one is measured through them."""
    single = updates if len(updates) == 1 else ()
    done = {stream.rollout for update in single for stream in update.streams if stream.computed}
    in_order = sorted((item.rollout for item in watched), key=lambda rollout: (rollout.id not in done, rollout.id))
    chosen: dict[Answer, RolloutId] = {}
    stand_ins = {rollout.id: chosen.setdefault(_answer(rollout), rollout.id) for rollout in in_order}
    computed = tuple(rollout for rollout in in_order if rollout.id in done)
    stand_ins |= {rollout.id: rollout.id for rollout in computed}
    others = tuple(rollout for rollout in in_order if rollout.id not in done and stand_ins[rollout.id] == rollout.id)
    return Plan(computed=computed, others=others, stand_ins=stand_ins)


def _answer(rollout: Rollout) -> Answer:
    return rollout.id.group, rollout.completion.token_ids, rollout.completion.loss_mask


def before(learner: Learner, plan: Plan, places: Sequence[Place], update: Update, seen: Mapping[Place, Tensor]) -> Measured:
    """Under the weights of the moment, which are those before the step. `seen` holds probabilities that the update computed."""
    found = probe(learner.policy, plan.others, learner.settings, _wanted(plan, places))
    computed = {rollout.id for rollout in plan.computed}
    found.logprobs.update({stream.rollout: stream.old_logprob for stream in update.streams if stream.rollout in computed})
    found.probs.update({place: probs_V for place, probs_V in seen.items() if place[0] in computed})
    return Measured(found, plan.stand_ins)


def after(learner: Learner, plan: Plan, places: Sequence[Place]) -> Measured:
    """Under the weights of the moment, which are those after the step."""
    wanted = _wanted(plan, places)
    found = probe(learner.policy, plan.computed, learner.settings, wanted)
    rest = probe(learner.policy, plan.others, learner.settings, wanted)
    return Measured(Probe(found.logprobs | rest.logprobs, found.probs | rest.probs), plan.stand_ins)


def _wanted(plan: Plan, places: Sequence[Place]) -> dict[RolloutId, list[int]]:
    wanted: dict[RolloutId, list[int]] = {}
    for rollout, token in dict.fromkeys((plan.stand_ins[rollout], token) for rollout, token in places):
        wanted.setdefault(rollout, []).append(token)
    return wanted
