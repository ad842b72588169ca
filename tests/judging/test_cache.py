"""The cache of replies: content decides, failures and damage never come back as replies, processes and kills do no harm."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.judging.stub_server import chat
from tests.judging.test_endpoint import judge_at, question
from toishi.judging.base import JudgeCall, JudgeReply
from toishi.judging.cache import BUSY_TIMEOUT_S, ReplyCache, digest_of

CALL = JudgeCall(messages=({"role": "user", "content": "How good is it?"},))
WHOM = {"model": "m", "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize(
    "change",
    [
        {"messages": ({"role": "user", "content": "How bad is it?"},)},
        {"messages": ({"role": "system", "content": "How good is it?"},)},
        {"prefix": "Rating: [["},
        {"choices": ("1", "2")},
        {"repeat": 1},
        {"max_tokens": 5},
        {"temperature": 0.5},
        {"json_schema": {"type": "object"}},
    ],
)
def test_every_field_of_a_call_is_part_of_its_key(change: dict[str, object]) -> None:
    assert digest_of(dataclasses.replace(CALL, **change), WHOM) != digest_of(CALL, WHOM)  # type: ignore[arg-type]


def test_the_key_names_the_model_and_the_place() -> None:
    assert digest_of(CALL, WHOM) == digest_of(dataclasses.replace(CALL), dict(WHOM))
    assert len({digest_of(CALL, WHOM | {"model": "n"}), digest_of(CALL, WHOM | {"base_url": "x"}), digest_of(CALL, WHOM)}) == 3


def test_what_was_put_comes_back_whole_and_says_that_it_is_cached(tmp_path: Path) -> None:
    reply = JudgeReply(text='{"reason": "gut, 好", "score": 7}', finish_reason="length", probabilities={"7": 0.25, "8": 0.5})
    cache = ReplyCache(tmp_path / "new" / "replies.sqlite")
    cache.put("a", reply)
    cache.close()
    assert cache.get("a") == dataclasses.replace(reply, cached=True)
    assert cache.get("b") is None
    assert cache.problem == ""
    cache.close()


@pytest.mark.parametrize("damage", ["UPDATE replies SET reply = replace(reply, '7', '9')", "UPDATE replies SET reply = 'x'"])
def test_a_damaged_entry_is_not_there_and_is_written_again(tmp_path: Path, damage: str) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    cache.put("a", JudgeReply(text="7"))
    connection = sqlite3.connect(cache.path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    assert cache.get("a") is None
    cache.put("a", JudgeReply(text="7"))
    assert cache.get("a") == JudgeReply(text="7", cached=True)
    cache.close()


def test_an_entry_under_another_key_is_not_trusted(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    cache.put("a", JudgeReply(text="7"))
    connection = sqlite3.connect(cache.path)
    connection.execute("UPDATE replies SET digest = 'b'")
    connection.commit()
    connection.close()
    assert cache.get("b") is None
    cache.close()


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"not a database at all, and longer than one header of a hundred bytes would be." * 3)
    cache = ReplyCache(path)
    cache.put("a", JudgeReply(text="7"))
    assert cache.get("a") == JudgeReply(text="7", cached=True)
    assert (tmp_path / "replies.sqlite.damaged").read_bytes().startswith(b"not a database")
    cache.close()


def test_a_cache_that_cannot_be_written_says_so_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache = ReplyCache(tmp_path / "file" / "replies.sqlite")
    cache.put("a", JudgeReply(text="7"))
    assert cache.get("a") is None
    assert "cannot be used" in cache.problem
    cache.close()


def test_the_oldest_go_first(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite", max_entries=3)
    for number in range(5):
        cache.put(str(number), JudgeReply(text=str(number)))
    cache._trim()
    assert [number for number in range(5) if cache.get(str(number))] == [2, 3, 4]
    cache.close()


def test_many_threads_share_one_cache(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")

    def use(worker: int) -> None:
        for number in range(20):
            cache.put(f"{worker}/{number}", JudgeReply(text=f"{worker}/{number}"))

    threads = [threading.Thread(target=use, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in range(8):
        for number in range(20):
            found = cache.get(f"{worker}/{number}")
            assert found is not None
            assert found.text == f"{worker}/{number}"
    cache.close()


_WRITER = """
import sys
from pathlib import Path
from toishi.judging.base import JudgeReply
from toishi.judging.cache import ReplyCache
cache = ReplyCache(Path(sys.argv[1]))
for number in range(10_000_000):
    cache.put(f"{sys.argv[2]}/{number}", JudgeReply(text="x" * 50))
    print(number, flush=True)
