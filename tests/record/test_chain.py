"""Lines name the line before them; what is removed, cut off or moved is found, and taking steps back keeps the chain whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record.builders import RUN_FIELDS, report
from toishi.record import Run, RunWriter
from toishi.record.chain import Head, unkept, unlinked
from toishi.record.files import read_lines, seal_of


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    writer = RunWriter.create(tmp_path / "run", RUN_FIELDS)
    for step in (1, 2, 3):
        writer.write_step(report(step))
        writer.write_event({"step": step, "kind": "note", "message": f"at {step}"})
    return writer


def test_lines_are_linked_also_after_opening_again(writer: RunWriter) -> None:
    RunWriter.open(writer.folder).write_step(report(4))
    lines = Run.open(writer.folder).metrics
    assert [line["previous"] for line in lines] == [None, *(line["seal"] for line in lines[:-1])]
    assert unlinked(lines) == []
    assert unlinked(lines[1:]) == [1]
    assert unlinked([lines[0], *lines[2:]]) == [2]
    assert unlinked([lines[1], lines[0], *lines[2:]]) == [1, 2, 3]
    assert unlinked([*lines, lines[-1]]) == [5]


def test_a_checkpoint_misses_lines_that_were_cut_off(writer: RunWriter) -> None:
    heads, lines = writer.heads(), Run.open(writer.folder).lines
    assert heads["metrics.jsonl"] == Head.of(lines["metrics.jsonl"]).as_record()
    assert heads["evaluations.jsonl"] == {"lines": 0, "seal": None}
    assert list(unkept(heads, lines)) == []
    cut = {**lines, "metrics.jsonl": lines["metrics.jsonl"][:2], "events.jsonl": ()}
    assert [(name, got) for name, got, _ in unkept(heads, cut)] == [("metrics.jsonl", "2 lines"), ("events.jsonl", "0 lines")]
    other = {**lines, "metrics.jsonl": lines["metrics.jsonl"][::-1]}
    assert [got for _, got, _ in unkept(heads, other)] == ["line 3 is another one"]


def test_undo_links_what_stays_and_hides_no_gap(writer: RunWriter) -> None:
    writer.write_event({"step": None, "kind": "note", "message": "stays"})
    writer.undo_after(1)
    events = Run.open(writer.folder).events
    assert [event["message"] for event in events] == ["at 1", "stays"]
    assert unlinked(events) == []
    assert all(event["seal"] == seal_of(event) for event in events)
    writer.write_step(report(2))
    assert unlinked(Run.open(writer.folder).metrics) == []


def test_undo_does_not_mend_a_broken_chain(writer: RunWriter) -> None:
    path = writer.folder / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    writer.undo_after(2)
    assert unlinked(read_lines(path)) == [1]
    assert unlinked(read_lines(writer.folder / "metrics.jsonl")) == []


def test_leftovers_of_a_kill_are_swept_at_the_next_open(writer: RunWriter) -> None:
    folder = writer.folder
    writer.undo_after(2)
    left = ["checkpoints/.tmp-removed-step_000001/model", "checkpoints/.tmp-step_000002", "traces/.tmp-step_000001"]
    for name in left:
        (folder / name).mkdir(parents=True)
    for name in (".tmp-run.json", "undone/001/.tmp-metrics.jsonl", "rollouts/.tmp-step_000003.parquet"):
        (folder / name).write_text("half")
    RunWriter.open(folder)
    assert list(folder.rglob(".tmp-*")) == []
