"""Which sandbox this machine has, and in words what it holds.

Decisions:
1. `namespaces` is the level to have. `plain` is never taken by itself: whoever wants it has to say so.
2. Availability is found by running a program, not by reading version numbers. Bubblewrap comes first, since more systems allow
   it; but not for root, whom it leaves root: our own namespaces become another user.
3. At the plain level and as root, a program becomes a user of its own, who may not reach a Python below /root; the system's
   Python runs it then.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from typing import Literal

from toishi.errors import ConfigError
from toishi.isolation.limits import Limits, NotStarted
from toishi.isolation.programs import Kind, Program
from toishi.isolation.sandbox import run_program

Level = Literal["namespaces", "plain"]
_PYTHON_OPTIONS = ("-I", "-B", "-X", "utf8")
_PROBE_LIMITS = Limits(wall_s=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A sandbox that works here.

    python  the command that starts Python in it, without anyone's settings
    """

    level: Level
    kind: Kind
    python: tuple[str, ...]


@cache
def find_sandbox(level: Level) -> Sandbox:
    """The sandbox of this level. Raises ConfigError, with what to do, where there is none.

    >>> find_sandbox("plain").kind
    'plain'
    """
    tried = []
    for kind in _kinds(level):
        for python in _pythons(kind):
            try:
                outcome = run_program(Program(command=(*python, "-c", "print(6 * 7)")), limits=_PROBE_LIMITS, kind=kind)
            except NotStarted as error:
                tried.append(f"{kind}: {error}")
                continue
            if outcome.stdout == "42\n":
                return Sandbox(level=level, kind=kind, python=python)
            tried.append(f"{kind}: {outcome.limit or outcome.stderr.strip()[-300:] or f'exit code {outcome.exit_code}'}")
    raise ConfigError(_missing(level, tried))


def describe(level: Level, limits: Limits) -> tuple[str, ...]:
    """What is held on this machine, and what is not, one sentence each. Raises ConfigError where the level is not available."""
    sandbox = find_sandbox(level)
    held = (
        f"each program: {limits.wall_s:g} s, {limits.cpu_s:g} s of processor time, {limits.memory_mb:,} MB of memory, "
        f"{limits.processes} processes, {limits.open_files} open files, {limits.output_bytes:,} bytes of output"
    )
    if level == "namespaces":
        how = "namespaces of our own" if sandbox.kind == "namespaces" else "bubblewrap"
        return (
            f"programs run in a sandbox ({how}): no network, no files but the system's programs, "
            f"{limits.disk_mb:,} MB to write, no sight of other processes, nothing survives",
            held,
            "not held: a flaw in the kernel itself; the machine's processors and caches are shared",
        )
    other = (
        "" if sandbox.python[0] == sys.executable else f", by {sandbox.python[0]}, since their user cannot read toishi's Python"
    )
    return (
        f"programs run with limits only, WITHOUT a sandbox (sandbox: plain){other}",
        held + f"; {limits.disk_mb:,} MB for each file, no limit for all of them",
        f"not held: the network, reading {_readable_in_plain()}, and more: docs/sandbox.md lists what gets through",
    )


def _readable_in_plain() -> str:
    return "what every user may read" if os.getuid() == 0 else "and changing all files of yours, killing processes of yours"


def _kinds(level: Level) -> tuple[Kind, ...]:
    if level == "plain":
        return ("plain",)
    if sys.platform != "linux":
        return ()
    return ("bubblewrap", "namespaces") if os.getuid() != 0 and shutil.which("bwrap") else ("namespaces",)


def _pythons(kind: Kind) -> list[tuple[str, ...]]:
    system = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    others = [system] if kind == "plain" and os.getuid() == 0 and system else []
    return [(python, *_PYTHON_OPTIONS) for python in (sys.executable, *others)]


def _missing(level: Level, tried: list[str]) -> str:
    found = "\n".join(f"  {line}" for line in tried) or f"  {sys.platform} has no namespaces"
    if level == "plain":
        return f"sandbox: plain: no program can be run here:\n{found}"
    return (
        f"sandbox: namespaces: this machine does not let programs run in namespaces:\n{found}\n"
        "Install bubblewrap, allow unprivileged user namespaces (in a container: --security-opt seccomp=unconfined), or accept "
        "limits without a sandbox with sandbox: plain; docs/sandbox.md says what those do not stop"
    )
