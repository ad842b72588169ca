"""The samples file: what a person is told of a damaged one, and a disk that refuses."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.collecting.making import answer, asked, header
from toishi.collecting.journal import JournalWriter
from toishi.collecting.labelling import read_labels
from toishi.collecting.samples import append_header, claim, read_samples
from toishi.errors import ConfigError, RecordError

resource = pytest.importorskip("resource")
PROMPTS = [asked(number, [answer("a", 1.0), answer("b", 0.0)]) for number in range(3)]


def written(path: Path) -> list[bytes]:
    """The lines of a samples file of three prompts."""
    with JournalWriter(path) as journal:
        append_header(journal, header(count=3, samples=2))
        for one in PROMPTS:
            journal.append(asdict(one))
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("line", [b"no json\n", None])
def test_a_damaged_line_is_named_with_what_to_do(line: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a.samples.jsonl"
    lines = written(path)
    lines[2] = line or lines[2].replace(b'"reward": 1.0', b'"reward": 2.0')
    path.write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=r"line 3.*--continue asks that prompt again") as raised:
        read_samples(path)
    assert "resume" not in str(raised.value)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert read_samples(path)[1] == (PROMPTS[0], PROMPTS[2])


def test_other_files_are_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "q"}\n', "utf-8")
    for file in (path, tmp_path / "missing.jsonl"):
        with pytest.raises(RecordError, match="no samples file"):
            read_samples(file)
    first = json.loads(written(tmp_path / "a.jsonl")[0])
    path.unlink()
    with JournalWriter(path) as journal:
        journal.append(first | {"version": 2})
    with pytest.raises(RecordError, match="of version 2; this toishi reads version 1"):
        read_samples(path)


def test_a_damaged_label_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text('{"name": "ada", "pair": "k", "choice": "tie", "seal": "0"}\n', "utf-8")
    with pytest.raises(RecordError, match=r"line 1.*its pair is shown again"):
        read_labels(path)


def test_a_line_that_did_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    """A limit on the file's size lets the first 20 bytes of the line through."""
    path = tmp_path / "a.samples.jsonl"
    before = b"".join(written(path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with JournalWriter(path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
        try:
            with pytest.raises(RecordError, match="could not be written"):
                journal.append(asdict(PROMPTS[0]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before


def test_two_writers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.samples.jsonl"
    with JournalWriter(path), pytest.raises(RecordError, match="another process"), JournalWriter(path):
        pass


def test_claiming_removes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("mine\n", "utf-8")
    claim([path], go_on=False, overwrite=True)
    assert path.read_text("utf-8") == "mine\n"
    with pytest.raises(ConfigError, match="there already"):
        claim([path], go_on=False, overwrite=False)
    with pytest.raises(RecordError, match="could not be written"):
        claim([path / "below.jsonl"], go_on=False, overwrite=False)


@pytest.mark.parametrize("held", [b"my notes\n", b"my notes", b'{"prompt": "q"}', b'{"cut": 1\n', b"a\nb"])
def test_a_file_of_something_else_is_refused_and_stays_as_it_is(held: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(held)
    with pytest.raises(RecordError, match=r"another kind of file|expected a JSON object"), JournalWriter(path):
        pass
    assert path.read_bytes() == held


@pytest.mark.parametrize("left", [b"{", b'{"format": "toi', b'{"for\0\0\n', b"\0" * 40 + b"\n", b""])
def test_what_a_kill_left_of_a_line_is_taken_off(left: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.samples.jsonl"
    before = b"".join(written(path))
    for held in (b"", before):
        path.write_bytes(held + left)
        with JournalWriter(path):
            pass
        assert path.read_bytes() == held


def test_claiming_makes_no_folder(tmp_path: Path) -> None:
    claim([tmp_path / "new" / "deep" / "out.jsonl"], go_on=False, overwrite=False)
    assert not (tmp_path / "new").exists()
