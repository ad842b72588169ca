"""What a replay has to do and what it will cost, said before anything heavy is loaded; a damaged record is refused here.

Decisions:
1. Every file that the replay reads is checked against its seal first: from altered answers a step would prove nothing.
2. Bits must agree when versions and machine are those of run.json. Otherwise the differing facts are named, and bounds apply.
3. The recorded precision and number of threads are used again, whatever this machine would choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from toishi.errors import RecordError
from toishi.record import Run
from toishi.record.chain import PREVIOUS, unlinked
from toishi.record.checkpoint_files import checkpoint_fault, checkpoint_folders, checkpoint_step
from toishi.record.environment import environment
from toishi.record.files import seal_of, sha256_file
from toishi.record.schema import shard_name
from toishi.record.source import require_own
from toishi.record.undo import LINE_FILES

NUMERIC_PACKAGES = ("torch", "transformers", "peft", "numpy")
"""Packages whose version may change the bits of a result."""
SHARDS = {"rollouts": "answers, scores, rewards, advantages", "tokens": "token ids, log-probs, token weights"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Which steps are done again, from which checkpoint.

    start      the step of the checkpoint; steps start + 1 to `step` are done again
    seconds    what these steps' updates took in the run (loading the model comes on top); None when it is not on record
    elsewhere  facts in which this machine differs from that of the run; empty: bits must agree
    notes      what else is worth knowing
    """

    step: int
    start: int
    checkpoint: Path
    seconds: float | None
    elsewhere: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def steps(self) -> range:
        return range(self.start + 1, self.step + 1)

    @property
    def text(self) -> str:
        """The cost in a sentence."""
        time = "unknown time" if self.seconds is None else f"about {self.seconds:.0f} s of updates by the run's own clock"
        steps = (
            f"1 step ({self.step})" if len(self.steps) == 1 else f"{len(self.steps)} steps ({self.start + 1} to {self.step})"
        )
        return f"doing {steps} again from checkpoint {self.checkpoint.name}, without sampling or scoring: {time}"


def plan_replay(run: Run, step: int) -> ReplayPlan:
    """The shortest way to `step`.

    Raises RecordError when the step is not on record, no earlier checkpoint is there, or a file on the way is damaged.
    """
    require_own(run.run, run.folder)
    run.line(step)
    kept = [folder for folder in checkpoint_folders(run.folder) if checkpoint_step(folder) < step]
    if not kept:
        raise RecordError(
            f"{run.folder} has no checkpoint before step {step}, so there are no weights to start from; expected at least "
            "checkpoints/step_000000, which every run writes. Restore it from a copy"
        )
    checkpoint = kept[-1]
    start = checkpoint_step(checkpoint)
    fault = next(damage(run, range(start + 1, step + 1), checkpoint), None)
    if fault is not None:
        raise RecordError(f"the record is damaged, so nothing was done again: {fault}. Restore it from a copy")
    seconds: list[float | None] = [run.line(number).get("time/update_s") for number in range(start + 1, step + 1)]
    known = [value for value in seconds if value is not None]
    import_module("torch")  # what torch knows of the machine is part of the comparison, and is only told once it is loaded
    here = environment()
    return ReplayPlan(
        step=step,
        start=start,
        checkpoint=checkpoint,
        seconds=sum(known) if len(known) == len(seconds) else None,
        elsewhere=tuple(differences(run.run["environment"], here)),
        notes=tuple(_code_notes(run.run["environment"].get("code"), here["code"])),
    )


def damage(run: Run, steps: range, checkpoint: Path) -> Iterator[str]:
    """Each file of the replay that is not what the run wrote, with the links that it holds."""
    if run.run.get("seal") != seal_of(run.run):
        yield "run.json (configuration, decisions, versions) was changed after it was written"
    for name, lines in zip(LINE_FILES, (run.metrics, run.evaluations, run.events), strict=True):
        for number, line in enumerate(lines, start=1):
            if line.get("seal") != seal_of(line):
                yield f"{name}, line {number} was changed after it was written"
        if any(PREVIOUS in line for line in lines):
            yield from (f"{name}: the line before line {number} is not the one that was there" for number in unlinked(lines))
    for step in steps:
        line = run.line(step)
        for folder, links in SHARDS.items():
            path = run.folder / folder / shard_name(step)
            if not path.is_file():
                yield f"{folder}/{path.name} ({links}) is missing"
            elif sha256_file(path) != line.get(f"{folder}_sha256"):
                yield f"{folder}/{path.name} ({links}) was changed after it was written"
    fault = checkpoint_fault(checkpoint)
    if fault is not None:
        yield f"weights to start from: {fault}"


def differences(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Facts that may change the bits of a result and are not the same.

    >>> list(differences({"toishi": "1", "versions": {"torch": "2.0"}}, {"toishi": "1", "versions": {"torch": "2.1"}}))
    ['torch was 2.0, is 2.1']
    """
    for label, old, new in _facts(recorded, here):
        if old is not None and old != new:
            yield f"{label} was {old}, is {new}"


def _facts(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield "toishi", recorded.get("toishi"), here.get("toishi")
    for name in NUMERIC_PACKAGES:
        yield name, recorded.get("versions", {}).get(name), here.get("versions", {}).get(name)
    for name in ("platform", "cpu", "cpu_model", "cpu_count", "cpu_instructions", "gpus"):
        yield name, recorded.get("machine", {}).get(name), here.get("machine", {}).get(name)


def _code_notes(recorded: Mapping[str, Any] | None, here: Mapping[str, Any] | None) -> Iterator[str]:
    if recorded and here and recorded.get("commit") != here.get("commit"):
        yield f"the run was made by commit {recorded['commit'][:12]} of toishi, this is {here['commit'][:12]}"
    if (recorded and recorded.get("dirty")) or (here and here.get("dirty")):
        yield "toishi's checkout has (or had) changes that are not committed"
