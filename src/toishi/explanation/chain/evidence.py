"""What is on record about one group of one step, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.terms import Term
from toishi.errors import RecordError
from toishi.explanation.step import algorithm_of, critic_warmup_of, terms_of
from toishi.record import Run
from toishi.record.source import Source, source_of
from toishi.record.tables import Row
from toishi.record.trace import Trace
from toishi.record.trace_files import has_trace, read_trace
from toishi.types import Group, Rollout, RolloutId, StepReport, TokenStreams, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The record of a step, with the group that is looked at.

    rows         the step's rows of rollouts/ by (group, member): they also hold each score's contribution
    tokens       token texts by (group, member)
    terms        how each reward enters the sum
    max_new_tokens, max_grad_norm, weight_decay  the run's limits
    critic_warmup  so many first steps only the critic learned
    source       who trained, when it was another program
    """

    folder: str
    report: StepReport
    rows: Mapping[tuple[int, int], Row]
    tokens: Mapping[tuple[int, int], Sequence[str]]
    algorithm: Algorithm
    terms: tuple[Term, ...]
    max_new_tokens: int
    max_grad_norm: float | None
    trace: Trace | None
    number: int
    source: Source | None = field(default=None)
    critic_warmup: int = 0

    @property
    def loss_row(self) -> Algorithm:
        """The row that the step's loss was made by."""
        return self.algorithm.at(self.report.step, self.critic_warmup)

    @property
    def group(self) -> Group:
        return next(group for group in self.report.groups if group.rollouts[0].id.group == self.number)

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        return self.group.rollouts

    @property
    def absent(self) -> Mapping[str, str]:
        """Link -> why the program that trained did not write it down; empty for toishi's own runs."""
        return {} if self.source is None else self.source.missing

    def streams(self, update: Update) -> dict[RolloutId, TokenStreams]:
        """The group's token streams in an update."""
        return {stream.rollout: stream for stream in update.streams if stream.rollout.group == self.number}


def read_step(run: Run, step: int) -> Evidence:
    """Everything about the step; `number` is that of its first group.

    Raises RecordError when the step is not on record, or a file of it is damaged.
    """
    report = run.step(step)
    row, max_new_tokens = algorithm_of(run)
    tokens: dict[tuple[int, int], Sequence[str]] = {}
    for line in run.token_rows(step):
        tokens.setdefault((line["group"], line["member"]), tuple(line["token_texts"] or ()))
    return Evidence(
        folder=str(run.folder),
        report=report,
        rows={(line["group"], line["member"]): line for line in run.rollout_rows(step)},
        tokens=tokens,
        algorithm=row,
        terms=terms_of(run, report.groups),
        max_new_tokens=max_new_tokens,
        max_grad_norm=_optimizer(run).get("max_grad_norm"),
        trace=read_trace(run.folder, step) if has_trace(run.folder, step) else None,
        number=report.groups[0].rollouts[0].id.group,
        source=source_of(run.run),
        critic_warmup=critic_warmup_of(run.run["config"]),
    )


def _optimizer(run: Run) -> Mapping[str, Any]:
    found = run.run["config"].get("optimizer")
    if not isinstance(found, Mapping):
        raise RecordError(f"{run.folder / 'run.json'}: config.optimizer is missing. Restore the file from a copy")
    return found
