"""The step really done again with a change: from its checkpoint, by the updates that training makes.

Decisions:
1. The step as recorded is done again as well, and compared with the record: else nobody knew whether it is the same step.
2. Before and after are measured by the same packing; several questions share one replay, each from the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from toishi.counterfactual.answering import groups_with
from toishi.counterfactual.change import Change
from toishi.counterfactual.model import Redone
from toishi.counterfactual.recorded import RecordedStep
from toishi.errors import RecordError
from toishi.replay.plan import ReplayPlan
from toishi.replay.redo import ReplayReport, plain_updates, replay
from toishi.session import Learner
from toishi.tracing.probing import probe
from toishi.tracing.snapshot import Snapshot
from toishi.types import Group, Rollout, RolloutId, Update
from toishi.update import UpdateSettings, update_policy

Question = tuple[int, Change]
"""A group and what is changed in it."""


@dataclass(frozen=True)
class Done:
    """One question, really done: change of every answer's log-prob (nats), and the updates that made it."""

    changes: dict[RolloutId, float]
    updates: tuple[Update, ...]
    seconds: float


def redo_changed(
    step: RecordedStep,
    plan: ReplayPlan,
    questions: Sequence[Question],
    *,
    on_stage: Callable[[str], None] = lambda words: None,
) -> tuple[list[Done], ReplayReport]:
    """Every question's step, and how the step as recorded came out again.

    on_stage  told what is being done, for a progress display
    Raises RecordError when the replay differs from the record before it reaches the step; ConfigError for an impossible change.
    """
    done: list[Done] = []

    def updating(learner: Learner, groups: tuple[Group, ...], number: int) -> tuple[Update, ...]:
        here = replace(step, report=replace(step.report, groups=groups))
        kept = Snapshot.take(learner.policy, learner.optimizer, learner.critic)
        rollouts = [rollout for group in groups for rollout in group.rollouts if any(rollout.completion.loss_mask)]
        before = _totals(learner, rollouts)
        for place, (group, change) in enumerate(questions, start=1):
            on_stage(f"doing step {number} with the change" + (f" {place} of {len(questions)}" if len(questions) > 1 else ""))
            done.append(_changed(learner, here, group, change, before, rollouts))
            kept.put_back(learner.policy, learner.optimizer, learner.critic)
        on_stage(f"doing step {number} as recorded")
        return plain_updates(learner, groups, number)

    report = replay(step.run, plan, on_step=lambda number: on_stage(f"doing step {number} again"), updating=updating)
    if not done:
        why = report.difference.text if report.difference is not None else "the step was not reached"
        raise RecordError(f"the step cannot be done with the change, since an earlier one does not come out as recorded: {why}")
    return done, report


def _changed(
    learner: Learner,
    step: RecordedStep,
    group: int,
    change: Change,
    before: dict[RolloutId, float],
    rollouts: Sequence[Rollout],
) -> Done:
    started = time.perf_counter()
    new = step.changed_settings(change)
    settings = replace(learner.settings, algorithm=new.algorithm, optimizer=new.optimizer)
    _set_options(learner.optimizer, settings)
    updates = update_policy(
        learner.policy,
        learner.optimizer,
        groups_with(step, group, change, settings),
        settings,
        step=step.report.step,
        critic=learner.critic,
    )
    after = _totals(learner, rollouts)
    changes = {id_: after[id_] - value for id_, value in before.items()}
    return Done(changes, updates, time.perf_counter() - started)


def _set_options(optimizer: torch.optim.Optimizer, settings: UpdateSettings) -> None:
    """The changed numbers of the optimizer; its learning rate is set by the update itself."""
    wanted = settings.optimizer
    values = {"betas": tuple(wanted.betas), "eps": wanted.eps, "momentum": wanted.momentum, "weight_decay": wanted.weight_decay}
    for parameter_group in optimizer.param_groups:
        parameter_group.update({name: value for name, value in values.items() if name in parameter_group})


def _totals(learner: Learner, rollouts: Sequence[Rollout]) -> dict[RolloutId, float]:
    found = probe(learner.policy, rollouts, learner.settings).logprobs
    return {id_: math.fsum(values) for id_, values in found.items()}


def redone(done: Done, report: ReplayReport) -> Redone:
    """What is told of a redo beside its numbers."""
    last = done.updates[-1].scalars
    return Redone(
        agrees=report.ok,
        bit_for_bit=report.bit_for_bit,
        difference="" if report.difference is None else report.difference.text,
        loss=last["update/loss"],
        gradient_norm=last["update/grad_norm"],
        seconds=done.seconds,
    )
