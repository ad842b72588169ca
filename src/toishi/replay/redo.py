"""Does recorded steps again: from the answers on record to the weights, without sampling and without rewards.

Decisions:
1. Nothing that follows from something else is taken from the record: rewards come from the scores, then reference log-probs,
   values, baselines, advantages, updates, in the very functions that the loop calls.
2. Every step on the way is compared in full, not only the last: the first link that differs is the one to look at. Where bits
   must agree the replay ends there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.critic import CRITIC_CHECKSUM
from toishi.checkpoints import load_checkpoint
from toishi.errors import ConfigError
from toishi.machine import Machine
from toishi.metrics import WEIGHTS_CHECKSUM
from toishi.ops.checksum import weights_checksum
from toishi.passes import renew_reference, with_reference, with_values
from toishi.policy.precision import choose_device
from toishi.record import Run
from toishi.record.checkpoint_files import checkpoint_fault, checkpoint_folders, checkpoint_step
from toishi.recorded import recorded_config
from toishi.replay.links import EXACT, Bounds, Difference, LinkCheck, bounds_elsewhere, check_step
from toishi.replay.plan import ReplayPlan
from toishi.replay.weights import check_checksum, check_weights, saved_weights
from toishi.session import Learner, restore_learner
from toishi.types import Group, Rollout, StepReport, Update
from toishi.update import update_policy

Updating = Callable[[Learner, tuple[Group, ...], int], tuple[Update, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What was done again and how it compares.

    elsewhere   why bits need not agree; empty where they must
    bounds      the bounds that were applied
    links       every link of every step that was done again, in order
    difference  the first link that differs; None when the replay agrees
    """

    folder: str
    step: int
    start: int
    steps: tuple[int, ...]
    elsewhere: tuple[str, ...]
    notes: tuple[str, ...]
    bounds: Bounds
    links: tuple[LinkCheck, ...]

    @property
    def difference(self) -> Difference | None:
        return next((link.difference for link in self.links if link.difference is not None), None)

    @property
    def ok(self) -> bool:
        return self.difference is None

    @property
    def bit_for_bit(self) -> bool:
        """Whether every compared number has the same bits, asked for or not."""
        return all(link.same_bits == link.compared for link in self.links)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {"ok": self.ok, "bit_for_bit": self.bit_for_bit, "difference": self._difference(), **asdict(self)}

    def _difference(self) -> dict[str, Any] | None:
        first = self.difference
        return None if first is None else {**asdict(first), "text": first.text}


def replay(
    run: Run,
    plan: ReplayPlan,
    *,
    on_step: Callable[[int], None] = lambda step: None,
    updating: Updating | None = None,
) -> ReplayReport:
    """Does the plan's steps again and compares.

    on_step   called before each step, for a progress display
    updating  what does the updates of the plan's last step in place of `update_policy` (a trace looks at it from inside)
    """
    learner, elsewhere = load_learner(run, plan)
    bounds = bounds_elsewhere(str(run.run["decisions"]["dtype"]), len(plan.steps)) if elsewhere else EXACT
    start = {name: master.detach().cpu().clone() for name, master in learner.policy.masters.items()}
    links: list[LinkCheck] = []
    done: list[int] = []
    for step in plan.steps:
        on_step(step)
        does = updating if updating is not None and step == plan.step else plain_updates
        links += _step_links(run, step, learner, start, bounds, does)
        done.append(step)
        if not all(link.ok for link in links):
            break
    return ReplayReport(
        folder=str(run.folder),
        step=plan.step,
        start=plan.start,
        steps=tuple(done),
        elsewhere=elsewhere,
        notes=plan.notes,
        bounds=bounds,
        links=tuple(links),
    )


