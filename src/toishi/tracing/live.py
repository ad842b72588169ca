"""Which steps of a run are traced, and the tracing of them while the run goes on.

Decisions:
1. What is known before the update (every K steps, the first step, a jump of the reward) is traced directly.
2. A jump of the KL shows only afterwards. With `kl_spike` in record.trace_when, weights and optimizer are copied before every
   step; a step that turns out to be one is put back and done again, traced. It ends in the same bits.
3. A NaN stops the run; its trace says where the numbers were not finite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from toishi.metrics import update_metrics
from toishi.ops.norms import norm
from toishi.record.influence_files import write_influence
from toishi.record.reader import read_run_file
from toishi.record.trace import MatrixChange, Trace
from toishi.record.trace_files import write_trace
from toishi.session import Learner, Session
from toishi.tracing.probing import probe
from toishi.tracing.snapshot import Snapshot
from toishi.tracing.trace import Clock, TraceRequest, traced_updates
from toishi.tracing.watched import other_prompt, sampled
from toishi.types import Group, Update
from toishi.update import update_policy

LOOK_BACK = 10
ENOUGH = 5
REWARD_JUMP_STDS = 4.0
KL_SPIKE_TIMES = 5.0
KL_SPIKE_NATS = 0.01
_KL = ("update/kl_old_policy_k3", "update/kl_policy_ref")


def live_updates(session: Session, groups: Sequence[Group], step: int, clock: Clock) -> tuple[Update, ...]:
    """The step's updates; when it is one to be traced, its trace is written into the run folder."""
    when, learner = session.config.record.trace_when, session.learner
    why = why_before(session, groups, step)
    if why is None:
        with clock("trace"):
            kept = Snapshot.take(learner.policy, learner.optimizer, learner.critic) if "kl_spike" in when else None
        with clock("update"):
            updates = update_policy(
                learner.policy, learner.optimizer, groups, learner.settings, step=step, critic=learner.critic
            )
        why = None if kept is None else kl_spike(update_metrics(groups, updates), session.metrics)
        if kept is None or why is None:
            return updates
        kept.put_back(learner.policy, learner.optimizer, learner.critic)
    folder = session.writer.folder
    hand_over = partial(write_influence, folder) if session.config.record.trace_influence else None
    request = TraceRequest(
        why=why, sampling=session.sampling, other=other_prompt(read_run_file(folder), groups), influence=hand_over
    )
    updates, trace = traced_updates(learner, groups, step, request, clock)
    with clock("trace"):
        keep_trace(session, trace)
    return updates


def keep_trace(session: Session, trace: Trace) -> None:
    """Writes a trace and says so in an event."""
    folder = write_trace(session.writer.folder, trace)
    where = folder.relative_to(session.writer.folder).as_posix()
    session.writer.write_event({"step": trace.step, "kind": "trace", "message": trace.why, "folder": where})


def why_before(session: Session, groups: Sequence[Group], step: int) -> str | None:
    """Why the step is to be traced, as far as its rewards and its number say; None when they do not."""
    record = session.config.record
    if record.trace_every and step % record.trace_every == 0:
        return f"every {record.trace_every} steps (record.trace_every)"
    if step == 1 and "first_step" in record.trace_when:
        return "the first step"
    return reward_jump(groups, session.metrics) if "reward_jump" in record.trace_when else None


def reward_jump(groups: Sequence[Group], metrics: Sequence[Mapping[str, Any]]) -> str | None:
    """The mean reward lies more than four standard deviations from that of the last ten steps."""
    rewards = [reward for group in groups for reward in group.rewards if reward is not None]
    earlier = _numbers(metrics, "reward/mean")
    if not rewards or len(earlier) < ENOUGH:
        return None
    now, usual, spread = statistics.fmean(rewards), statistics.fmean(earlier), statistics.pstdev(earlier)
    if abs(now - usual) <= max(REWARD_JUMP_STDS * spread, 1e-9):
        return None
    return f"reward jump: mean {now:.3g}, {usual:.3g} ± {spread:.2g} in the {len(earlier)} steps before"


def kl_spike(now: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> str | None:
    """One of the step's KL estimates is above 0.01 nats and above five times the median of the last ten steps."""
    for name in _KL:
        value, earlier = now[name], _numbers(metrics, name)
        if value is None or len(earlier) < ENOUGH:
            continue
        usual = statistics.median(earlier)
        if value > max(KL_SPIKE_NATS, KL_SPIKE_TIMES * usual):
            return f"KL spike: {name} is {value:.3g}, median {usual:.3g} in the {len(earlier)} steps before"
    return None


def _numbers(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    values = [line.get(name) for line in metrics[-LOOK_BACK:]]
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def refused_trace(learner: Learner, groups: Sequence[Group], step: int, message: str) -> Trace:
    """What can be said of a step that was refused: log-probs as sampled and as the refused weights give them, and the size of
    every weight and gradient, NaN where they are not finite."""
    watched = sampled(groups)
    found = probe(learner.policy, [item.rollout for item in watched], learner.settings).logprobs
    return Trace(
        step=step,
        why="the step was refused (nan)",
        dtype=str(learner.policy.compute_dtype).removeprefix("torch."),
        temperature=learner.settings.temperature,
        failure=message,
        notes=("no weight was changed by the refused update, so there is no before and after",),
        updates=(),
        positions=(),
        check=None,
        contrast=None,
        texts=tuple(item.traced(learner, item.rollout.completion.sampled_logprobs, found[item.rollout.id]) for item in watched),
        matrices=tuple(_refused_matrices(learner)),
    )


def _refused_matrices(learner: Learner) -> list[MatrixChange]:
    rows = []
    for name, master in learner.policy.masters.items():
        gradient = 0.0 if master.grad is None else norm(master.grad)
        rows.append(
            MatrixChange(
                update=0, name=name, shape=tuple(master.shape), weight_norm=norm(master), gradient_norm=gradient,
                clipped_norm=gradient, step_norm=0.0, step_cosine=None, decay_norm=0.0, change_norm=0.0, relative_change=0.0,
                changed_share=0.0, changed_share_compute=0.0, lost_share=0.0,
            )
        )  # fmt: skip
    return rows
