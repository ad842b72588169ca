"""Whether a run folder is whole: seals of lines and files, steps without gap or repetition, checkpoints intact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from toishi.explanation.audit_promises import check_promises
from toishi.explanation.ledger import Ledger
from toishi.record import Run
from toishi.record.chain import PREVIOUS, unlinked
from toishi.record.files import cut_bytes, seal_of, sha256_file
from toishi.record.lines import Line
from toishi.record.schema import shard_name
from toishi.record.undo import LINE_FILES, step_of


def check_files(run: Run, ledger: Ledger) -> None:
    """Everything that can be said without reading a shard's rows."""
    ledger.equal("run.json", "", "seal (sha256 of the rest)", run.run.get("seal"), seal_of(run.run))
    for name, lines in zip(LINE_FILES, (run.metrics, run.evaluations, run.events), strict=True):
        _check_lines(name, lines, ledger)
        cut = cut_bytes(run.folder / name)
        if cut:
            ledger.notes.append(
                f"{name}: the last line is cut ({cut} bytes); a kill leaves such a line and it counts for nothing"
            )
    _check_evaluations(run.evaluations, ledger)
    _check_steps(run.steps, ledger)
    _check_shards(run, ledger)
    check_promises(run, ledger)


def _check_lines(name: str, lines: Sequence[Line], ledger: Ledger) -> None:
    for number, line in enumerate(lines, start=1):
        ledger.equal(name, f"line {number}", "seal (sha256 of the rest)", line.get("seal"), seal_of(line))
    if lines and not any(PREVIOUS in line for line in lines):
        ledger.notes.append(f"{name}: its lines do not name the line before them, so a missing one would not be found")
        return
    for number in unlinked(lines):
        before = lines[number - 2].get("seal") if number > 1 else None
        ledger.found(name, f"line {number}", "previous (seal of the line before it)", lines[number - 1].get(PREVIOUS), before)
    ledger.compared += len(lines)


def _check_evaluations(evaluations: Iterable[Line], ledger: Ledger) -> None:
    """An evaluation's value is the mean over its prompts."""
    for number, line in enumerate(evaluations, start=1):
        by_prompt = line.get("by_prompt")
        if by_prompt:
            mean = math.fsum(by_prompt.values()) / len(by_prompt)
            ledger.close("evaluations.jsonl", f"line {number}", "value (mean over prompts)", line.get("value"), mean)


def _check_steps(steps: Iterable[object], ledger: Ledger) -> None:
    """The n-th line is step n."""
    for number, step in enumerate(steps, start=1):
        ledger.equal("metrics.jsonl", f"line {number}", "step", step, number)


def _check_shards(run: Run, ledger: Ledger) -> None:
    for name in ("rollouts", "tokens"):
        for line in run.metrics:
            path = run.folder / name / shard_name(line["step"])
            got = sha256_file(path) if path.is_file() else "no such file"
            ledger.equal(f"{name}/{path.name}", "", "sha256", got, line.get(f"{name}_sha256"))
        _note_strays(run, run.folder / name, ledger)


def _note_strays(run: Run, folder: Path, ledger: Ledger) -> None:
    """A kill leaves shards of the next step at most; those of later steps had a line."""
    known, following = {shard_name(step) for step in run.steps}, max(run.steps, default=0) + 1
    strays = sorted(path.name for path in folder.glob("*") if path.name not in known)
    lost = [name for name in strays if (step_of(Path(name)) or 0) > following]
    for name in lost:
        ledger.found(f"{folder.name}/{name}", "", "its step is in metrics.jsonl", "no line of that step", "a line")
    strays = [name for name in strays if name not in lost]
    if strays:
        ledger.notes.append(
            f"{folder.name}/: {', '.join(strays)} without a line in metrics.jsonl (left by a kill); a resume writes over it"
        )
