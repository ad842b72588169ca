"""Going on with a recorded run: what must still be as it was, from where it goes on, and what is taken back.

Decisions:
1. Everything is checked before anything is moved or written: run.json, device, data, base model, checkpoints.
2. A run goes on from the newest whole checkpoint whose steps are all on record; why newer ones were passed over is said.
3. A run that was stopped before its first checkpoint, without a step, begins again in its folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from toishi.checkpoints import Latest, latest_checkpoint
from toishi.display import Display
from toishi.errors import RecordError
from toishi.evaluate import Evaluation
from toishi.given import Given
from toishi.health import already_said
from toishi.provenance import changed_rewards, require_same_data
from toishi.record.chain import unkept
from toishi.record.checkpoint_files import checkpoint_step, read_state_file
from toishi.record.reader import Run
from toishi.record.writer import RunWriter
from toishi.recorded import recorded_config, require_device, require_unchanged, step_fault
from toishi.session import Session, gather, restore, start_again


def reopen(writer: RunWriter, display: Display, given: Given) -> Session:
    """The run in the writer's folder as it stood after its last good checkpoint; later steps are moved to `undone/`.

    Raises RecordError, DataError, ConfigError or ModelError when it cannot go on as the same run; the folder is then as it was.
    """
    run = Run.open(writer.folder)
    require_unchanged(run)
    config = recorded_config(run)
    require_device(run)
    checkpoint, reasons = where_to_go_on(run)
    _evaluations(run)
    materials = gather(config, given)
    require_same_data(run.run, materials.task)
    if checkpoint is None:
        session = start_again(config, materials, writer, run.run)
    else:
        session = restore(config, materials, writer, run.run, checkpoint)
    writer.undo_after(session.step)
    came_from = "the start" if checkpoint is None else checkpoint.name
    event = {"step": session.step, "kind": "resumed", "message": f"from {came_from}", "skipped": list(reasons)}
    writer.write_event(event)
    for text in (*lost_lines(run, checkpoint), *_exchanged(changed_rewards(run.run, materials.rewards))):
        writer.write_event({"step": session.step, "kind": "changed", "message": text})
        display.notice(text)
    _take_up(session, Run.open(writer.folder))
    display.resumed(session, reasons)
    return session


def where_to_go_on(run: Run) -> Latest:
    """The checkpoint to go on from, None for the very beginning, and why newer ones are passed over.

    Raises RecordError when steps were done but no checkpoint is left to go on from.
    """
    found = latest_checkpoint(run.folder, lambda folder: step_fault(run, folder, checkpoint_step(folder)))
    if found.folder is None and _has_begun(run):
        raise RecordError(
            f"{run.folder} has steps on record but no intact checkpoint to go on from "
            f"({'; '.join(found.skipped) or 'checkpoints/ is empty'}). Restore one from a copy, or start a new run in another "
            "folder: toishi train"
        )
    return found


def lost_lines(run: Run, checkpoint: Path | None) -> Iterator[str]:
    """Lines that the checkpoint saw and that are no longer there."""
    promised = {} if checkpoint is None else read_state_file(checkpoint).get("lines", {})
    for name, got, expected in unkept(promised, run.lines):
        yield f"{name} is not as it was when the checkpoint was written: {got}, expected {expected}. The run goes on with it"


def _exchanged(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield (
            f"reward '{name}' has another source than when the run was started: from here on its scores may "
            "mean something else, and steps before and after are not comparable. If that is not meant, put the old source back"
        )


def _has_begun(run: Run) -> bool:
    """Whether anything says that a step was done."""
    saved = [event for event in run.events if event["kind"] == "checkpoint"]
    return bool(run.steps) or any((line["step"] or 0) > 0 for line in (*run.evaluations, *saved))


def _take_up(session: Session, run: Run) -> None:
    session.metrics = list(run.metrics)
    session.evaluations = _evaluations(run)
    session.said = already_said(run.events)


def _evaluations(run: Run) -> list[Evaluation]:
    return [Evaluation.from_record(line) for line in run.evaluations]
