"""Programs in a sandbox: limits, clean-up, what they see."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.isolation.leftovers import belongings, settled, with_word
from toishi.errors import ConfigError
from toishi.isolation import levels
from toishi.isolation.levels import Sandbox, describe, find_sandbox
from toishi.isolation.limits import Limits, NotStarted
from toishi.isolation.programs import Outcome, Program, readable_places
from toishi.isolation.sandbox import Running, run_program

LIMITS = Limits(wall_s=20, cpu_s=20, memory_mb=256, disk_mb=4, processes=12, output_bytes=100_000)
SHORT = replace(LIMITS, wall_s=0.4)

OVER = {
    "endless loop": ("while True: pass", "took longer than 0.4 s"),
    "sleep": ("import time; time.sleep(600)", "took longer than 0.4 s"),
    "waits for more input": ("import time, sys; sys.stdin.read(); time.sleep(600)", "took longer than 0.4 s"),
    "memory of several": (
        "import os, time\nfor _ in range(2): os.fork()\nx = bytearray(b'1') * (120 << 20)\ntime.sleep(60)",
        "used more than 256 MB",
    ),
    "endless output": ("while True: print('x' * 10000)", "wrote more than 100,000 bytes"),
    "endless errors": ("import sys\nwhile True: sys.stderr.write('x' * 10000)", "wrote more than 100,000 bytes"),
    "2 GB of output": ("import os\nfor _ in range(2000): os.write(1, bytes(1 << 20))", "wrote more than 100,000 bytes"),
}
REFUSED = {
    "50 GB": ("bytearray(50 << 30)", "MemoryError"),
    "fork bomb": ("import os\nwhile True: os.fork()", "Error"),
    "threads": ("import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(9,)).start()", "Error"),
    "large file": ("f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))", "OSError"),
    "many descriptors": ("import os\nwhile True: os.dup(0)", "OSError: [Errno 24]"),
    "core file": ("import resource; assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0); raise OSError", "OSError"),
}


def run(code: str, sandbox: Sandbox, limits: Limits = LIMITS, stdin: str = "") -> Outcome:
    program = Program(command=(*sandbox.python, "program.py"), files={"program.py": code}, stdin=stdin)
    return run_program(program, limits=limits, kind=sandbox.kind)


@pytest.mark.parametrize("name", OVER)
def test_a_program_over_a_limit_is_killed(name: str, sandbox: Sandbox) -> None:
    code, reason = OVER[name]
    before, started = belongings(), time.monotonic()
    outcome = run(code, sandbox, SHORT if "took longer" in reason else LIMITS)
    assert (outcome.limit, outcome.exit_code) == (reason, None)
    assert len(outcome.stdout) <= LIMITS.output_bytes
    assert time.monotonic() - started < 8
    assert settled(before) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_the_system_refuses_what_a_limit_forbids(name: str, sandbox: Sandbox) -> None:
    code, error = REFUSED[name]
    before = belongings()
    outcome = run(code, sandbox, replace(LIMITS, wall_s=2))
    assert outcome.exit_code != 0
    assert outcome.limit is not None or error in outcome.stderr
    assert settled(before) == ""


def test_processor_time_is_a_limit_of_its_own(sandbox: Sandbox) -> None:
    outcome = run("while True: pass", sandbox, Limits(wall_s=60, cpu_s=1))
    assert (outcome.over, outcome.limit) == ("cpu", "used more than 1 s of processor time")


def test_input_output_errors_and_exit_code_come_through(sandbox: Sandbox) -> None:
    code = "import sys; print(sys.stdin.read()[::-1], end='é'); print('oh', file=sys.stderr); sys.exit(3)"
    outcome = run(code, sandbox, stdin="abc")
    assert (outcome.stdout, outcome.stderr, outcome.exit_code, outcome.limit) == ("cbaé", "oh\n", 3, None)


def test_a_signal_is_told_as_in_the_system(sandbox: Sandbox) -> None:
    assert run("import os; os.kill(os.getpid(), 6)", sandbox).exit_code == -6


def test_a_megabyte_goes_in_and_out(sandbox: Sandbox) -> None:
    limits = Limits(output_bytes=2_000_000)
    outcome = run("import sys; sys.stdout.write(sys.stdin.read())", sandbox, limits, stdin="0123456789" * 100_000)
    assert outcome.stdout == "0123456789" * 100_000


def test_a_program_that_does_not_read_its_input_is_no_problem(sandbox: Sandbox) -> None:
    assert run("print('done')", sandbox, stdin="x" * 3_000_000).stdout == "done\n"
    assert run("import os; os.close(0); print('done')", sandbox, stdin="x" * 3_000_000).stdout == "done\n"


def test_reading_past_the_end_of_the_input_ends(sandbox: Sandbox) -> None:
    assert "EOFError" in run("while True: input()", sandbox, stdin="1\n2\n").stderr


def test_environment_folder_and_arguments_say_nothing_of_the_outside(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    outcome = run("import os, sys; print(sorted(os.environ), os.listdir('.'), sys.argv, sys.path[0])", sandbox)
    assert "SECRET" not in outcome.stdout
    assert "['HOME', 'LANG', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH'] ['program.py'] ['program.py']" in outcome.stdout


def test_only_the_three_standard_descriptors_are_open(sandbox: Sandbox) -> None:
    code = "import os\nfor fd in range(40):\n  try: os.fstat(fd); print(fd)\n  except OSError: pass"
    assert run(code, sandbox).stdout.split() == ["0", "1", "2"]


def test_files_may_lie_in_folders_but_not_outside(sandbox: Sandbox) -> None:
    program = Program(command=("cat", "a/b.txt"), files={"a/b.txt": "here"})
    assert run_program(program, limits=LIMITS, kind=sandbox.kind).stdout == "here"
    for name in ("../x", "/etc/x", "a/../../x"):
        with pytest.raises(ValueError, match="leaves"):
            Program(command=("true",), files={name: ""})


def test_a_folder_that_the_program_locked_is_removed(sandbox: Sandbox) -> None:
    before = belongings()
    run("import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)", sandbox)
    assert settled(before) == ""


def test_folders_deeper_than_recursion_goes_are_removed() -> None:
    plain, before, mode = find_sandbox("plain"), belongings(), Path(tempfile.gettempdir()).stat().st_mode
    outcome = run("import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)", plain)
    assert (outcome.exit_code, settled(before)) == (0, "")
    assert Path(tempfile.gettempdir()).stat().st_mode == mode


def test_a_command_that_does_not_exist_is_no_outcome(sandbox: Sandbox) -> None:
    with pytest.raises(NotStarted, match="no-such-program"):
        run_program(Program(command=("no-such-program",)), limits=LIMITS, kind=sandbox.kind)


def test_a_place_that_is_named_can_be_read_but_not_written(namespaces: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("shown")
    tmp_path.chmod(0o777)
    code = f"print(open('{tmp_path}/data.txt').read())\ntry: open('{tmp_path}/new', 'w')\nexcept OSError as e: print(e.errno)"
    command = (*namespaces.python, "-c", code)
    hidden = run_program(Program(command=command), limits=LIMITS, kind=namespaces.kind)
    shown = run_program(Program(command=command, readable=(str(tmp_path),)), limits=LIMITS, kind=namespaces.kind)
    assert "FileNotFoundError" in hidden.stderr
    assert shown.stdout == "shown\n30\n"  # EROFS


def test_no_readable_place_lies_in_another() -> None:
    places = readable_places(("/usr/lib/python3",))
    assert "/usr/lib/python3" not in places
    assert "/usr/lib" not in readable_places(("/usr",))
    assert len(places) == len(set(places))


def test_many_threads_at_once(sandbox: Sandbox) -> None:
    before = belongings()
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda n: run(f"print({n} ** 2)", sandbox, Limits(wall_s=30)).stdout, range(16)))
    assert outcomes == [f"{n**2}\n" for n in range(16)]
    assert settled(before) == ""


def test_leaving_in_the_middle_kills_the_program(sandbox: Sandbox) -> None:
    before = belongings()
    with Running(Program(command=("sleep", "600")), limits=Limits(wall_s=600), kind=sandbox.kind):
        time.sleep(0.1)
    assert settled(before) == ""


def test_programs_end_with_toishi(sandbox: Sandbox) -> None:
    word = f"canary{os.getpid()}{threading.get_ident()}"
    code = f"""
from toishi.isolation.limits import Limits
from toishi.isolation.programs import Program
from toishi.isolation.sandbox import run_program
command = ("sh", "-c", "sleep 60; : {word}")
run_program(Program(command=command), limits=Limits(wall_s=60), kind={sandbox.kind!r})
"""
    folders = belongings().folders
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 10
    while len(with_word(word)) < 2 and time.monotonic() < deadline:  # the parent itself has the word too
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while (left := [*with_word(word), *(belongings().folders - folders)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def test_the_level_that_was_asked_for_is_never_replaced_by_a_weaker_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Outcome:
        raise NotStarted("unshare: Operation not permitted")

    monkeypatch.setattr(levels, "run_program", fails)
    find_sandbox.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"(?s)Operation not permitted.*bubblewrap.*sandbox: plain.*docs/sandbox.md"):
            find_sandbox("namespaces")
    finally:
        find_sandbox.cache_clear()


def test_what_holds_is_said(sandbox: Sandbox) -> None:
    text = " ".join(describe(sandbox.level, LIMITS))
    for held in ("20 s", "256 MB", "12 processes", "100,000 bytes", "4 MB", "not held"):
        assert held in text
    assert ("WITHOUT a sandbox" in text) == (sandbox.level == "plain")
