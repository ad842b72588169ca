"""The pool where its surroundings are odd: ends collected elsewhere, module paths, arguments that are no JSON, old limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toishi.isolation.limits import Killed, Limits, NotStarted, Raised
from toishi.isolation.pool import Pool

QUICK = Limits(wall_s=5, cpu_s=30, memory_mb=512)
WORK = "tests.isolation.work"


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(1)
    yield made
    made.close()


def pid_of(pool: Pool) -> int:
    return int(pool.call_each(f"{WORK}:seen", [0], limits=QUICK)[0]["pid"])


@pytest.mark.parametrize("small", [Limits(memory_mb=40), Limits(cpu_s=0.01)])
def test_the_limits_of_a_call_do_not_hold_for_the_next_import(pool: Pool, tmp_path: Path, small: Limits) -> None:
    (tmp_path / "hungry_module.py").write_text(
        "import time\nheld = bytearray(200 << 20)\nend = time.process_time() + 1.2\n"
        "while time.process_time() < end: pass\ndef double(number): return 2 * number\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        assert pool.call_each("builtins:abs", [-1], limits=small) == [1]
        pid = pid_of(pool)
        assert pool.call_each("builtins:abs", [-1], limits=small) == [1]
        assert pool.call_each("hungry_module:double", [4], limits=Limits()) == [8]
    finally:
        sys.path.remove(str(tmp_path))
    assert pid_of(pool) == pid


def test_a_child_that_was_reaped_elsewhere_is_replaced(pool: Pool) -> None:
    pid = pid_of(pool)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert pool.call_each(f"{WORK}:square", [3], limits=QUICK) == [9]
    assert pid_of(pool) != pid


def test_where_ends_of_children_are_ignored_calls_work_and_deaths_are_said(pool: Pool) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pid = pid_of(pool)
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.01)
        answers = pool.call_each(f"{WORK}:poison", ["exit", "raises"], limits=QUICK)
        pool.close()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert isinstance(answers[0], Killed)
    assert str(answers[0]).startswith("died, and how is not known")
    assert isinstance(answers[1], Raised)


def _circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


@pytest.mark.parametrize("odd", [lambda: {1}, object, _circle, _deep, lambda: 10**5000, lambda: {(1, 2): 3}])
def test_an_argument_that_is_no_json_spoils_only_itself(pool: Pool, odd: Callable[[], Any]) -> None:
    pid = pid_of(pool)
    first, refused, last = pool.call_each(f"{WORK}:identity", [1, odd(), 3], limits=QUICK)
    assert (first, last) == (1, 3)
    assert isinstance(refused, Raised)
    assert str(refused).startswith("the argument cannot be sent: ")
    assert pid_of(pool) == pid


def test_modules_are_found_as_this_process_finds_them(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a colon is one folder; a Path among the places is passed over, as by Python's own import."""
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "behind_a_colon.py").write_text("def double(number): return 2 * number\n")
    assert pool.call_each("builtins:abs", [-1], limits=QUICK) == [1]  # this child was started before the places changed
    monkeypatch.setattr(sys, "path", [tmp_path, "", str(tmp_path / "a:b"), *sys.path])
    assert pool.call_each("behind_a_colon:double", [4], limits=QUICK) == [8]


def test_a_working_folder_that_is_gone_harms_nothing(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2]), "", *sys.path])
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert pool.call_each(f"{WORK}:square", [4], limits=QUICK) == [16]


@pytest.mark.parametrize("program", [None, ""])
def test_a_python_that_does_not_know_its_program_is_said(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, program: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(NotStarted, match=r"sys\.executable is not set"):
        pool.call_each(f"{WORK}:square", [4], limits=QUICK)


def test_a_child_dies_though_its_parent_was_killed_during_an_import(tmp_path: Path) -> None:
    """The import asks for 9 ** 9 ** 9, which never gives the interpreter back: only the alarm of the system ends it."""
    (tmp_path / "endless_module.py").write_text(
        "import os\nopen(__file__ + '.pid', 'w').write(str(os.getpid()))\n9 ** 9 ** int('9')\n"
    )
    code = (
        "import sys\nfrom toishi.isolation import pool, process\nfrom toishi.isolation.limits import Limits\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\nprocess.START_LIMIT_S = 1.0\n"
        "import os, threading, time\n"
        "threading.Timer(0.7, lambda: os.kill(os.getpid(), 9)).start()\n"
        "pool.call_each('endless_module:f', [1], limits=Limits())\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=60, check=False)
    assert finished.returncode == -signal.SIGKILL
    pid = (tmp_path / "endless_module.py.pid").read_text()
    deadline = time.monotonic() + 8
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
