"""Whether a run folder is whole: seals of lines and files, steps without gap or repetition, checkpoints intact."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from toishi.explanation.ledger import Ledger
from toishi.record import Run
from toishi.record.checkpoint_files import checkpoint_fault, checkpoint_folders
from toishi.record.files import cut_bytes, seal_of, sha256_file
from toishi.record.lines import Line
from toishi.record.schema import shard_name
from toishi.record.undo import LINE_FILES


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
    for folder in checkpoint_folders(run.folder):
        fault = checkpoint_fault(folder)
        ledger.equal(f"checkpoints/{folder.name}", "", "whole", fault or "every sha256 as written", "every sha256 as written")


def _check_lines(name: str, lines: Iterable[Line], ledger: Ledger) -> None:
    for number, line in enumerate(lines, start=1):
        ledger.equal(name, f"line {number}", "seal (sha256 of the rest)", line.get("seal"), seal_of(line))


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
            got = sha256_file(path) if path.exists() else "no such file"
            ledger.equal(f"{name}/{path.name}", "", "sha256", got, line.get(f"{name}_sha256"))
        known = {shard_name(step) for step in run.steps}
        _note_strays(run.folder / name, known, ledger)


def _note_strays(folder: Path, known: set[str], ledger: Ledger) -> None:
    strays = sorted(path.name for path in folder.glob("*") if path.name not in known)
    if strays:
        ledger.notes.append(
            f"{folder.name}/: {', '.join(strays)} without a line in metrics.jsonl (left by a kill); a resume writes over it"
        )
