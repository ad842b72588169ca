"""The trace of a step: its updates are made as always, with a look at the weights from both sides.

Decisions:
1. The weights before the step are kept as a copy while the updates run. Afterwards the policy looks through either pair of
   eyes by swapping pointers, so nothing has to be decided before the step: which token is the heaviest is known by then.
2. Contrast (SFT beside GRPO) costs three backward passes of a group and is made on request only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from toishi.engines.base import Sampling
from toishi.errors import ConfigError
from toishi.record.influence import Arrays, Influence
from toishi.record.trace import Alternative, Contrast, Trace, TracedPosition
from toishi.session import Learner
from toishi.tracing.contrast import contrast
from toishi.tracing.influence.account import Scene, measure
from toishi.tracing.measuring import Measured, after, before, plan
from toishi.tracing.observer import StepObserver
from toishi.tracing.probing import Place
from toishi.tracing.watched import Watched, sampled, unsampled
from toishi.types import Group, Prompt, Rollout, Update
from toishi.update import groups_of_update, update_policy

TOP = 5
Clock = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What a trace should hold.

    why       the reason, in words
    sampling  how the run samples; greedy answers are drawn with its limits
    other     a prompt outside the step to be watched as well
    contrast  whether SFT is put beside GRPO, on `group` (None: the group whose rewards differ most)
    influence  who moved what is measured as well, and handed to this
    tokens     with `influence`: each answer's share of the push is told token by token
    """

    why: str
    sampling: Sampling
    other: Prompt | None = None
    contrast: bool = False
    group: int | None = None
    influence: Callable[[Influence, Arrays], object] | None = None
    tokens: bool = False


