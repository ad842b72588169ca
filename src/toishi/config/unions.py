"""Keys whose value is of one of several types, with one message that says what is expected.

A union of types by itself fails once for each of its types, under names that are no keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field


def expecting(words: str, fits: Callable[[Any], bool]) -> BeforeValidator:
    """Lets through what fits; anything else is an error that says what was expected.

    >>> expecting("a whole number", lambda value: isinstance(value, int)).func("abc")
    Traceback (most recent call last):
    ...
    ValueError: expected a whole number
    """

    def checked(value: Any) -> Any:
        if not fits(value):
            raise ValueError(f"expected {words}")
        return value

    return BeforeValidator(checked)


def _is_amount(value: Any) -> bool:
    return value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value > 0)


def _is_names(value: Any) -> bool:
    names = value if isinstance(value, list | tuple) else [value]
    return bool(names) and all(isinstance(name, str) and name for name in names)


AutoOrAmount = Annotated[int | Literal["auto"], expecting("'auto' or a whole number above 0", _is_amount)]
NameOrNames = Annotated[
    str | Annotated[tuple[str, ...], Field(strict=False)],
    expecting("a name, such as 'all-linear', or a list of names", _is_names),
]
