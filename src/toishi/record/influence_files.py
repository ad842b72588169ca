"""Writes the influence of a traced step beside its trace, and reads it back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from toishi.errors import RecordError
from toishi.record.files import seal_of, sha256_file, write_json, write_whole
from toishi.record.influence import ARRAYS, Arrays, Influence
from toishi.record.schema import SCHEMA_VERSION
from toishi.record.trace_files import built, trace_folder

INFLUENCE_FILE, ARRAYS_FILE = "influence.json", "influence.safetensors"


def write_influence(run_folder: Path, influence: Influence, arrays: Arrays) -> Path:
    """Writes the arrays, then influence.json, which makes it exist. An earlier one of the step is replaced.

    Raises RecordError when the disk refuses.
    """
    assert set(arrays) == set(ARRAYS), "every array is described"
    folder = trace_folder(run_folder, influence.step)
    (folder / INFLUENCE_FILE).unlink(missing_ok=True)
    write_whole(folder / ARRAYS_FILE, lambda path: save_file(dict(arrays), path))
    sums = {"arrays_sha256": sha256_file(folder / ARRAYS_FILE)}
    write_json(folder / INFLUENCE_FILE, {"schema_version": SCHEMA_VERSION, **asdict(influence), **sums})
    return folder


def has_influence(run_folder: Path, step: int) -> bool:
    """Whether the step's influence is on record."""
    return (trace_folder(run_folder, step) / INFLUENCE_FILE).is_file()


def read_influence(run_folder: Path, step: int) -> Influence:
    """The influence of a step, without its arrays.

    Raises RecordError when it is not on record or was changed.
    """
    path = trace_folder(run_folder, step) / INFLUENCE_FILE
    influence: Influence = built(Influence, _values(run_folder, step, path))
    return influence


def read_arrays(run_folder: Path, step: int) -> Arrays:
    """The arrays of a step's influence as numpy arrays by name; see `record.influence.ARRAYS`.

    Raises RecordError when they are not on record or were changed.
    """
    folder = trace_folder(run_folder, step)
    values, path = _values(run_folder, step, folder / INFLUENCE_FILE), folder / ARRAYS_FILE
    if not path.is_file() or sha256_file(path) != values["arrays_sha256"]:
        raise RecordError(f"{path} is missing or was changed after it was written. {_again(run_folder, step)}")
    try:
        arrays: Arrays = load_file(path)
    except SafetensorError as error:
        raise RecordError(f"{path} is damaged: {error}. {_again(run_folder, step)}") from None
    return arrays


def _values(run_folder: Path, step: int, path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise RecordError(f"{run_folder}: who moved what in step {step} is not on record. {_again(run_folder, step)}")
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}. {_again(run_folder, step)}") from None
    if not isinstance(values, dict) or values.get("seal") != seal_of(values):
        raise RecordError(f"{path} was changed after it was written. {_again(run_folder, step)}")
    if values["schema_version"] > SCHEMA_VERSION:
        raise RecordError(f"{path} was written by a newer toishi. Upgrade it: pip install -U toishi")
    return values


def _again(run_folder: Path, step: int) -> str:
    return f"Make it with: toishi explain {run_folder} --step {step} --influence"
