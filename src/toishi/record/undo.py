"""Taking later steps back, so that a resumed run records no step twice.

Decision: the lines are copied to `undone/` before the file without them replaces the old one, so a kill in between loses
nothing and the next resume completes the move.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from toishi.record.chain import relinked
from toishi.record.files import read_lines, sync_folder, write_failed, write_text, write_whole

_STEP_NAME = re.compile(r"step_(\d{6,})(\.parquet)?")
_STEP_FOLDERS = ("rollouts", "tokens", "traces", "failures", "checkpoints")
LINE_FILES = ("metrics.jsonl", "evaluations.jsonl", "events.jsonl")


def undo_after(folder: Path, step: int) -> Path | None:
    """Moves lines, shards, traces and checkpoints of steps after `step` to `undone/<number>/`; None when there are none."""

    def is_later(value: Any) -> bool:
        return isinstance(value, int) and value > step

    lines = {name: read_lines(folder / name) for name in LINE_FILES}
    lines = {name: values for name, values in lines.items() if any(is_later(value.get("step")) for value in values)}
    entries = [path for name in _STEP_FOLDERS for path in sorted((folder / name).glob("step_*")) if is_later(step_of(path))]
    if not lines and not entries:
        return None
    target = _next_folder(folder / "undone")
    for name, values in lines.items():
        later = [is_later(value.get("step")) for value in values]
        _write_lines(target / name, [value for value, goes in zip(values, later, strict=True) if goes])
        _write_lines(folder / name, relinked(values, (not goes for goes in later)))
    for path in entries:
        _move(path, target / path.parent.name / path.name)
    return target


def step_of(path: Path) -> int | None:
    """
    >>> step_of(Path("rollouts/step_000012.parquet")), step_of(Path("notes.txt"))
    (12, None)
    """
    match = _STEP_NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def _next_folder(parent: Path) -> Path:
    taken = [int(path.name) for path in parent.glob("*") if path.name.isdigit()]
    return parent / f"{max(taken, default=0) + 1:03d}"


def _write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """The lines with the seals that they have."""
    text = "".join(json.dumps(value, ensure_ascii=True) + "\n" for value in values)
    write_whole(path, lambda temporary: write_text(temporary, text))


def _move(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        sync_folder(source.parent)
        sync_folder(target.parent)
    except OSError as error:
        raise write_failed(target, error) from error
