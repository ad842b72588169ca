"""Consoles that a narrow or vanished reader cannot break.

Decisions:
1. A sign that the stream's encoding lacks (ASCII in a log, a lone surrogate) is replaced; it ends nothing.
2. When whoever read the output has gone away (`| head -1`), a console that shows a run falls silent and the run goes on: its
   record is in the run folder. Any other console raises BrokenPipeError, since printing was all that was left to do.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from rich.console import Console


class _LastingConsole(Console):
    """Falls silent when its reader is gone."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard(self.file)


class _PlainConsole(Console):
    """Raises when its reader is gone; rich itself would end the process with 1, the exit code of an error."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard(self.file)
        raise BrokenPipeError


def make_console(*, stderr: bool = False, quiet: bool = False, lasting: bool = False) -> Console:
    """A console on stdout or stderr. `lasting`: it falls silent when its reader is gone.

    >>> make_console().stderr
    False
    """
    replace_unknown_signs()
    return (_LastingConsole if lasting else _PlainConsole)(stderr=stderr, quiet=quiet)


def replace_unknown_signs() -> None:
    """Stdout and stderr write a substitute for what their encoding lacks, where they would raise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def discard(stream: object) -> None:
    """What is still in the stream's buffer, and what is written to it later, goes nowhere and raises nothing."""
    with suppress(OSError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[attr-defined]
        os.close(null)