"""


def test_two_processes_write_and_a_kill_loses_nothing_that_was_said_to_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name], stdout=subprocess.PIPE, env=os.environ)
        for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None
        for _ in range(100):
            writer.stdout.readline()
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
    counts = {}
    for name, writer in zip("ab", writers, strict=True):
        assert writer.stdout is not None
        rest = writer.stdout.read().split(b"\n")
        counts[name] = int(rest[-2]) if len(rest) > 1 and rest[-2].isdigit() else 99
        writer.wait()
        writer.stdout.close()
    cache = ReplyCache(path)
    for name, last in counts.items():
        for number in range(last + 1):
            assert cache.get(f"{name}/{number}") == JudgeReply(text="x" * 50, cached=True)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert json.loads(connection.execute("SELECT reply FROM replies LIMIT 1").fetchone()[0])["text"] == "x" * 50
    connection.close()
    cache.close()


@pytest.mark.parametrize(
    "row",
    [
        *("[]", "7", '"7"', "{}", "[" * 100_000, '{"text": "7", "finish_reason": "stop"}'),
        '{"text": "7", "finish_reason": "stop", "probabilities": null, "judge_version": 2}',
        '{"text": 7, "finish_reason": "stop", "probabilities": null}',
        '{"text": "7", "finish_reason": ["stop"], "probabilities": null}',
        '{"text": "7", "finish_reason": "stop", "probabilities": {"7": NaN}}',
        '{"text": "7", "finish_reason": "stop", "probabilities": {"7": "0.5"}}',
        '{"text": "7", "finish_reason": "stop", "probabilities": [0.5]}',
    ],
)
def test_a_row_in_another_form_is_not_there_though_its_checksum_is_right(tmp_path: Path, row: str) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    cache.put("a", JudgeReply(text="7"))
    connection = sqlite3.connect(cache.path)
    connection.execute("UPDATE replies SET reply = ?, sha256 = ?", (row, hashlib.sha256(f"a {row}".encode()).hexdigest()))
    connection.commit()
    connection.close()
    assert cache.get("a") is None
    cache.put("a", JudgeReply(text="7"))
    assert cache.get("a") == JudgeReply(text="7", cached=True)
    cache.close()


def test_text_that_is_no_text_is_one_damaged_entry(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    for name in "ab":
        cache.put(name, JudgeReply(text="7"))
    connection = sqlite3.connect(cache.path)
    connection.execute("UPDATE replies SET reply = CAST(x'fffe' AS TEXT) WHERE digest = 'a'")
    connection.commit()
    connection.close()
    assert (cache.get("a"), cache.get("b"), cache.problem) == (None, JudgeReply(text="7", cached=True), "")
    cache.close()


def test_a_cache_that_another_process_holds_is_left_alone_after_one_short_wait(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    cache.put("a", JudgeReply(text="7"))
    other = sqlite3.connect(cache.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    for number in range(50):
        cache.put(str(number), JudgeReply(text="7"))
    assert time.monotonic() - begun < 3 * BUSY_TIMEOUT_S
    assert "database is locked" in cache.problem
    assert cache.get("a") is None
    other.execute("ROLLBACK")
    other.close()
    cache.close()  # a new start
    assert cache.get("a") == JudgeReply(text="7", cached=True)
    assert cache.problem == ""
    cache.close()


def test_a_held_cache_holds_up_no_other_work_of_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the file is not on the judge's loop: what is handed to the loop meanwhile is done at once."""
    monkeypatch.setattr("toishi.judging.cache.BUSY_TIMEOUT_S", 2.0)
    path = tmp_path / "replies.sqlite"
    with judge_at(lambda asked: chat("7"), cache=str(path), concurrency=2) as (judge, _):
        judge.ask([question("first")])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        said: list[object] = []
        thread = threading.Thread(target=lambda: said.extend(judge.ask([question(str(number)) for number in range(40)])))
        begun, delays = time.monotonic(), []
        thread.start()
        while thread.is_alive():
            handed = time.monotonic()
            judge._open().run(asyncio.sleep(0))
            delays.append(time.monotonic() - handed)
            time.sleep(0.02)
        waited = time.monotonic() - begun
        other.close()
        assert said == [JudgeReply(text="7")] * 40
        assert 1.5 < waited < 8
        assert max(delays) < 1.2
        assert "database is locked" in judge.notes()[0]
