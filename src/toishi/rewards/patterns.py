"""Regular expressions of users, compiled with a clear refusal and matched under a time limit.

Decisions:
1. A pattern with nested repeats can take for ever on an unlucky text. The limit works in every thread, and over it the caller
   says "failed": a text that could not be matched in time has neither matched nor not matched.
2. Dot matches newlines, since an answer is one text and its line breaks seldom mean anything to a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import regex

from toishi.errors import ConfigError

REGEX_LIMIT_S = 1.0


class PatternTooSlow(Exception):
    """A pattern took longer than its limit; the message is the reason, in words."""


def compiled(pattern: str, *, where: str) -> Any:
    """The compiled pattern. Raises ConfigError, which calls the option `where`.

    >>> compiled("(", where="reward 'mine'.pattern")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: reward 'mine'.pattern: '(' is not a regular expression: missing ) at position 1
    """
    try:
        return regex.compile(pattern, regex.DOTALL)
    except regex.error as error:
        raise ConfigError(f"{where}: {pattern!r} is not a regular expression: {error}") from None


def matches(pattern: Any, text: str, how: Literal["full", "search"] = "search") -> Iterator[Any]:
    """The matches of a compiled pattern from left to right, one at a time; with "full" the whole text or nothing.

    Raises PatternTooSlow when they take more than REGEX_LIMIT_S seconds.

    >>> [match[0] for match in matches(compiled("[0-9]+", where="x"), "7 and 12")]
    ['7', '12']
    >>> list(matches(compiled("[0-9]+", where="x"), "7 and 12", "full"))
    []
    """
    try:
        if how == "search":
            yield from pattern.finditer(text, timeout=REGEX_LIMIT_S)
        elif (found := pattern.fullmatch(text, timeout=REGEX_LIMIT_S)) is not None:
            yield found
    except TimeoutError:
        raise PatternTooSlow(
            f"the regex took longer than {REGEX_LIMIT_S:g} s on {len(text):,} characters; nested repeats do that"
        ) from None


def is_match(pattern: Any, text: str, how: Literal["full", "search"] = "search") -> bool:
    """Whether there is a match. Raises PatternTooSlow.

    >>> is_match(compiled("[0-9]+", where="x"), "7 and 12")
    True
    """
    return next(matches(pattern, text, how), None) is not None
