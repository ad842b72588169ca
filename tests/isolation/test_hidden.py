"""What of the machine a program does not get to: keys, memory that no limit counts, folders of projects, users of others."""

from __future__ import annotations

import grp
import os
import platform
import pwd
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from toishi.isolation import jail
from toishi.isolation.levels import Sandbox, find_sandbox
from toishi.isolation.limits import Limits
from toishi.isolation.programs import Program, readable_places
from toishi.isolation.sandbox import Running, run_program

KNOWN = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86_64")
CALLS = {"shmget": "29, 0, 4096, 0o1600", "semget": "64, 0, 1, 0o1600", "msgget": "68, 0, 0o1600",
         "add_key": "248, b'user', b'k', b'p', 1, -4", "request_key": "249, b'user', b'k', None, 0", "keyctl": "250, 0, -3, 0",
         "memfd_create": "319, b'x', 0", "x32 keyctl": "0x40000000 | 250, 0, -3, 0"}  # fmt: skip


def printed(code: str, sandbox: Sandbox) -> str:
    outcome = run_program(Program(command=(*sandbox.python, "-c", code)), limits=Limits(), kind=sandbox.kind)
    return outcome.stdout or outcome.stderr


@KNOWN
@pytest.mark.parametrize("call", CALLS)
def test_calls_that_leave_something_behind_are_refused(call: str, best: Sandbox) -> None:
    code = f"import ctypes\nL = ctypes.CDLL(None, use_errno=True)\nprint(L.syscall({CALLS[call]}), ctypes.get_errno())"
    for sandbox in {best, find_sandbox("plain")}:
        assert printed(code, sandbox) == "-1 38\n"  # ENOSYS


def test_other_calls_are_not_refused(best: Sandbox) -> None:
    code = "import multiprocessing, socket, threading, tempfile\nsocket.socketpair(); threading.Thread(target=print).start()\n"
    assert printed(code + "tempfile.TemporaryFile(); multiprocessing.Lock(); print('all')", best).split() == ["all"]


@KNOWN
def test_the_filter_holds_for_what_is_started_too() -> None:
    code = "import os, subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import os; os.memfd_create(\"x\")'], "
    assert "38" in printed(code + "capture_output=True, text=True).stderr)", find_sandbox("plain"))


def test_no_whole_folder_of_a_system_or_an_environment_is_shown() -> None:
    places = readable_places()
    for place in (Path("/usr"), Path("/usr/local"), Path(sys.prefix), Path.cwd(), Path("/usr/src"), Path.home(), Path("/")):
        assert str(place) not in places
        assert not any(place.is_relative_to(shown) for shown in places if place != Path("/")), place


def test_what_python_needs_is_shown(namespaces: Sandbox) -> None:
    code = "import ssl, ctypes, sqlite3, json, pydantic, os\nprint(os.path.exists('/usr/src'), os.path.exists('/usr/bin/env'))"
    assert printed(code, namespaces) == "False True\n"


def test_a_user_with_a_process_or_a_name_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, first = SimpleNamespace(pw_uid=41_001), 41_000
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "getpid", lambda: first - jail.FIRST_USER)
    monkeypatch.setattr(os, "urandom", lambda _: (1_002).to_bytes(4, "big"))
    monkeypatch.setattr(grp, "getgrall", list)
    monkeypatch.setattr(pwd, "getpwall", lambda: [named])
    assert jail._plain_user("plain") == first
    named.pw_uid = first
    assert jail._plain_user("plain") == 41_002
    assert jail._plain_user("namespaces") is None


def test_where_results_are_read_no_other_process_can_write(best: Sandbox) -> None:
    given = [os.pipe(), os.pipe()]
    program = Program(command=("sleep", "5"))
    with Running(program, limits=Limits(), kind=best.kind, stdin=given[0][0], stdout=given[1][1]) as running:
        ends = (running._status_end, running._errors_end.fileno() if running._errors_end else -1)
        for end in ends:
            with pytest.raises(OSError, match=r"\[Errno 6\]"):  # ENXIO
                os.open(f"/proc/self/fd/{end}", os.O_WRONLY | os.O_NONBLOCK)
    for end in (given[0][1], given[1][0]):
        os.close(end)
