"""A kill at any moment leaves a folder that reads as the state before or after the step, and that a resume can go on with."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.record.builders import RUN_FIELDS, report
from tests.record.snapshots import snapshots
from toishi.errors import RecordError
from toishi.record import Run, RunWriter
from toishi.record.files import read_lines, seal_of


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter.create(tmp_path / "run", RUN_FIELDS)


def test_killed_at_any_moment_of_a_step(writer: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.write_step(report(1))
    with snapshots(writer.folder, tmp_path / "kills", monkeypatch) as kills:
        writer.write_step(report(2))
    assert len(kills) >= 14
    seen = set()
    for kill in kills:
        run = Run.open(kill)
        seen.add(run.steps)
        assert [run.step(step) for step in run.steps] == [report(step) for step in run.steps]
        RunWriter.open(kill).undo_after(1)
        again = RunWriter.open(kill)
        again.write_step(report(2))
        assert Run.open(kill).step(2) == report(2)
        assert not list(kill.rglob(".tmp-*"))
    assert seen == {(1,), (1, 2)}


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_cut_last_line_is_left_out_and_taken_off(writer: RunWriter, cut: int) -> None:
    writer.write_step(report(1))
    writer.write_step(report(2))
    path = writer.folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert Run.open(writer.folder).steps == (1,)
    RunWriter.open(writer.folder).write_step(report(2))
    assert Run.open(writer.folder).steps == (1, 2)


def test_zeros_after_a_power_cut_are_left_out(writer: RunWriter) -> None:
    writer.write_step(report(1))
    with (writer.folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\0" * 50 + b"\n")
    assert Run.open(writer.folder).steps == (1,)
    RunWriter.open(writer.folder).write_step(report(2))
    assert Run.open(writer.folder).steps == (1, 2)


def test_damage_before_the_last_line_is_an_error(writer: RunWriter) -> None:
    for step in (1, 2, 3):
        writer.write_step(report(step))
    path = writer.folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2])
    with pytest.raises(RecordError, match=r"metrics\.jsonl, line 2: expected a JSON object"):
        Run.open(writer.folder)


def test_shards_without_a_line_are_ignored(writer: RunWriter) -> None:
    writer.write_step(report(1))
    (writer.folder / "rollouts" / "step_000002.parquet").write_bytes(b"half")
    assert Run.open(writer.folder).steps == (1,)
    writer.write_step(report(2))
    assert Run.open(writer.folder).step(2) == report(2)


def test_undo_moves_everything_later(writer: RunWriter) -> None:
    for step in (1, 2, 3):
        writer.write_step(report(step))
        writer.write_evaluation({"step": step, "value": step / 10})
        writer.write_event({"step": step, "kind": "health", "message": f"at {step}"})
        (writer.folder / "checkpoints" / f"step_{step:06d}").mkdir(parents=True)
    writer.write_event({"step": None, "kind": "note", "message": "no step"})
    assert writer.undo_after(1) == writer.folder / "undone" / "001"

    run, undone = Run.open(writer.folder), writer.folder / "undone" / "001"
    assert run.steps == (1,)
    assert [line["value"] for line in run.evaluations] == [0.1]
    assert [line["message"] for line in run.events] == ["at 1", "no step"]
    assert [line["step"] for line in read_lines(undone / "metrics.jsonl")] == [2, 3]
    assert [line["step"] for line in read_lines(undone / "evaluations.jsonl")] == [2, 3]
    moved = sorted(path.relative_to(undone).as_posix() for path in undone.glob("*/*"))
    assert moved == [
        f"{folder}/step_{step:06d}{suffix}"
        for folder, suffix in (("checkpoints", ""), ("rollouts", ".parquet"), ("tokens", ".parquet"))
        for step in (2, 3)
    ]
    assert all(line["seal"] == seal_of(line) for line in [*run.metrics, *read_lines(undone / "metrics.jsonl")])

    assert writer.undo_after(1) is None
    writer.write_step(report(2))
    assert writer.undo_after(1) == writer.folder / "undone" / "002"


def test_killed_at_any_moment_of_an_undo(writer: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        writer.write_step(report(step))
        writer.write_event({"step": step, "kind": "health", "message": f"at {step}"})
    with snapshots(writer.folder, tmp_path / "kills", monkeypatch) as kills:
        writer.undo_after(1)
    for kill in kills:
        again = RunWriter.open(kill)
        again.undo_after(1)
        again.write_step(report(2))
        run = Run.open(kill)
        assert run.steps == (1, 2)
        assert [line["step"] for line in run.events] == [1]
        assert sorted(path.name for path in (kill / "rollouts").iterdir()) == ["step_000001.parquet", "step_000002.parquet"]
        lost = {2, 3} - {line["step"] for path in kill.glob("undone/*/metrics.jsonl") for line in read_lines(path)}
        assert not lost


def test_disk_full_leaves_the_step_unrecorded(writer: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.write_step(report(1))
    before = {path: path.read_bytes() for path in writer.folder.rglob("*") if path.is_file()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"could not be written: No space left on device.*Free disk space"):
            writer.write_step(report(2))
        with pytest.raises(RecordError, match="No space left on device"):
            writer.write_event({"step": 2, "kind": "health", "message": "x"})
    after = {path: path.read_bytes() for path in writer.folder.rglob("*") if path.is_file() and path.stat().st_size}
    assert after == before
    writer.write_step(report(2))
    assert Run.open(writer.folder).steps == (1, 2)


@pytest.mark.parametrize("refusing", ["fsync", "write"])
def test_a_run_that_could_not_begin_leaves_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, refusing, full)  # fsync: run.json is refused; write: the lock before it
        with pytest.raises(RecordError, match=r"No space left on device\. Nothing was recorded.*start again") as raised:
            RunWriter.create(tmp_path / "runs" / "first", RUN_FIELDS)
    assert "resume" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []
    RunWriter.create(tmp_path / "runs" / "first", RUN_FIELDS).close()


def test_create_refuses_a_folder_in_use_and_missing_fields(writer: RunWriter, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"already holds a run.*toishi resume"):
        RunWriter.create(writer.folder, RUN_FIELDS)
    with pytest.raises(RecordError, match="missing: seed, model"):
        RunWriter.create(tmp_path / "other", {key: value for key, value in RUN_FIELDS.items() if key not in ("seed", "model")})
    (tmp_path / "empty").mkdir()
    assert RunWriter.create(tmp_path / "empty", RUN_FIELDS).folder == tmp_path / "empty"


def test_lines_need_their_keys(writer: RunWriter) -> None:
    with pytest.raises(RecordError, match=r"evaluations\.jsonl needs step; missing: step"):
        writer.write_evaluation({"value": 1.0})
    with pytest.raises(RecordError, match="missing: kind, message"):
        writer.write_event({"step": 1})


def test_failure_writes_the_answers_out(writer: RunWriter) -> None:
    nan = float("nan")
    group = report(4).groups[0]
    groups = (replace(group, rollouts=(replace(group.rollouts[0], advantage=nan), *group.rollouts[1:])),)
    folder = writer.write_failure(4, groups, "the loss is nan in the rows of rollouts 4/0/0")
    assert sorted(path.name for path in folder.iterdir()) == ["rollouts.parquet", "tokens.parquet"]
    run = Run.open(writer.folder)
    assert run.steps == ()
    assert {key: run.events[0][key] for key in ("step", "kind", "folder")} == {
        "step": 4, "kind": "failure", "folder": "failures/step_000004"
    }  # fmt: skip


def test_update_run_keeps_the_rest(writer: RunWriter) -> None:
    writer.update_run({"decisions": {"threads": 2}})
    run: Any = json.loads((writer.folder / "run.json").read_text())
    assert run["decisions"] == {"threads": 2}
    assert run["seed"] == 7
    assert run["seal"] == seal_of(run)
