"""A run folder as a file for other programs: UNIPO's JSON, or its rollouts as rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toishi.errors import ConfigError, nearest
from toishi.interop.unipo import unipo_document
from toishi.record import Run
from toishi.record.files import plain, write_text, write_whole
from toishi.record.schema import ROLLOUT_SCHEMA

Row = dict[str, Any]
JSON_TEXTS = ("prompt_messages", "gold", "columns")
"""Columns that hold JSON as text in the run folder."""


def export_run(name: str, run: Run, out: str | Path, *, step: int | None = None, group: int | None = None) -> int:
    """Writes `run` as format `name` to the file `out`, whole or not at all, and returns how many rollouts it holds.

    step   this step only; None: all
    group  this prompt of each step only
    Raises ConfigError for an unknown format or a group that a step has not, RecordError when the run cannot give what the
    format needs, or the disk refuses.
    """
    if name not in EXPORTS:
        raise ConfigError(f"unknown format '{name}'; {nearest(name, EXPORTS)}")
    steps = run.steps if step is None else (run.line(step)["step"],)
    return EXPORTS[name](run, steps, group, Path(out))


def rollout_rows(run: Run, steps: Sequence[int], group: int | None) -> Iterator[Row]:
    """The rows of rollouts/, with the parsed values of what is JSON inside a column."""
    for step in steps:
        rows = [row for row in run.rollout_rows(step) if group in (None, row["group"])]
        if not rows:
            raise ConfigError(f"step {step} has no group {group}")
        yield from rows


def _jsonl(run: Run, steps: Sequence[int], group: int | None, out: Path) -> int:
    lines = []
    for row in rollout_rows(run, steps, group):
        parsed = {name: json.loads(row[name]) for name in JSON_TEXTS if row[name] is not None}
        lines.append(json.dumps(plain({**row, **parsed}), ensure_ascii=False, allow_nan=False))
    _write(out, "".join(f"{line}\n" for line in lines))
    return len(lines)


def _csv(run: Run, steps: Sequence[int], group: int | None, out: Path) -> int:
    rows = [_flat(row) for row in rollout_rows(run, steps, group)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write(out, text.getvalue())
    return len(rows)


def _flat(row: Mapping[str, Any]) -> Row:
    """One cell a value: each reward's value in a column of its own, lists left out but for their length."""
    scores = {f"rewards/{score['reward']}": score["value"] for score in row["scores"]}
    cells = {name: value for name, value in row.items() if not isinstance(value, list)}
    return cells | scores


def _parquet(run: Run, steps: Sequence[int], group: int | None, out: Path) -> int:
    table = pa.Table.from_pylist(list(rollout_rows(run, steps, group)), schema=ROLLOUT_SCHEMA)
    write_whole(out, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
    return int(table.num_rows)


def _unipo(run: Run, steps: Sequence[int], group: int | None, out: Path) -> int:
    document = unipo_document(run, steps, group=group)
    _write(out, json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=1) + "\n")
    return sum(len(prompt["responses"]) for entry in document["entries"] for prompt in entry["prompts"])


def _write(out: Path, text: str) -> None:
    write_whole(out, lambda temporary: write_text(temporary, text))


EXPORTS: dict[str, Callable[[Run, Sequence[int], int | None, Path], int]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
    "unipo": _unipo,
}
