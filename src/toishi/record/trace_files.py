"""Writes a trace into the run folder and reads it back, equal."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from toishi.errors import RecordError
from toishi.record.files import seal_of, sha256_file, write_json
from toishi.record.schema import AFTER_SCHEMA, CHANGE_SCHEMA, SCHEMA_VERSION, step_name
from toishi.record.tables import read_table, write_table
from toishi.record.trace import IN_TABLES, MatrixChange, Trace, TracedText

TRACE_FILE, AFTER_FILE, CHANGES_FILE = "trace.json", "after.parquet", "changes.parquet"


def trace_folder(run_folder: Path, step: int) -> Path:
    """Where the trace of a step lies, whether it is there or not."""
    return run_folder / "traces" / step_name(step)


def write_trace(run_folder: Path, trace: Trace) -> Path:
    """Writes the trace: tables first, trace.json last, which makes it exist. An earlier trace of the step is replaced.

    Raises RecordError when the disk refuses.
    """
    folder = trace_folder(run_folder, trace.step)
    (folder / TRACE_FILE).unlink(missing_ok=True)
    write_table(folder / AFTER_FILE, [asdict(text) for text in trace.texts], AFTER_SCHEMA)
    write_table(folder / CHANGES_FILE, [asdict(matrix) for matrix in trace.matrices], CHANGE_SCHEMA)
    values = {name: value for name, value in asdict(trace).items() if name not in IN_TABLES}
    sums = {"after_sha256": sha256_file(folder / AFTER_FILE), "changes_sha256": sha256_file(folder / CHANGES_FILE)}
    write_json(folder / TRACE_FILE, {"schema_version": SCHEMA_VERSION, **values, **sums})
    return folder


def has_trace(run_folder: Path, step: int) -> bool:
    """Whether the step was traced."""
    return (trace_folder(run_folder, step) / TRACE_FILE).is_file()


def read_trace(run_folder: Path, step: int) -> Trace:
    """The trace of a step.

    Raises RecordError when the step was not traced, or a file of the trace was changed.
    """
    folder = trace_folder(run_folder, step)
    if not has_trace(run_folder, step):
        raise RecordError(
            f"{run_folder}: step {step} was not traced. Trace it now with: toishi replay {run_folder} --step {step} --trace"
        )
    try:
        values = json.loads((folder / TRACE_FILE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(f"{folder / TRACE_FILE} is damaged: {error}. {_AGAIN}") from None
    _require_whole(folder, values)
    texts = [built(TracedText, row) for row in read_table(folder / AFTER_FILE, AFTER_SCHEMA)]
    matrices = [built(MatrixChange, row) for row in read_table(folder / CHANGES_FILE, CHANGE_SCHEMA)]
    trace: Trace = built(Trace, values)
    return replace(trace, texts=tuple(texts), matrices=tuple(matrices))


_AGAIN = "Make the trace again: toishi replay RUN --step N --trace"


def _require_whole(folder: Path, values: Any) -> None:
    if not isinstance(values, dict) or values.get("seal") != seal_of(values):
        raise RecordError(f"{folder / TRACE_FILE} was changed after it was written. {_AGAIN}")
    if values["schema_version"] > SCHEMA_VERSION:
        raise RecordError(
            f"{folder} has schema version {values['schema_version']}; this toishi reads versions up to {SCHEMA_VERSION}. "
            "Upgrade it: pip install -U toishi"
        )
    for name, key in ((AFTER_FILE, "after_sha256"), (CHANGES_FILE, "changes_sha256")):
        path = folder / name
        if not path.exists() or sha256_file(path) != values[key]:
            raise RecordError(f"{path} is missing or was changed after it was written. {_AGAIN}")


def built(cls: Any, values: Mapping[str, Any]) -> Any:
    """The dataclass from plain values, inner ones included; 'nan' and 'inf' become numbers again."""
    hints = get_type_hints(cls)
    return cls(**{field.name: _value(hints[field.name], values[field.name]) for field in fields(cls) if field.name in values})


def _value(kind: Any, value: Any) -> Any:
    if get_origin(kind) in (types.UnionType,):
        kind = next(part for part in get_args(kind) if part is not type(None))
    if value is None:
        return None
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], item) for item in value)
    if is_dataclass(kind):
        return built(kind, value)
    return float(value) if kind is float else value
