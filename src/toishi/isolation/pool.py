"""Calls that can be killed: a function runs in a warm child process under hard limits, from any thread.

Decisions:
1. A child is started as a new program with a clean environment, never forked from a process that holds a model. It is the
   leader of its own session, and is killed and reaped with its whole group when a call goes over a limit.
2. Time is kept by the parent, on the socket, without signals: so it works in every thread, and an integer power that holds the
   child's interpreter lock for ever holds nothing else.
3. A killed child is replaced when the next call needs one. Importing (sympy) is done before a call's clock starts.
4. After a fork of the parent, the new process starts children of its own and leaves the old ones alone.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from toishi.isolation.child import receive_bytes, send_frame
from toishi.isolation.limits import Killed, Limits, NotStarted, Raised

START_LIMIT_S = 60.0
END_LIMIT_S = 1.0
DEFAULT_LIMITS = Limits()


def call_killable(function: str, argument: Any, *, limits: Limits = DEFAULT_LIMITS, preload: Sequence[str] = ()) -> Any:
    """`function` ("package.module:name") called in a child with `argument`, both ways as JSON.

    preload  modules to import before the clock starts, besides the function's own
    Raises Killed when a limit was hit or the child died, Raised when the function raised, NotStarted when there is no child.

    >>> call_killable("math:factorial", 5)
    120
    >>> call_killable("time:sleep", 60, limits=Limits(wall_s=0.1))
    Traceback (most recent call last):
    ...
    toishi.isolation.limits.Killed: took longer than 0.1 s
    >>> call_killable("math:factorial", -1)
    Traceback (most recent call last):
    ...
    toishi.isolation.limits.Raised: ValueError: factorial() not defined for negative values
    """
    (answer,) = call_each(function, [argument], limits=limits, preload=preload)
    if isinstance(answer, Killed | Raised):
        raise answer
    return answer


def call_each(
    function: str, arguments: Sequence[Any], *, limits: Limits = DEFAULT_LIMITS, preload: Sequence[str] = ()
) -> list[Any]:
    """One answer for each argument, in order; a Killed or Raised stands where one has none, the others are not touched by it.

    The limits are those of one argument. One child serves all of them, and a new one goes on after a kill.

    >>> call_each("math:factorial", [3, -1, 4])
    [6, Raised('ValueError: factorial() not defined for negative values'), 24]
    """
    return shared_pool().call_each(function, arguments, limits=limits, preload=preload)


class Pool:
    """At most `size` children, started when needed and kept for later calls."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._reset()
        _POOLS.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.size)
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    def call_each(self, function: str, arguments: Sequence[Any], *, limits: Limits, preload: Sequence[str] = ()) -> list[Any]:
        """As the function `call_each`."""
        modules = (*preload, function.partition(":")[0])
        answers: list[Any] = []
        while len(answers) < len(arguments):
            with self._child(modules) as child:
                for argument in arguments[len(answers) :]:
                    try:
                        answers.append(child.call(function, argument, limits))
                    except Raised as error:
                        answers.append(error)
                    except Killed as error:
                        answers.append(error)
                        break
        return answers

    def close(self) -> None:
        """Kills and reaps every child; a later call starts new ones."""
        with self._lock:
            idle, busy = list(self._idle), self._all.difference(self._idle)
            self._all.clear()
            self._idle.clear()
        for child in idle:
            child.kill()
        for child in busy:
            child.end()

    def forget(self) -> None:
        """In a forked process: lets go of the children, which belong to the parent."""
        for child in self._all:
            child.forget()
        self._reset()

    @contextmanager
    def _child(self, modules: Sequence[str]) -> Iterator[_Child]:
        """A child that has imported `modules`; it is kept if it is alive and idle at the end."""
        with self._slots:
            with self._lock:
                child = self._idle.pop() if self._idle else _Child()
                if child.has_ended:  # it was killed from outside while idle
                    self._all.discard(child)
                    child.kill()
                    child = _Child()
                self._all.add(child)
            try:
                child.prepare(modules)
                yield child
            except BaseException:  # also a KeyboardInterrupt in the middle of a frame
                child.kill()
                raise
            finally:
                with self._lock:
                    if child.is_alive and child in self._all:
                        self._idle.append(child)
                    else:
                        self._all.discard(child)


class _Child:
    """One child process and the socket to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "toishi.isolation.child", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_clean_environment(),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise NotStarted(f"a child process for killable work could not be started: {error}") from error
        self._socket = ours
        self._ending = threading.Lock()
        self._prepared: set[str] = set()
        self.is_alive = True

    @property
    def has_ended(self) -> bool:
        """Whether the process is dead; it is not reaped by asking, so that its group can still be killed by its number."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self._process.returncode is not None or os.waitid(os.P_PID, self._process.pid, options) is not None

    def prepare(self, modules: Sequence[str]) -> None:
        """Imports `modules` in the child. Raises Raised if one cannot be imported, NotStarted if the child does not start."""
        missing = [name for name in modules if name not in self._prepared]
        if not missing:
            return
        try:
            self._ask({"prepare": missing}, Limits(wall_s=START_LIMIT_S))
        except Killed as error:
            raise NotStarted(f"a child process for killable work did not start: {error}") from error
        self._prepared.update(missing)

    def call(self, function: str, argument: Any, limits: Limits) -> Any:
        """The answer. Raises Killed (and the child is gone) or Raised (and it goes on)."""
        message = {
            "function": function,
            "argument": argument,
            "wall_s": limits.wall_s,
            "cpu_s": limits.cpu_s,
            "memory_mb": limits.memory_mb,
        }
        return self._ask(message, limits)

    def _ask(self, message: Any, limits: Limits) -> Any:
        deadline = time.monotonic() + limits.wall_s
        try:
            self._socket.settimeout(limits.wall_s)
            send_frame(self._socket, message)
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
        if code == -signal.SIGXCPU:
            return Killed(f"used more than {limits.cpu_s:g} s of processor time")
        if code == -signal.SIGALRM:
            return Killed(f"took longer than {limits.wall_s:g} s")
        if code < 0:
            return Killed(f"died: signal {-code} ({signal.Signals(-code).name})")
        return Killed(f"ended itself with exit code {code}")

    def kill(self) -> None:
        """Kills the child with its process group, reaps it, and lets go of the socket."""
        self.is_alive = False
        self.end()
        self._socket.close()

    def end(self) -> None:
        """Kills and reaps only, so that the thread that waits for its answer learns of it."""
        with self._ending:
            if self._process.returncode is None:  # not reaped yet, so its number cannot belong to another process
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def forget(self) -> None:
        """In a forked process: closes the copy of the socket; the child stays the parent's."""
        self._socket.close()
        self._process.returncode = 0


def _clean_environment() -> dict[str, str]:
    """Where to find modules, one thread a child, and nothing else."""
    places = os.pathsep.join(place or os.getcwd() for place in sys.path)
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return kept | {"PYTHONPATH": places, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
_SHARED_LOCK = threading.Lock()
_shared: list[Pool] = []


def shared_pool() -> Pool:
    """The pool of this process: as many children as there are processors, two at least."""
    with _SHARED_LOCK:
        if not _shared:
            _shared.append(Pool(max(2, os.cpu_count() or 1)))
        return _shared[0]


def _after_fork() -> None:
    global _SHARED_LOCK
    _SHARED_LOCK = threading.Lock()
    for pool in list(_POOLS):
        pool.forget()


def _at_exit() -> None:
    for pool in list(_POOLS):
        pool.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
