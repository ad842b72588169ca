"""Consoles that a narrow or vanished reader cannot break.

Decisions:
1. A sign that the stream's encoding lacks (ASCII in a log, a lone surrogate) is replaced; it ends nothing.
2. What a terminal would obey instead of show (escape sequences, marks that turn the direction of text) is spelled out by
   `visible`. Data that a person looks at go through it.
3. When whoever read the output has gone away (`| head -1`), a console that shows a run falls silent and the run goes on: its
   record is in the run folder. Any other console raises BrokenPipeError, since printing was all that was left to do.
"""

from __future__ import annotations

import io
import os
import sys
import unicodedata
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


def visible(text: str) -> str:
    r"""The text with every sign that a terminal would obey written out; line breaks and tabs stay.

    >>> print(visible("a\x1b[31m red\r\nnext \u202e line"))
    a\x1b[31m red
    next \u202e line
    """
    lines = text.replace("\r\n", "\n")
    return "".join(sign.encode("unicode_escape").decode("ascii") if _is_obeyed(sign) else sign for sign in lines)


def _is_obeyed(sign: str) -> bool:
    """Control signs, and those that open, close or turn a direction; joiners of emoji and of scripts are shown as they are."""
    turns = unicodedata.bidirectional(sign) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return turns or (unicodedata.category(sign) in ("Cc", "Zl", "Zp") and sign not in "\n\t")


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
