"""What a piece of work may use, and the ways in which it can end without an answer.

Decisions:
1. One set of limits serves the pool and the programs of `sandbox`; each field says for which of them it holds.
2. `Killed` is said of the work (it used too much, or died), `Raised` of its code (it raised); neither is an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from toishi.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hard limits of one call or one program run.

    wall_s        seconds on the clock
    cpu_s         seconds of processor time, of each process; the system counts in whole seconds
    memory_mb     MB (2**20 bytes) of address space, of each process
    processes     processes and threads alive at once (programs only: the pool's functions are toishi's own)
    open_files    files open at once, of each process (programs only)
    disk_mb       MB that may be written to the working folder, and the size of the largest file (programs only)
    output_bytes  bytes of answer: the reply of a call; what a program may write to its standard output

    >>> Limits(wall_s=5).memory_mb
    1024
    >>> Limits(wall_s=0)
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: limits.wall_s: must be a number above 0, got 0
    """

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 1024
    processes: int = 32
    open_files: int = 64
    disk_mb: int = 16
    output_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"limits.{name}: must be a number above 0, got {value!r}")


class Killed(Exception):
    """The work was killed or died: it used more than a limit allows. The message is the reason, in words."""


class Raised(Exception):
    """The function raised; the message is the exception's type and text."""


class NotStarted(Exception):
    """There is no child process or no sandbox to do the work in: says nothing of the work."""
