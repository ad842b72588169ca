"""What a checkpoint folder holds and whether it is whole, judged by its seals without loading anything.

Decision: `state.json` is written last and lists the sha256 of every other file, so a checkpoint is whole if and only if
state.json is there, its own seal holds, and every listed file has its sum.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toishi.errors import RecordError
from toishi.record.checks import is_whole
from toishi.record.files import remove, seal_of, sha256_file
from toishi.record.schema import SCHEMA_VERSION
from toishi.record.undo import step_of

STATE_FILE = "state.json"
ASIDE = ".aside-"
TEMPORARY = ".tmp-"


def checkpoint_folders(run_folder: Path) -> list[Path]:
    """The run's checkpoints, oldest step first, whole or not.

    A kill while a checkpoint was being replaced leaves the old one set aside; it counts as long as no new one is there.
    """
    parent = run_folder / "checkpoints"
    named = {path.name: path for path in parent.glob("step_*") if step_of(path) is not None}
    aside = {path.name.removeprefix(ASIDE): path for path in parent.glob(f"{ASIDE}step_*")}
    aside = {name: path for name, path in aside.items() if step_of(Path(name)) is not None}
    return sorted((aside | named).values(), key=checkpoint_step)


def checkpoint_step(folder: Path) -> int:
    """The step in a checkpoint folder's name. Raises RecordError when it has none."""
    step = step_of(Path(folder.name.removeprefix(ASIDE)))
    if step is None:
        raise RecordError(f"{folder} is no checkpoint: expected a folder like step_000010")
    return step


def sweep_checkpoints(run_folder: Path) -> None:
    """Removes what a kill left half written or half removed, and gives a checkpoint that was set aside its name back."""
    parent = run_folder / "checkpoints"
    for leftover in parent.glob(f"{TEMPORARY}*"):
        remove(leftover)
    for aside in parent.glob(f"{ASIDE}*"):
        target = parent / aside.name.removeprefix(ASIDE)
        if target.exists():
            remove(aside)
        else:
            aside.rename(target)


def file_sums(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of every file but state.json."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / STATE_FILE)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def read_state_file(folder: Path) -> dict[str, Any]:
    """state.json with its seal checked.

    Raises RecordError when it is missing, damaged, or from a newer version.
    """
    path = folder / STATE_FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{folder} is not a whole checkpoint: {STATE_FILE} cannot be read ({error})") from None
    if not isinstance(facts, dict) or facts.get("seal") != seal_of(facts):
        raise RecordError(f"{folder} is not a whole checkpoint: {STATE_FILE} was changed after it was written")
    version, step, files = (facts.get(name) for name in ("schema_version", "step", "files"))
    if not is_whole(version) or not is_whole(step) or not isinstance(files, dict):
        raise RecordError(f"{folder} is not a whole checkpoint: {STATE_FILE} lacks schema_version, step or files")
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"{folder} has schema version {version}; this toishi reads versions up to {SCHEMA_VERSION}. "
            "Upgrade it: pip install -U toishi"
        )
    return facts


def checkpoint_fault(folder: Path) -> str | None:
    """Why the checkpoint cannot be used, or None when every seal holds."""
    try:
        facts = read_state_file(folder)
        got = file_sums(folder)
    except (RecordError, OSError) as error:
        return str(error)
    if facts["step"] != checkpoint_step(folder):
        return f"{folder} was renamed: it holds step {facts['step']}"
    expected = facts["files"]
    for name in sorted(expected.keys() | got.keys()):
        if name not in got:
            return f"{folder} is not a whole checkpoint: {name} is missing"
        if name not in expected:
            return f"{folder} holds a file that was not part of the checkpoint: {name}"
        if got[name] != expected[name]:
            return f"{folder} is damaged: {name} has sha256 {got[name][:12]}..., expected {expected[name][:12]}..."
    return None
