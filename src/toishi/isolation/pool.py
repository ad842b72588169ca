"""Calls that can be killed: a function runs in a warm child process under hard limits, from any thread.

Decisions:
1. A killed child is replaced when the next call needs one. Importing (sympy) is done before a call's clock starts.
2. After a fork of the parent, the new process starts children of its own and leaves the old ones alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from toishi.isolation.limits import Killed, Limits, Raised
from toishi.isolation.process import Child

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
        self._idle: list[Child] = []
        self._all: set[Child] = set()

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
    def _child(self, modules: Sequence[str]) -> Iterator[Child]:
        """A child that has imported `modules`; it is kept if it is alive and idle at the end."""
        with self._slots:
            with self._lock:
                child = self._idle.pop() if self._idle else Child()
                if child.has_ended:  # it was killed from outside while idle
                    self._all.discard(child)
                    child.kill()
                    child = Child()
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