def load_learner(run: Run, plan: ReplayPlan) -> tuple[Learner, tuple[str, ...]]:
    """The model as the checkpoint holds it, with the run's own machine decisions, and why bits need not agree."""
    decided, elsewhere = Machine(**run.run["decisions"]), plan.elsewhere
    try:
        choose_device(decided.device)
    except ConfigError:
        elsewhere = (*elsewhere, f"device was {decided.device}, which is not here; is cpu")
        decided = replace(decided, device="cpu")
    torch.set_num_threads(decided.threads)
    config = recorded_config(run)
    saved = load_checkpoint(plan.checkpoint, verify=False, map_location=decided.device)
    return restore_learner(config, decided, run.run, saved), elsewhere


def plain_updates(learner: Learner, groups: tuple[Group, ...], step: int) -> tuple[Update, ...]:
    """The step's updates, nothing else."""
    return update_policy(learner.policy, learner.optimizer, groups, learner.settings, step=step, critic=learner.critic)


def redo(learner: Learner, recorded: StepReport, updating: Updating = plain_updates) -> StepReport:
    """The step again, from its answers and scores; the learner's weights move on."""
    groups = tuple(as_scored(group) for group in recorded.groups)
    renew_reference(learner.policy, learner.settings, recorded.step)
    groups = with_reference(learner.policy, groups, learner.settings)
    groups = with_values(learner.critic, groups, learner.settings)
    groups = assign_advantages(groups, learner.settings.algorithm, max_new_tokens=learner.settings.max_new_tokens)
    updates = updating(learner, groups, recorded.step)
    metrics = {WEIGHTS_CHECKSUM: weights_checksum(learner.policy.masters)}
    if learner.critic is not None:
        metrics[CRITIC_CHECKSUM] = weights_checksum(learner.critic.masters)
    return StepReport(step=recorded.step, groups=groups, updates=updates, metrics=metrics, timings_s={})


def as_scored(group: Group) -> Group:
    """The group as it stood after scoring: rewards formed again from the scores, nothing later."""
    rollouts = tuple(_as_scored(rollout) for rollout in group.rollouts)
    return replace(group, rollouts=rollouts, baseline=None)


def _as_scored(rollout: Rollout) -> Rollout:
    return replace(
        rollout,
        reward=_reward(rollout),
        advantage=None,
        ref_logprobs=None,
        policy_logprobs=None,
        values=None,
        value_after=None,
        returns=None,
    )


def _reward(rollout: Rollout) -> float | None:
    """Sum of the contributions; None when the rollout failed or every reward abstained."""
    parts = [score.contribution for score in rollout.scores if score.contribution is not None]
    return math.fsum(parts) if parts and rollout.status != "failed" else None


def _step_links(
    run: Run, step: int, learner: Learner, start: dict[str, Tensor], bounds: Bounds, updating: Updating
) -> Iterator[LinkCheck]:
    recorded = run.step(step)
    found = redo(learner, recorded, updating)
    yield from check_step(recorded, found, bounds)
    checksum = recorded.metrics.get(WEIGHTS_CHECKSUM)
    yield check_checksum(step, None if checksum is None else str(checksum), str(found.metrics[WEIGHTS_CHECKSUM]), bounds)
    yield from _critic_links(recorded, found, bounds)
    for folder in checkpoint_folders(run.folder):
        if checkpoint_step(folder) == step and checkpoint_fault(folder) is None:
            saved = saved_weights(folder / "model", learner.policy.masters)
            yield check_weights(step, saved, learner.policy.masters, start, bounds)


def _critic_links(recorded: StepReport, found: StepReport, bounds: Bounds) -> Iterator[LinkCheck]:
    """The critic's own weights, by their checksum, where there is a critic."""
    if CRITIC_CHECKSUM in found.metrics:
        checksum = recorded.metrics.get(CRITIC_CHECKSUM)
        now = str(found.metrics[CRITIC_CHECKSUM])
        yield check_checksum(
            recorded.step, None if checksum is None else str(checksum), now, bounds, link="critic's weights checksum"
        )
