"""Writes a run folder while the run goes on.

Decisions:
1. A step exists if and only if its line stands in metrics.jsonl. Its shards are written before that line, each whole at
   once; a kill in between leaves shards without a line, which readers ignore and the next attempt overwrites.
2. Nothing is deleted: what a resume undoes moves to `undone/001/`, `undone/002/`, ...
3. One process writes at a time, from `create` or `open` to `close`; a second one is refused.
4. Numbers that JSON cannot hold become null and are named in the line's `non_finite`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toishi.errors import RecordError
from toishi.record.chain import PREVIOUS, Head
from toishi.record.checkpoint_files import TEMPORARY, sweep_checkpoints
from toishi.record.checks import REQUIRED
from toishi.record.files import append_line, read_lines, remove, sha256_file, trim_cut_line, write_failed, write_json
from toishi.record.lines import check_report, finite, metrics_line, now
from toishi.record.lock import LOCK_FILE, hold
from toishi.record.reader import Run, read_run_file
from toishi.record.rows import TokenTexts, rollout_rows, token_rows
from toishi.record.schema import ROLLOUT_SCHEMA, SCHEMA_VERSION, TOKEN_SCHEMA, shard_name, step_name
from toishi.record.tables import write_table
from toishi.record.undo import LINE_FILES, undo_after
from toishi.types import Group, StepReport


class RunWriter:
    """The only writer of a run folder; make one with `create` or `open`, and close it at the end (or use it in a `with`)."""

    def __init__(self, folder: Path, release: Callable[[], None], *, last_step: int = 0) -> None:
        self.folder = folder
        self.close = weakref.finalize(self, release)
        self._last_step = last_step
        self._heads = {name: Head() for name in LINE_FILES}

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def create(cls, folder: Path, run: Mapping[str, Any]) -> RunWriter:
        """Starts a run folder. `run` becomes run.json and must hold the fields `REQUIRED`.

        Raises RecordError when the folder holds something already, another process writes it, or a field is missing.
        """
        missing = [name for name in REQUIRED if name not in run]
        if missing:
            raise RecordError(f"run.json needs {', '.join(REQUIRED)}; missing: {', '.join(missing)}")
        _require_empty(folder)
        with _taken_back_if_refused(folder):
            writer = cls(folder, hold(folder))
            _require_empty(folder)
            try:
                write_json(folder / "run.json", {"schema_version": SCHEMA_VERSION, "created": now()} | dict(run))
            except RecordError:
                writer.close()
                raise
        return writer

    @classmethod
    def open(cls, folder: Path) -> RunWriter:
        """Continues a run folder: takes off lines and temporary files that a kill left half done.

        Raises RecordError when the folder is no readable run, or another process writes it.
        """
        read_run_file(folder)
        writer = cls(folder, hold(folder))
        run = Run.open(folder)
        try:
            for name in LINE_FILES:
                trim_cut_line(folder / name)
            sweep_checkpoints(folder)
            for temporary in list(folder.rglob(f"{TEMPORARY}*")):
                remove(temporary)
        except OSError as error:
            raise write_failed(folder, error) from error
        writer._last_step = max(run.steps, default=0)
        writer._heads = {name: Head.of(lines) for name, lines in run.lines.items()}
        return writer

    def write_step(self, report: StepReport, token_texts: TokenTexts | None = None, *, streams: bool = True) -> None:
        """Records a step: shards first, its line in metrics.jsonl last.

        `token_texts` turns token ids into one readable text each, so that a person reads `tokens/` without a tokenizer.
        With `streams=False` the updates' per-token numbers are left out; what was sampled is always kept.
        Raises RecordError when the report contradicts itself or the disk refuses; the step is then not on record.
        """
        check_report(report, after=self._last_step)
        name = shard_name(report.step)
        rollouts, tokens = self.folder / "rollouts" / name, self.folder / "tokens" / name
        write_table(rollouts, rollout_rows(report), ROLLOUT_SCHEMA)
        write_table(tokens, token_rows(report, token_texts, streams=streams), TOKEN_SCHEMA)
        sums = {"rollouts_sha256": sha256_file(rollouts), "tokens_sha256": sha256_file(tokens)}
        self._append("metrics.jsonl", metrics_line(report) | sums)
        self._last_step = report.step

    def write_failure(self, step: int, groups: Sequence[Group], message: str) -> Path:
        """Writes out the answers of a step that was refused (NaN, infinity) to `failures/step_.../` and says so in an event."""
        report = StepReport(step=step, groups=tuple(groups), updates=(), metrics={}, timings_s={})
        folder = self.folder / "failures" / step_name(step)
        write_table(folder / "rollouts.parquet", rollout_rows(report), ROLLOUT_SCHEMA)
        write_table(folder / "tokens.parquet", token_rows(report, None, streams=False), TOKEN_SCHEMA)
        where = folder.relative_to(self.folder).as_posix()
        self.write_event({"step": step, "kind": "failure", "message": message, "folder": where})
        return folder

    def write_evaluation(self, evaluation: Mapping[str, Any]) -> None:
        """Appends an evaluation; it must say after which `step` it was made."""
        self._write_line("evaluations.jsonl", evaluation, ("step",))

    def write_event(self, event: Mapping[str, Any]) -> None:
        """Appends an event: `step` (or None), `kind`, `message` and whatever evidence belongs to it."""
        self._write_line("events.jsonl", event, ("step", "kind", "message"))

    def heads(self) -> dict[str, dict[str, Any]]:
        """Where each file of lines ends by now, for a checkpoint to remember."""
        return {name: head.as_record() for name, head in self._heads.items()}

    def update_run(self, fields: Mapping[str, Any]) -> None:
        """Adds or replaces fields of run.json, for what is decided after the start."""
        write_json(self.folder / "run.json", read_run_file(self.folder) | dict(fields))

    def undo_after(self, step: int) -> Path | None:
        """Moves everything after `step` into a new folder of `undone/` and returns it, or None when there is nothing.

        Raises RecordError when the disk refuses; calling it again completes the move.
        """
        moved_to = undo_after(self.folder, step)
        self._last_step = min(self._last_step, step)
        self._heads = {name: Head.of(read_lines(self.folder / name)) for name in LINE_FILES}
        return moved_to

    def _write_line(self, name: str, values: Mapping[str, Any], required: Sequence[str]) -> None:
        missing = [key for key in required if key not in values]
        if missing:
            raise RecordError(f"a line of {name} needs {', '.join(required)}; missing: {', '.join(missing)}")
        numbers, non_finite = finite(values)
        self._append(name, {"step": values["step"], "time": now()} | numbers | non_finite)

    def _append(self, name: str, values: Mapping[str, Any]) -> None:
        head = self._heads[name]
        seal = append_line(self.folder / name, {**values, PREVIOUS: head.seal})
        self._heads[name] = Head(head.lines + 1, seal)


@contextmanager
def _taken_back_if_refused(folder: Path) -> Iterator[None]:
    """When the disk refuses inside, the folders that were made for the run go again, and the error says that nothing began."""
    made = [one for one in (folder, *folder.absolute().parents) if not one.exists()]
    try:
        yield
    except RecordError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError):
            raise
        with suppress(OSError):
            if folder in made:
                (folder / LOCK_FILE).unlink(missing_ok=True)
            for one in made:
                one.rmdir()
        raise RecordError(
            f"{folder}: no run could be begun there: {cause.strerror or cause}. Nothing was recorded. Free disk space (or "
            "check permissions), or choose another place, and start again"
        ) from cause


def _require_empty(folder: Path) -> None:
    """Nothing but a lock and what a kill before the first file may have left."""
    if not folder.exists():
        return
    held = [path.name for path in folder.iterdir()] if folder.is_dir() else [folder.name]
    if "run.json" in held:
        raise RecordError(
            f"{folder} already holds a run. Continue it with `toishi resume {folder}`, or give this one another name: "
            "--set name=other, or --out FOLDER"
        )
    others = [name for name in held if name not in (LOCK_FILE, f"{TEMPORARY}run.json")]
    if others:
        raise RecordError(
            f"{folder} already holds something that is no run ({', '.join(sorted(others)[:3])}). Give this run another folder: "
            "--set name=other, or --out FOLDER"
        )
