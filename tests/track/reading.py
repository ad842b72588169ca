"""What W&B (offline) and TensorBoard wrote for a run, read back from their own files, and held against the record."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toishi.record.lines import RECORD_KEYS, restored
from toishi.record.reader import Run


def numbers_on_record(folder: Path) -> dict[int, dict[str, float]]:
    """Step -> the numbers of its line."""
    return {
        line["step"]: {
            key: value
            for key, value in restored(line).items()
            if key not in RECORD_KEYS and isinstance(value, int | float) and not isinstance(value, bool)
        }
        for line in Run.open(folder).metrics
    }


def tensorboard_scalars(folder: Path) -> dict[int, dict[str, float]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "track" / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    found: dict[int, dict[str, float]] = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            assert name not in found.setdefault(event.step, {}), "a step twice"
            found[event.step][name] = event.value
    return found


def wandb_history(folder: Path, last: int = 6) -> dict[int, dict[str, Any]]:
    """The history up to step `last`; W&B's own process writes the end of it shortly after `finish` has returned."""
    give_up = time.monotonic() + 30
    while last not in (found := wandb_history_now(folder)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return found


def wandb_history_now(folder: Path) -> dict[int, dict[str, Any]]:
    """The history in the offline files: records in blocks of 32 KiB as in LevelDB's log, each a protobuf message."""
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found: dict[int, dict[str, Any]] = {}
    for path in sorted((folder / "track" / "wandb").glob("offline-run-*/*.wandb")):
        data, at, whole = path.read_bytes(), 7, b""
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:
                at += 32768 - at % 32768
                continue
            length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
            if kind == 0:
                break
            whole += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):
                record, whole = pb.Record.FromString(whole), b""
                if record.WhichOneof("record_type") == "history":
                    items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
                    step = int(items["_step"])
                    assert step not in found, "a step twice"
                    found[step] = items
    return found


def wandb_answers(folder: Path, history: Mapping[int, Mapping[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Step -> the rows of its table."""
    found = {}
    for step in sorted(set(history) - {0}):
        assert history[step]["answers/_type"] == "table-file"
        (path,) = (folder / "track" / "wandb").glob(f"offline-run-*/files/{history[step]['answers/path']}")
        table = json.loads(path.read_text())
        found[step] = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    return found


def assert_equal_to_record(found: Mapping[int, Mapping[str, Any]], folder: Path, *, rel: float) -> None:
    for step, numbers in numbers_on_record(folder).items():
        for key, value in numbers.items():
            if not key.startswith("time/") and key != "tokens/per_s":
                got = float(found[step][key])
                assert got == pytest.approx(value, rel=rel, abs=1e-30) or (math.isnan(got) and math.isnan(value)), (step, key)


def assert_both_hold_the_record(folder: Path, last: int) -> None:
    """W&B's history, its tables and TensorBoard's scalars are the record up to step `last`, every step once."""
    assert_equal_to_record(tensorboard_scalars(folder), folder, rel=1e-6)
    history = wandb_history(folder, last)
    assert_equal_to_record(history, folder, rel=1e-12)
    assert sorted(history) == list(range(last + 1))
    run, answers = Run.open(folder), wandb_answers(folder, history)
    assert sorted(answers) == list(range(1, last + 1))
    for step, rows in answers.items():
        assert [
            (row["completion"], row["reward"], row[f"score/{r.scores[0].reward}"])
            for row, r in zip(rows, run.step(step).rollouts, strict=True)
        ] == [(r.completion.text, r.reward, r.scores[0].value) for r in run.step(step).rollouts]
