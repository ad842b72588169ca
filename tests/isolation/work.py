"""Functions for the pool's children: clean ones, and every way to go wrong."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any


def square(number: int) -> int:
    return number * number


def identity(value: Any) -> Any:
    return value


def seen(_: Any) -> dict[str, Any]:
    """What a child can see of its parent."""
    return {"environment": dict(os.environ), "session": os.getsid(0), "pid": os.getpid(), "parent": os.getppid()}


def open_descriptors(_: Any) -> int:
    return len(os.listdir("/proc/self/fd"))


def poison(kind: str) -> Any:
    return POISONS[kind]()


def _recurse(depth: int = 0) -> int:
    return _recurse(depth + 1) + 1


def _with_children() -> None:
    """A child that goes its own way, and then no end."""
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)


POISONS: dict[str, Any] = {
    "power tower": lambda: len(str(9**9**9**9)),
    "long loop": lambda: sum(1 for _ in iter(int, 1)),
    "sleep": lambda: time.sleep(600),
    "with children": _with_children,
    "deep recursion": _recurse,
    "50 GB": lambda: len(bytearray(50 << 30)),
    "exit": lambda: os._exit(0),
    "SystemExit": lambda: exit(0),
    "crash": lambda: ctypes.string_at(0),
    "2 MB answer": lambda: "x" * 2_000_000,
    "many digits": lambda: 10**5000,
    "no JSON": lambda: object(),
    "deep answer": lambda: __import__("functools").reduce(lambda inner, _: [inner], range(900), 0),
    "raises": lambda: 1 / 0,
}
