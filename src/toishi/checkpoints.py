"""Checkpoints that survive a kill: written aside, sealed, renamed, and only then are old ones removed.

Decisions:
1. A checkpoint is a folder `checkpoints/step_000123/` with `model/` (loads with plain transformers), `state.pt` (optimizer
   and masters; plain tensors and numbers, so it loads with `weights_only=True`) and `state.json` (step, sha256 sums).
2. At every instant a whole checkpoint is on disk, once the first is. A damaged one is passed over with a reason, not silently.
3. This module knows nothing of models or optimizers: it takes a callable and nested plain values.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError

from toishi.errors import RecordError
from toishi.record.checkpoint_files import (
    ASIDE,
    STATE_FILE,
    TEMPORARY,
    checkpoint_fault,
    checkpoint_folders,
    checkpoint_step,
    file_sums,
    read_state_file,
    sweep_checkpoints,
)
from toishi.record.files import plain, sync_file, sync_folder, write_json
from toishi.record.schema import SCHEMA_VERSION, step_name

_MODEL_FOLDER = "model"
_STATE_TENSORS = "state.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A loaded checkpoint: training went on from `state` after `step` complete steps."""

    step: int
    model_folder: Path
    state: Mapping[str, Any]


class Latest(NamedTuple):
    """The newest whole checkpoint (None when there is none) and why newer ones were passed over."""

    folder: Path | None
    skipped: tuple[str, ...] = ()


def save_checkpoint(
    run_folder: Path,
    step: int,
    write_model: Callable[[Path], None],
    state: Mapping[str, Any],
    *,
    keep_last: int = 1,
    protect: Collection[int] = (),
    lines: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the checkpoint of `step` and then removes those that are neither the first, the newest `keep_last`, nor protected.

    `write_model(folder)` fills an existing empty folder; `state` is nested dicts, lists, tensors, numbers and text. Numbers and
    text at its top level (data position, configuration hash) also stand in state.json, where a person can read them; so does
    `lines`, where each file of lines ended at that moment (`RunWriter.heads`).

    Raises RecordError when the disk refuses or `state` holds anything else; earlier checkpoints are then as they were.
    """
    parent = run_folder / "checkpoints"
    target = parent / step_name(step)
    temporary = parent / f"{TEMPORARY}{target.name}"
    portable = _portable(state, "state")
    try:
        sweep_checkpoints(run_folder)
        _fill(temporary, {"step": step, "lines": plain(lines or {})}, write_model, portable)
        _put_in_place(temporary, target)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise _not_saved(run_folder, target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    prune_checkpoints(run_folder, keep_last=keep_last, protect=protect)
    return target


def prune_checkpoints(run_folder: Path, *, keep_last: int, protect: Collection[int] = ()) -> list[Path]:
    """Removes all but the first, the newest `keep_last` and the protected steps (best, anchors); returns what it removed."""
    folders = checkpoint_folders(run_folder)
    kept = {*folders[:1], *folders[-keep_last:]}
    removed = [folder for folder in folders if folder not in kept and checkpoint_step(folder) not in protect]
    for folder in removed:
        _remove(folder)
    return removed


def latest_checkpoint(run_folder: Path, fault_of: Callable[[Path], str | None] = lambda folder: None) -> Latest:
    """The newest checkpoint whose every seal holds and that `fault_of` has nothing to say against."""
    skipped: list[str] = []
    for folder in reversed(checkpoint_folders(run_folder)):
        fault = checkpoint_fault(folder) or fault_of(folder)
        if fault is None:
            return Latest(folder=folder, skipped=tuple(skipped))
        skipped.append(fault)
    return Latest(folder=None, skipped=tuple(skipped))


def load_checkpoint(folder: Path, *, verify: bool = True, map_location: str = "cpu") -> Checkpoint:
    """The checkpoint in `folder`. `verify=False` leaves out the sums, for a folder that `latest_checkpoint` just checked.

    Raises RecordError when it is not whole.
    """
    fault = checkpoint_fault(folder) if verify else None
    if fault:
        raise RecordError(f"{fault}. Resume from an earlier checkpoint of the run")
    step = int(read_state_file(folder)["step"])
    try:
        state = torch.load(folder / _STATE_TENSORS, weights_only=True, map_location=map_location)
    except Exception as error:
        raise RecordError(f"{folder / _STATE_TENSORS} cannot be loaded: {error}. Resume from an earlier checkpoint") from error
    return Checkpoint(step=step, model_folder=folder / _MODEL_FOLDER, state=state)


def _fill(folder: Path, facts: Mapping[str, Any], write_model: Callable[[Path], None], state: Mapping[str, Any]) -> None:
    """A whole checkpoint in `folder`, every byte of it on the disk."""
    (folder / _MODEL_FOLDER).mkdir(parents=True)
    write_model(folder / _MODEL_FOLDER)
    torch.save(state, folder / _STATE_TENSORS)
    sums = file_sums(folder)
    for name in sums:
        sync_file(folder / name)
    readable = {key: value for key, value in state.items() if isinstance(value, int | float | str)}
    write_json(folder / STATE_FILE, {"schema_version": SCHEMA_VERSION, **facts, "state": readable, "files": sums})
    for inner in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        sync_folder(inner)


def _put_in_place(temporary: Path, target: Path) -> None:
    """Gives the whole folder its name; an older one of that name is set aside until the new one stands."""
    aside = target.with_name(f"{ASIDE}{target.name}")
    if target.exists():
        target.rename(aside)
    temporary.rename(target)
    sync_folder(target.parent)
    if aside.exists():
        _remove(aside)


def _remove(folder: Path) -> None:
    """Removes a checkpoint in two moves, so that a kill in between leaves no half folder under its name."""
    doomed = folder.with_name(f"{TEMPORARY}removed-{folder.name}")
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _not_saved(run_folder: Path, target: Path, error: Exception) -> RecordError:
    with contextlib.suppress(OSError):
        names = [folder.name for folder in checkpoint_folders(run_folder)]
        earlier = f"earlier checkpoints are as they were: {', '.join(names)}" if names else "there is no earlier checkpoint"
        free = shutil.disk_usage(run_folder).free / 1e9
        return RecordError(
            f"checkpoint {target.name} could not be written: {error}; {earlier}. {free:.1f} GB are free on that disk. "
            f"Free space, then continue with: toishi resume {run_folder}"
        )
    return RecordError(f"checkpoint {target.name} could not be written: {error}. Is the disk still there?")


def _portable(value: Any, where: str) -> Any:
    """Nested plain values that `torch.load(weights_only=True)` takes back; found wrong here, not at the resume."""
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
        return value
    if isinstance(value, Mapping):
        return {key: _portable(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_portable(item, f"{where}[{index}]") for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    raise RecordError(
        f"checkpoint: {where} is a {type(value).__name__}; expected tensors, numbers, text, and dicts, lists or tuples of "
        "them. Convert it before saving (an array: torch.from_numpy)"
    )
