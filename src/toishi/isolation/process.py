"""One child process of the pool: how it is started, asked, and ended.

Decisions:
1. A child is started as a new program with a clean environment, never forked from a process that holds a model. It is the
   leader of its own session, and is killed and reaped with its whole group when a call goes over a limit.
2. Time is kept by the parent, on the socket, without signals: so it works in every thread, and an integer power that holds the
   child's interpreter lock for ever holds nothing else.
3. A child that something else has reaped (SIGCHLD ignored, a `waitpid` for any child) is dead, and its number may by now belong
   to another process: it is not killed by its number again.
4. The places to find modules are handed over as a list, not as PYTHONPATH, where a folder with a colon in its name is two; and
   again with the modules to import, as they may have changed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from toishi.isolation.child import frame_of, receive_bytes
from toishi.isolation.limits import Killed, Limits, NotStarted, Raised

START_LIMIT_S = 60.0
END_LIMIT_S = 1.0
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from toishi.isolation.child import main
main(int(sys.argv[2]))
"""


class Child:
    """One child process and the socket to it. Raises NotStarted when there can be none."""

    def __init__(self) -> None:
        if not sys.executable:
            raise NotStarted(
                "a child process for killable work could not be started: sys.executable is not set, so the program of this "
                "Python is not known. Set it before toishi is used"
            )
        try:
            self._socket, self._process = _started()
        except OSError as error:
            raise NotStarted(f"a child process for killable work could not be started: {error}") from error
        self._ending = threading.RLock()
        self._prepared: set[str] = set()
        self._is_lost = False
        self.is_alive = True

    @property
    def has_ended(self) -> bool:
        """Whether the process is dead; it is not reaped by asking, so that its group can still be killed by its number."""
        with self._ending:  # another thread may be reaping it
            if self._process.returncode is not None:
                return True
            try:
                return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            except ChildProcessError:
                self._is_lost = True
                return True

    def prepare(self, modules: Sequence[str]) -> None:
        """Imports `modules` in the child. Raises Raised if one cannot be imported, NotStarted if the child does not start."""
        missing = [name for name in modules if name not in self._prepared]
        if not missing:
            return
        try:
            self._ask(
                frame_of({"prepare": missing, "places": _places(), "wall_s": START_LIMIT_S}), Limits(wall_s=START_LIMIT_S)
            )
        except Killed as error:
            raise NotStarted(f"a child process for killable work did not start: {error}") from error
        self._prepared.update(missing)

    def call(self, function: str, argument: Any, limits: Limits) -> Any:
        """The answer. Raises Killed (and the child is gone) or Raised (and it goes on; also for no JSON as argument)."""
        message = {
            "function": function,
            "argument": argument,
            "wall_s": limits.wall_s,
            "cpu_s": limits.cpu_s,
            "memory_mb": limits.memory_mb,
        }
        try:
            frame = frame_of(message)
        except (TypeError, ValueError, RecursionError) as error:
            raise Raised(f"the argument cannot be sent: {type(error).__name__}: {error}") from None
        return self._ask(frame, limits)

    def _ask(self, frame: bytes, limits: Limits) -> Any:
        deadline = time.monotonic() + limits.wall_s
        try:
            self._socket.settimeout(limits.wall_s)
            self._socket.sendall(frame)
            length = int.from_bytes(self._receive(4, deadline), "big")
            if length > limits.output_bytes:
                raise self._killed(f"answered with more than {limits.output_bytes:,} bytes")
            body = self._receive(length, deadline)
        except TimeoutError:
            raise self._killed(f"took longer than {limits.wall_s:g} s") from None
        except (EOFError, ConnectionError):
            raise self._died(limits) from None
        return self._read(body, limits)

    def _read(self, body: bytes, limits: Limits) -> Any:
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError) as error:  # too deep, or an integer of too many digits
            raise Raised(f"the answer cannot be read: {type(error).__name__}: {error}") from None
        if "memory" in reply:
            raise self._killed(f"used more than {limits.memory_mb:,} MB")
        if "raised" in reply:
            raise Raised(reply["raised"])
        return reply["answer"]

    def _receive(self, count: int, deadline: float) -> bytes:
        self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
        return receive_bytes(self._socket, count)

    def _killed(self, reason: str) -> Killed:
        self.kill()
        return Killed(reason)

    def _died(self, limits: Limits) -> Killed:
        deadline = time.monotonic() + END_LIMIT_S
        while not self.has_ended and time.monotonic() < deadline:  # on its way out: let its own end be seen
            time.sleep(0.001)
        self.kill()
        code = self._process.returncode
        if self._is_lost:
            return Killed("died, and how is not known: something else in this process collects the ends of children")
        if code == -signal.SIGXCPU:
            return Killed(f"used more than {limits.cpu_s:g} s of processor time")
        if code == -signal.SIGALRM:
            return Killed(f"took longer than {limits.wall_s:g} s")
        if code < 0:
            return Killed(f"died: signal {-code} ({_signal_name(-code)})")
        return Killed(f"ended itself with exit code {code}")

    def kill(self) -> None:
        """Kills the child with its process group, reaps it, and lets go of the socket."""
        self.is_alive = False
        self.end()
        self._socket.close()

    def end(self) -> None:
        """Kills and reaps only, so that the thread that waits for its answer learns of it."""
        with self._ending:
            if self._process.returncode is None:
                _ = self.has_ended  # finds out whether it is lost; if not, its number cannot belong to another process
                if not self._is_lost:
                    with suppress(ProcessLookupError):
                        os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def forget(self) -> None:
        """In a forked process: closes the copy of the socket; the child stays the parent's."""
        self._socket.close()
        self._process.returncode = 0


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A new child and our end of the socket to it. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, json.dumps(_places()), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_clean_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
    return ours, process


def _places() -> list[str]:
    """Where this process finds modules. What is no text (a Path) is passed over, as Python's own import does."""
    try:
        here = [os.getcwd()]
    except FileNotFoundError:  # the working folder was deleted: nothing can be found there
        here = []
    return [place for entry in sys.path if isinstance(entry, str) for place in ([entry] if entry else here)]


def _clean_environment() -> dict[str, str]:
    """Where to find programs, one thread a child, and nothing else."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return kept | {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last have no names
        return "a real-time signal"
