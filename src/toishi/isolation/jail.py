"""The program that stands between toishi and a program that a model wrote: it takes away what that one may not have, starts
it, waits for it, and reports on a pipe that it cannot reach.

Its kind is `namespaces` (makes its own), `inside` (bubblewrap has made them) or `plain` (limits only). The spec is JSON; so are
the lines of the status: {"error": words} if the program could not be started; {"started": true} and later
{"exit": code, "limit": name, ...} if it could.

Decisions:
1. It is a program of its own that imports nothing of toishi but its two neighbours: it starts in some 20 ms.
2. It cannot be traced, and its end of the status pipe is closed in the program.
3. The first process of a process namespace takes everything in it along when it ends. Without one, orphans become children of
   this process (Linux), which kills until none is left.
"""

from __future__ import annotations

import grp
import json
import math
import os
import pwd
import resource
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from toishi.isolation import namespaces, syscalls

POLL_S = 0.002
SWEEP_LIMIT_S = 5.0
FIRST_USER, USERS = 40_000, 20_000  # below 65,536: containers often map no more
ON_LINUX = sys.platform == "linux"


def main(kind: str, spec_fd: int, status_fd: int) -> None:
    """Runs the program of the spec and writes the status. Does not return."""
    with os.fdopen(spec_fd, "rb") as spec_file:
        spec = json.load(spec_file)
    os.set_inheritable(status_fd, False)
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        user = namespaces.enter(spec, status_fd) if kind == "namespaces" else _plain_user(kind)
        if ON_LINUX:
            syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        if ON_LINUX and kind == "plain":
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        _write_files(spec["files"], spec["folder"], user)
        report = _run(spec, user, kind, status_fd)
    except Exception as error:
        report = {"error": f"{type(error).__name__}: {error}"}
    _say(status_fd, report)
    os._exit(0)


def _say(status_fd: int, line: dict[str, Any]) -> None:
    os.write(status_fd, json.dumps(line).encode() + b"\n")


def _plain_user(kind: str) -> int | None:
    """A user of no one's for this run, if we are root and may become another: without a name and without a process."""
    if kind != "plain" or os.getuid() != 0:
        return None
    taken = {user.pw_uid for user in pwd.getpwall()} | {group.gr_gid for group in grp.getgrall()}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            taken.add(folder.stat().st_uid)
    number = os.getpid()  # other runs begin elsewhere
    for _ in range(USERS):
        user = FIRST_USER + number % USERS
        if user not in taken:
            return user
        number = int.from_bytes(os.urandom(4), "big")
    raise OSError(f"no free user found between {FIRST_USER} and {FIRST_USER + USERS}")


def _write_files(files: dict[str, str], folder: str, user: int | None) -> None:
    Path(folder).mkdir(exist_ok=True)
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
    if user is not None:
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, user, user)


def _run(spec: dict[str, Any], user: int | None, kind: str, status_fd: int) -> dict[str, Any]:
    stopped: list[int] = []
    if kind == "plain":  # the first process of namespaces listens to no signal: the program could send it
        signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    limits = _resource_limits(spec, kind)
    failed, failing = os.pipe()
    start = time.monotonic()
    program = os.fork()
    if program == 0:
        _become(spec, user, limits, failing)
    os.close(failing)
    os.closerange(0, 3)  # the program's ends: this process must not hold them open
    with os.fdopen(failed, "rb") as pipe:
        problem = pipe.read()
    if not problem:
        _say(status_fd, {"started": True})
    status, usage = _wait(program, start + spec["wall_s"], stopped)
    wall_s = time.monotonic() - start
    if kind == "plain":
        _sweep(program, user)
        with suppress(RecursionError):
            shutil.rmtree(spec["folder"], ignore_errors=True)  # toishi does it too, unless it was killed
    if problem:
        return {"error": problem.decode(errors="replace")}
    code = None if status is None else os.waitstatus_to_exitcode(status)
    limit = "wall" if status is None else {-signal.SIGXCPU: "cpu", -signal.SIGXFSZ: "disk"}.get(code or 0)
    cpu_s = usage.ru_utime + usage.ru_stime if usage else None
    return {"exit": code, "limit": limit, "wall_s": wall_s, "cpu_s": cpu_s}


def _resource_limits(spec: dict[str, Any], kind: str) -> dict[int, int]:
    limits = {
        resource.RLIMIT_CPU: math.ceil(spec["cpu_s"]),
        resource.RLIMIT_AS: spec["memory_mb"] << 20,
        resource.RLIMIT_FSIZE: spec["disk_mb"] << 20,
        resource.RLIMIT_NOFILE: spec["open_files"],
        resource.RLIMIT_CORE: 0,
    }
    others = 0 if kind != "plain" or os.getuid() == 0 else _tasks_of(os.getuid())
    return limits | {resource.RLIMIT_NPROC: spec["processes"] + others}


def _tasks_of(user: int) -> int:
    """Processes and threads that the user has already: without namespaces the limit counts them."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            total += len(os.listdir(folder / "task")) if folder.stat().st_uid == user else 0
        except OSError:
            continue
    return total


def _become(spec: dict[str, Any], user: int | None, limits: dict[int, int], failing: int) -> NoReturn:
    """The forked process turns into the program, or writes why it could not."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(spec["folder"])
        for kind, value in limits.items():
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            more = 1 if kind == resource.RLIMIT_CPU and value != hard else 0  # the signal at the first says which limit it was
            resource.setrlimit(kind, (value, value + more))
        if ON_LINUX:
            _drop_rights(user)
        os.execvpe(spec["command"][0], spec["command"], spec["environment"])
    except BaseException as error:
        os.write(failing, f"{spec['command'][0]}: {error}".encode())
    os._exit(127)


def _drop_rights(user: int | None) -> None:
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    syscalls.drop_capabilities()
    syscalls.join_new_keyring()
    syscalls.refuse_calls()


def _wait(program: int, deadline: float, stopped: list[int]) -> tuple[int | None, resource.struct_rusage | None]:
    """(status, usage) of the program, or (None, None) when its time is over or the parent asked to stop."""
    while time.monotonic() < deadline and not stopped:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == program:
            return status, usage
        if pid == 0:
            time.sleep(POLL_S)
    return None, None


def _sweep(program: int, user: int | None) -> None:
    """Kills what is left of the run, until no child is left or the time for it is over."""
    deadline = time.monotonic() + SWEEP_LIMIT_S
    while time.monotonic() < deadline:
        _kill_all(program, user)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(POLL_S)


def _kill_all(program: int, user: int | None) -> None:
    """Once: everything of the run's own user; without one, the program's group and what descends from this process."""
    if user is not None:
        killer = os.fork()
        if killer == 0:
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
            os._exit(0)
        os.waitpid(killer, 0)
        return
    for kill, number in ((os.killpg, program), *((os.kill, pid) for pid in _descendants(os.getpid()))):
        with suppress(ProcessLookupError, PermissionError):
            kill(number, signal.SIGKILL)


def _descendants(ancestor: int) -> list[int]:
    """All processes below `ancestor`; [] where there is no /proc."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
