"""One process writes a run at a time.

Decisions:
1. The kernel's lock (flock) on `writer.lock` counts, not the file: a process that is killed lets go of it. The file says who
   holds it, and goes when the writer closes.
2. Where there is no flock, the file itself is the lock, and whoever finds one is told when to delete it.
3. Writers of one process share the lock: it is there against a second process, not against a second object.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from toishi.errors import RecordError
from toishi.record.files import write_failed

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = "writer.lock"


@dataclass(slots=True)
class _Held:
    """A lock of this process and how many writers share it."""

    process: int
    descriptor: int
    writers: int = 0


_HELD: dict[Path, _Held] = {}


def hold(folder: Path) -> Callable[[], None]:
    """Takes the lock of a run folder, making the folder if need be; the returned function lets go of it.

    Raises RecordError that names the process which holds it, or when the disk refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failed(folder, error) from error
    path = folder.resolve() / LOCK_FILE
    held = _HELD.get(path)
    if held is None or held.process != os.getpid():
        held = _HELD[path] = _Held(os.getpid(), _acquire(path))
    held.writers += 1
    return partial(_release, path, held)


def _release(path: Path, held: _Held) -> None:
    if held.process != os.getpid():  # a forked child lets go by ending
        return
    held.writers -= 1
    if held.writers == 0:
        _HELD.pop(path, None)
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(held.descriptor)


def _acquire(path: Path) -> int:
    """A descriptor of the locked file, with this process named in it."""
    try:
        while True:
            descriptor = _locked(path)
            if _is_still(path, descriptor):
                break
            os.close(descriptor)
        os.truncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    except OSError as error:
        raise write_failed(path, error) from error
    return descriptor


def _locked(path: Path) -> int:
    descriptor, is_new = _opened(path)
    try:
        if fcntl is None:
            raise OSError("no flock")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RecordError(
            f"{path.parent} is being written by {_holder(path)}. Two writers would mix their steps: let it finish or stop it "
            "(Ctrl-C ends after a step and saves), then try again"
        ) from None
    except OSError:
        if not is_new:
            os.close(descriptor)
            raise RecordError(
                f"{path.parent} is being written, or was left, by {_holder(path)}, and this file system has no locks that "
                f"would tell. When no such process runs any more, delete {path} and try again"
            ) from None
    return descriptor


def _opened(path: Path) -> tuple[int, bool]:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644), False


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the locked file still has its name: the writer before may have removed it in between."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
    return "another process"
