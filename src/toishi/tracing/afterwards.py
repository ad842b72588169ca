"""A trace of any recorded step, made afterwards: the step is replayed, and its updates are looked at from inside."""

from __future__ import annotations

from collections.abc import Callable

from toishi.errors import ConfigError
from toishi.record import Run
from toishi.record.influence import Arrays, Influence
from toishi.record.influence_files import write_influence
from toishi.record.trace import Trace
from toishi.record.trace_files import write_trace
from toishi.recorded import recorded_config
from toishi.replay.plan import ReplayPlan
from toishi.replay.redo import ReplayReport, replay
from toishi.session import Learner, sampling_of
from toishi.tracing.trace import TraceRequest, traced_updates
from toishi.tracing.watched import other_prompt
from toishi.types import Group, Update


def replay_traced(
    run: Run,
    plan: ReplayPlan,
    *,
    group: int | None = None,
    influence: bool = False,
    tokens: bool = False,
    why: str = "asked for (toishi replay --trace)",
    on_step: Callable[[int], None] = lambda step: None,
) -> tuple[ReplayReport, Trace | None]:
    """Replays the plan's step and traces it, with SFT beside GRPO on `group` (None: the one whose rewards differ most).

    influence  also measures who moved what; with `tokens`, each answer's share token by token
    The trace is written into the run folder. It is None, and nothing is written, when the replay does not agree with the
    record: then it would be the trace of another step.
    Raises ConfigError when `group` taught nothing in the step's first update, and for a run that trains a score.
    """
    row = recorded_config(run).algorithm
    if row.predicts == "score":
        raise ConfigError(
            f"a trace follows the probability of tokens, and algorithm '{row.name}' trains a score, which has none; "
            "`toishi replay` without --trace does the step again and compares it"
        )
    traces: list[Trace] = []
    measured: list[tuple[Influence, Arrays]] = []

    def updating(learner: Learner, groups: tuple[Group, ...], step: int) -> tuple[Update, ...]:
        request = TraceRequest(
            why=why,
            sampling=sampling_of(recorded_config(run)),
            other=other_prompt(run.run, groups),
            contrast=True,
            group=group,
            influence=(lambda *found: measured.append(found)) if influence else None,
            tokens=tokens,
        )
        updates, trace = traced_updates(learner, groups, step, request)
        traces.append(trace)
        return updates

    report = replay(run, plan, on_step=on_step, updating=updating)
    if not report.ok or not traces:
        return report, None
    for found in measured:
        write_influence(run.folder, *found)
    write_trace(run.folder, traces[0])
    return report, traces[0]