def _no_clock(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def traced_updates(
    learner: Learner, groups: Sequence[Group], step: int, request: TraceRequest, clock: Clock = _no_clock
) -> tuple[tuple[Update, ...], Trace]:
    """The step's updates, and its trace. The weights end where `update_policy` alone would have left them, bit for bit."""
    with clock("trace"):
        watched = sampled(groups) + unsampled(learner, groups, request.sampling, request.other)
    several = request.influence is not None and learner.settings.train.num_updates > 1 and not _is_moved_by_a_critic(learner)
    observer = StepObserver(learner, partial(_first_of_several, learner, groups, watched, request) if several else None)
    with clock("update"):
        updates = update_policy(
            learner.policy, learner.optimizer, groups, learner.settings, step=step, observer=observer, critic=learner.critic
        )
    with clock("trace"):
        trace = _trace(learner, groups, step, request, watched, updates, observer)
    return updates, trace


def _trace(
    learner: Learner,
    groups: Sequence[Group],
    step: int,
    request: TraceRequest,
    watched: Sequence[Watched],
    updates: Sequence[Update],
    observer: StepObserver,
) -> Trace:
    policy = learner.policy
    first = observer.first or {name: master.detach() for name, master in policy.masters.items()}
    if request.influence is None or len(updates) > 1:
        policy.zero_grad()
    wanted, notes = chosen_positions(groups, updates[0]), []
    teaching = _teaching_group(groups, updates[0], request.group) if observer.checks else None
    planned = plan(watched, updates if observer.checks else ())  # nothing was seen while a critic learns alone
    with policy.with_weights({name: master.to(policy.compute_dtype) for name, master in first.items()}):
        earlier = before(learner, planned, list(wanted), updates[0], observer.probs)
    later = after(learner, planned, list(wanted))
    if request.influence is not None:
        notes += _influence(learner, groups, watched, request, updates, observer, (earlier, later))
        policy.zero_grad()
    beside: Contrast | None = None
    if request.contrast and teaching is not None:
        beside = contrast(learner, teaching, updates[0], first, _reference(watched, teaching))
    elif request.contrast:
        notes.append("no group of the step's first update has rewards that differ, so GRPO has no gradient to put beside SFT's")
    if request.other is None:
        notes.append("no prompt outside the step is on record, so none was watched")
    return Trace(
        step=step,
        why=request.why,
        dtype=str(policy.compute_dtype).removeprefix("torch."),
        temperature=learner.settings.temperature,
        failure="",
        notes=tuple(notes),
        updates=tuple(observer.totals),
        positions=tuple(_positions(learner, groups, wanted, earlier, later)),
        check=None if teaching is None else observer.checks[teaching.rollouts[0].id.group],
        contrast=beside,
        texts=tuple(
            item.traced(learner, earlier.logprobs(item.rollout.id), later.logprobs(item.rollout.id)) for item in watched
        ),
        matrices=tuple(observer.matrices),
    )


def _is_moved_by_a_critic(learner: Learner) -> bool:
    """Whether the policy's weights are a critic's trunk as well."""
    return learner.critic is not None and not learner.critic.owns_trunk


def _influence(
    learner: Learner,
    groups: Sequence[Group],
    watched: Sequence[Watched],
    request: TraceRequest,
    updates: Sequence[Update],
    observer: StepObserver,
    sides: tuple[Measured, Measured],
) -> list[str]:
    """Hands over who moved what in a single update; what there is to note of it."""
    if _is_moved_by_a_critic(learner):
        return [
            "who moved what is not told: the critic's loss moved the shared weights as well, and it is no push of an answer"
        ]
    if observer.first is None:
        return ["no weight was asked to move, so there is nothing to tell of who moved what"]
    if len(updates) > 1:
        return [
            f"who moved what is told of the first of the step's {len(updates)} optimizer updates: the others start from "
            "weights that those before them made, which the trace does not keep"
        ]
    _hand_over(learner, groups, watched, request, observer, sides)
    return []


def _first_of_several(
    learner: Learner, groups: Sequence[Group], watched: Sequence[Watched], request: TraceRequest, observer: StepObserver
) -> None:
    """Measures both sides of the step's first update, while they are there, and hands over who moved what in it."""
    assert observer.first is not None
    policy, planned = learner.policy, plan(watched, ())
    before_it = {name: master.to(policy.compute_dtype) for name, master in observer.first.items()}
    later = after(learner, planned, [])
    with policy.with_weights(before_it):
        earlier = after(learner, planned, [])
    learned = groups_of_update(groups, 0, learner.settings, groups[0].rollouts[0].id.step)
    _hand_over(learner, learned, watched, request, observer, (earlier, later))


def _hand_over(
    learner: Learner,
    groups: Sequence[Group],
    watched: Sequence[Watched],
    request: TraceRequest,
    observer: StepObserver,
    sides: tuple[Measured, Measured],
) -> None:
    assert observer.first is not None
    assert request.influence is not None
    before, after = ({item.rollout.id: side.logprobs(item.rollout.id) for item in watched} for side in sides)
    scene = Scene(learner, groups, watched, observer.first, observer.totals[0], before, after, tokens=request.tokens)
    request.influence(*measure(scene))


def _reference(watched: Sequence[Watched], group: Group) -> Rollout | None:
    number = group.rollouts[0].id.group
    return next((item.rollout for item in watched if item.kind == "reference" and item.rollout.id.group == number), None)


def _teaching_group(groups: Sequence[Group], update: Update, asked: int | None) -> Group | None:
    """The asked-for group, or the one whose rewards differ most, among those that the update computed.

    Raises ConfigError when the asked-for one was not computed.
    """
    computed = {stream.rollout.group for stream in update.streams if stream.computed}
    able = [group for group in groups if group.rollouts[0].id.group in computed and not group.is_tied]
    if asked is None:
        return max(able, key=_spread, default=None)
    for group in able:
        if group.rollouts[0].id.group == asked:
            return group
    raise ConfigError(
        f"group {asked} cannot be put beside SFT: it needs rewards that differ and a part in the step's first update; "
        f"able groups: {', '.join(str(group.rollouts[0].id.group) for group in able) or 'none'}"
    )


def _spread(group: Group) -> float:
    rewards = [reward for reward in group.rewards if reward is not None]
    return max(rewards) - min(rewards)


def chosen_positions(groups: Sequence[Group], update: Update) -> dict[Place, tuple[str, float]]:
    """For each answer its first token, and its heaviest one in the update: place -> (why, token weight)."""
    streams = {stream.rollout: stream.token_weight for stream in update.streams if stream.computed}
    chosen: dict[Place, tuple[str, float]] = {}
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        trained = [token for token, has_loss in enumerate(rollout.completion.loss_mask) if has_loss]
        weights = streams.get(rollout.id)
        if trained and weights:
            heaviest = max(trained, key=lambda token: abs(weights[token]))
            chosen[rollout.id, heaviest] = ("heaviest", weights[heaviest])
        if trained:
            chosen[rollout.id, trained[0]] = ("first", weights[trained[0]] if weights else 0.0)
    return chosen


def _positions(
    learner: Learner, groups: Sequence[Group], wanted: dict[Place, tuple[str, float]], earlier: Measured, later: Measured
) -> Iterator[TracedPosition]:
    answers = {rollout.id: rollout.completion for group in groups for rollout in group.rollouts}
    for (id_, token), (why, weight) in sorted(wanted.items()):
        own = answers[id_].token_ids[token]
        yield TracedPosition(
            group=id_.group,
            member=id_.member,
            token=token,
            why="first" if why == "first" else "heaviest",
            token_weight=weight,
            alternatives=tuple(_alternatives(learner, own, earlier.probs((id_, token)), later.probs((id_, token)))),
        )


def _alternatives(learner: Learner, own: int, before_V: Tensor, after_V: Tensor) -> Iterator[Alternative]:
    likeliest = [torch.topk(probs_V, min(TOP, len(probs_V))).indices.tolist() for probs_V in (before_V, after_V)]
    for token in dict.fromkeys([own, *likeliest[0], *likeliest[1]]):
        (text,) = learner.renderer.pieces([token])
        yield Alternative(token_id=token, text=text, before=float(before_V[token]), after=float(after_V[token]))
