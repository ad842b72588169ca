"""Reads a run folder back into the nouns it was written from.

Decisions:
1. `Run.open` is a snapshot of the small files; a step's shards are read when asked for. Open again to see more.
2. Readers tolerate what a kill leaves (a cut last line, shards without a line) and nothing else: a damaged file is an
   error with its name and a remedy, never a shorter result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toishi.errors import RecordError
from toishi.record.checks import check_evaluation_line, check_event_line, check_run, check_step_line, is_whole
from toishi.record.files import read_lines
from toishi.record.lines import Line, step_metrics, timings_s, update_scalars
from toishi.record.nouns import groups_of, streams_of, updates_of
from toishi.record.schema import ROLLOUT_SCHEMA, SCHEMA_VERSION, TOKEN_SCHEMA, shard_name
from toishi.record.tables import Row, read_table
from toishi.record.undo import LINE_FILES
from toishi.types import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recorded run.

    run          run.json
    metrics      one object a step, in order
    evaluations  every evaluation, in order
    events       warnings, resumes, checkpoints, refusals, in order
    """

    folder: Path
    run: Line
    metrics: tuple[Line, ...]
    evaluations: tuple[Line, ...]
    events: tuple[Line, ...]

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in `folder`.

        Raises RecordError when there is no such folder, it is no run, it is damaged, or a newer toishi wrote it: what every
        reader relies on is checked here.
        """
        folder = Path(folder)
        return cls(
            folder=folder,
            run=read_run_file(folder),
            metrics=_checked(folder / "metrics.jsonl", check_step_line),
            evaluations=_checked(folder / "evaluations.jsonl", check_evaluation_line),
            events=_checked(folder / "events.jsonl", check_event_line),
        )

    @property
    def lines(self) -> dict[str, tuple[Line, ...]]:
        """The lines of every file, by its name."""
        return dict(zip(LINE_FILES, (self.metrics, self.evaluations, self.events), strict=True))

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps on record, in the order of their lines."""
        return tuple(line["step"] for line in self.metrics)

    def line(self, step: int) -> Line:
        """The step's line of metrics.jsonl.

        Raises RecordError when the step is not on record.
        """
        for line in self.metrics:
            if line.get("step") == step:
                return line
        have = f"steps {self.steps[0]} to {self.steps[-1]} are" if self.metrics else "no step is"
        raise RecordError(f"{self.folder}: step {step} is not on record; {have}")

    def rollout_rows(self, step: int) -> list[Row]:
        """The step's rows of `rollouts/`."""
        return read_table(self.folder / "rollouts" / shard_name(step), ROLLOUT_SCHEMA)

    def token_rows(self, step: int) -> list[Row]:
        """The step's rows of `tokens/`."""
        return read_table(self.folder / "tokens" / shard_name(step), TOKEN_SCHEMA)

    def step(self, step: int) -> StepReport:
        """The report that the step was recorded from.

        Raises RecordError when the step is not on record or a shard of it is missing or damaged.
        """
        line, tokens = self.line(step), self.token_rows(step)
        return StepReport(
            step=step,
            groups=groups_of(self.rollout_rows(step), tokens),
            updates=updates_of(step, update_scalars(line), streams_of(tokens)),
            metrics=step_metrics(line),
            timings_s=timings_s(line),
        )


def _checked(path: Path, check: Callable[[Path, int, Line], None]) -> tuple[Line, ...]:
    """The lines of a file, each with what every reader relies on."""
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        check(path, number, line)
    return tuple(lines)


def read_run_file(folder: Path) -> dict[str, Any]:
    """run.json, of a version that this toishi reads, with the fields that readers rely on."""
    if not folder.is_dir():
        raise RecordError(f"{folder}: there is no such run folder")
    path = folder / "run.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{folder} is no run folder: it has no run.json. A run's folder is printed when it starts") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}. Restore it from a copy") from None
    version = info.get("schema_version") if isinstance(info, dict) else None
    if not is_whole(version):
        raise RecordError(
            f"{path} is damaged: expected a whole number as schema_version, got {version!r}. Restore it from a copy"
        )
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"{folder} was written with schema version {version}; this toishi reads versions up to {SCHEMA_VERSION}. "
            "Upgrade it: pip install -U toishi"
        )
    check_run(path, info)
    return dict(info)
