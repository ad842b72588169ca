"""One process writes a run: a second one is told who does, a kill lets go, and one process may open its run twice."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.record.builders import RUN_FIELDS
from toishi.errors import RecordError
from toishi.record import RunWriter, lock

HOLDS = """
import sys, time
from pathlib import Path
from toishi.record import RunWriter
writer = RunWriter.open(Path(sys.argv[1]))
print("holds", flush=True)
time.sleep(100)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with RunWriter.create(tmp_path / "run", RUN_FIELDS) as writer:
        return writer.folder


def test_a_second_process_is_refused_until_the_first_is_gone(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        with pytest.raises(RecordError, match=rf"is being written by process {process.pid} on .*let it finish or stop it"):
            RunWriter.open(folder)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (folder / "writer.lock").exists()
    with RunWriter.open(folder) as writer:
        writer.write_event({"step": None, "kind": "note", "message": "mine now"})
    assert not (folder / "writer.lock").exists()


def test_writers_of_one_process_share_the_lock(folder: Path) -> None:
    one, other = RunWriter.open(folder), RunWriter.open(folder)
    one.close()
    one.close()
    assert (folder / "writer.lock").exists()
    other.close()
    assert not (folder / "writer.lock").exists()


def test_a_writer_that_is_dropped_lets_go(folder: Path) -> None:
    RunWriter.open(folder)
    assert not (folder / "writer.lock").exists()


def test_without_locks_a_lock_file_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("toishi.record.lock.fcntl.flock", refuses)
    with RunWriter.open(folder):
        assert f"process {os.getpid()}" in (folder / "writer.lock").read_text()
    (folder / "writer.lock").write_text("process 1 on elsewhere")
    with pytest.raises(RecordError, match=r"process 1 on elsewhere.*delete .*writer\.lock"):
        RunWriter.open(folder)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="could not be written"):
        lock.hold(tmp_path / "file" / "run")


def test_create_takes_a_folder_with_what_a_kill_left(tmp_path: Path) -> None:
    (tmp_path / ".tmp-run.json").write_text("{")
    (tmp_path / "writer.lock").write_text("process 1 on elsewhere")
    RunWriter.create(tmp_path, RUN_FIELDS).close()
    with pytest.raises(RecordError, match=r"already holds a run.*toishi resume"):
        RunWriter.create(tmp_path, RUN_FIELDS)
    (tmp_path / "run.json").rename(tmp_path / "notes.txt")
    with pytest.raises(RecordError, match=r"holds something that is no run \(notes\.txt\).*another folder"):
        RunWriter.create(tmp_path, RUN_FIELDS)
