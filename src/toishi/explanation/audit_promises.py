"""Whether what one part of a run says about another is still there: checkpoints about lines, events about checkpoints.

Decision: a kill may leave the newest thing half done, never an older one missing; so what was promised and followed by more is
asked for.
"""

from __future__ import annotations

from toishi.explanation.ledger import Ledger
from toishi.record import Run
from toishi.record.chain import unkept
from toishi.record.checkpoint_files import checkpoint_fault, checkpoint_folders, checkpoint_step, read_state_file

_WHOLE = "every sha256 as written"


def check_promises(run: Run, ledger: Ledger) -> None:
    """Checkpoints whole and after a step on record, the lines that they saw, and the checkpoints that events tell of."""
    for folder in checkpoint_folders(run.folder):
        file, fault = f"checkpoints/{folder.name}", checkpoint_fault(folder)
        ledger.equal(file, "", "whole", fault or _WHOLE, _WHOLE)
        if fault is None:
            ledger.equal(file, "", "its step is in metrics.jsonl", checkpoint_step(folder) in (0, *run.steps), True)
            _check_lines_seen(run, file, read_state_file(folder).get("lines", {}), ledger)
    _check_saved(run, ledger)
    _check_order(run, ledger)


def _check_lines_seen(run: Run, file: str, promised: object, ledger: Ledger) -> None:
    try:
        for name, got, expected in unkept(promised, run.lines):  # type: ignore[arg-type]
            ledger.found(name, "", f"lines that {file} saw", got, expected)
    except (AttributeError, KeyError, TypeError) as error:
        ledger.found(f"{file}/state.json", "lines", "readable", repr(error), "number and last seal of every file of lines")


def _check_saved(run: Run, ledger: Ledger) -> None:
    """The first checkpoint is kept for ever, and the newest until a newer one stands."""
    told = [event["step"] for event in run.events if event["kind"] == "checkpoint" and event["step"] is not None]
    if not told:
        return
    here = [checkpoint_step(folder) for folder in checkpoint_folders(run.folder)]
    for step, there in ((min(told), min(told) in here), (max(told), max(here, default=-1) >= max(told))):
        what = f"checkpoint of step {step}, which events.jsonl tells of"
        ledger.equal("checkpoints", "", what, "there" if there else "missing", "there")


def _check_order(run: Run, ledger: Ledger) -> None:
    """An evaluation comes after its step, an event after the step before it."""
    last = max(run.steps, default=0)
    for name, lines, allowed in (("evaluations.jsonl", run.evaluations, last), ("events.jsonl", run.events, last + 1)):
        for number, line in enumerate(lines, start=1):
            if (line["step"] or 0) > allowed:
                ledger.found(
                    name, f"line {number}", "its step is in metrics.jsonl", f"step {line['step']}", f"at most {allowed}"
                )
