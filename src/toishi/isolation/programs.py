"""What a sandbox is given and what it says afterwards, and the command line that starts each kind of sandbox.

Decisions:
1. A program sees the system's programs and libraries, Python as toishi runs it, and what its owner names; read-only. It sees no
   home folder, no data, no code of the project. Of /usr and of a Python's folder it sees only what belongs to a system or to
   a Python: projects lie in /usr/src/app, or in the folder of their environment.
2. Its environment is empty but for a path, a language, and one thread for each numerical library.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from toishi.isolation.limits import Limits

Kind = Literal["namespaces", "bubblewrap", "plain"]
"""How a program is held: by namespaces of our own, by bubblewrap's, or by limits alone."""
BOX = "/box/work"
_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec")
SYSTEM_PLACES = (
    *(f"{folder}/{part}" for folder in ("/usr", "", "/usr/local") for part in _PARTS),
    *("/usr/include", "/usr/share", "/nix/store", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"),
)
_BOOT = (
    "import sys, types; package = types.ModuleType('toishi'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['toishi'] = package; "
    "from toishi.isolation.jail import main; main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run.

    command   the program and its arguments; it starts in a folder of its own that holds `files`
    files     relative name -> text
    readable  places (absolute paths) that it may read besides the system's programs and libraries
    """

    command: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    readable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.files:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"the file name {name!r} leaves the program's folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended.

    exit_code  as the system gives it, or minus the number of the signal that ended it; None if it was killed at a limit
    stdout     what it wrote, at most `limits.output_bytes`
    stderr     the end of what it wrote there
    limit      the limit that it went over, in words, or None
    over       which one: "wall", "cpu", "memory", "disk", "output"; "watcher" if the process that watched it was killed; or ""
    """

    exit_code: int | None
    stdout: str
    stderr: str
    limit: str | None
    over: str
    wall_s: float
    cpu_s: float | None


def readable_places(extra: tuple[str, ...] = ()) -> list[str]:
    """The places that a program may read, none inside another; links are listed as such.

    >>> "/usr/bin" in readable_places(), "/usr" in readable_places()
    (True, False)
    """
    wanted = [*(os.path.abspath(place) for place in extra), *SYSTEM_PLACES, *_python_places()]
    found: list[str] = []
    for place in sorted(filter(os.path.lexists, dict.fromkeys(wanted)), key=len):
        if not any(Path(place).is_relative_to(other) for other in found if not os.path.islink(other)):
            found.append(place)
    return found


def _python_places() -> list[str]:
    """Where Python and its packages lie; of an environment's own folder only these."""
    paths = sysconfig.get_paths()
    own = [*(paths[name] for name in ("scripts", "stdlib", "platstdlib", "purelib", "platlib")), f"{sys.prefix}/pyvenv.cfg"]
    own += [f"{sys.base_prefix}/bin", f"{sys.base_prefix}/lib", os.path.dirname(sys.executable)]
    places = [os.path.abspath(place) for place in own]
    return [*places, *(os.path.realpath(place) for place in places), os.path.dirname(os.path.realpath(sys.executable))]


@contextmanager
def spec_file(program: Program, limits: Limits, folder: str) -> Iterator[IO[bytes]]:
    """An open file without a name, which tells the jail what to run."""
    spec = {
        "command": program.command,
        "files": dict(program.files),
        "folder": folder,
        "readable": readable_places(program.readable),
        "environment": {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": folder,
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
    }
    spec |= {name: getattr(limits, name) for name in ("wall_s", "cpu_s", "memory_mb", "processes", "open_files", "disk_mb")}
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(spec).encode())
        file.flush()
        file.seek(0)
        yield file


def jail_command(kind: Kind, program: Program, limits: Limits, spec_fd: int, status_fd: int) -> list[str]:
    """The command line that starts the jail for a sandbox of this kind."""
    package = str(Path(__file__).parents[1])
    python = [sys.executable, "-I", "-S", "-c", _BOOT]
    if kind != "bubblewrap":
        return [*python, package, kind, str(spec_fd), str(status_fd)]
    wrap = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
    wrap += ["--die-with-parent", "--as-pid-1", "--new-session"]
    wrap += ["--clearenv", "--dev", "/dev", "--size", str(limits.disk_mb << 20), "--tmpfs", "/box"]
    wrap += ["--size", str(limits.disk_mb << 20), "--tmpfs", "/tmp"]
    for place in readable_places(program.readable):
        is_link = os.path.islink(place)
        wrap += ["--symlink", os.readlink(place), place] if is_link else ["--ro-bind", place, place]
    wrap += ["--ro-bind", str(Path(__file__).parent), "/jail/isolation", "--chdir", "/"]
    return [*wrap, *python, "/jail", "inside", str(spec_fd), str(status_fd)]
