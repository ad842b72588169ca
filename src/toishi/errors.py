"""Errors named for what the person who meets them can do.

ToishiError
├── ConfigError (ValueError)      a recipe or option is wrong: change it
├── DataError (ValueError)        rows of a data set are wrong: the message lists row numbers and remedies
├── RewardError                   a reward broke its contract: the message names the reward and the row
├── ModelError                    a model or tokenizer cannot be used as it is
├── EngineError                   sampling went wrong
├── MissingExtraError (ImportError)  an optional package is needed: the message names the extra to install
├── OutOfMemoryError (MemoryError)  a run needs more memory than there is: the message says what would lower it
├── NumericsError                 NaN or infinity met: training stopped before a weight changed
├── HealthStop                    a health rule asked to stop: the message holds evidence and remedy
└── RecordError                   a run folder is damaged, from another version, or incomplete

Every message says what happened, what was got, what was expected, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ToishiError(Exception):
    """Base of all errors that toishi raises on purpose."""


class ConfigError(ToishiError, ValueError):
    """A recipe or an option is wrong."""


class DataError(ToishiError, ValueError):
    """Rows of a data set are wrong."""


class RewardError(ToishiError):
    """A reward broke its contract."""


class ModelError(ToishiError):
    """A model or its tokenizer cannot be used as it is."""


class EngineError(ToishiError):
    """Sampling went wrong."""


class MissingExtraError(ToishiError, ImportError):
    """An optional dependency is missing.

    >>> str(MissingExtraError("peft", extra="lora", purpose="LoRA training"))
    "LoRA training needs the package 'peft', which is not installed. Install it with: pip install 'toishi[lora]'"
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed. Install it with: pip install 'toishi[{extra}]'"
        )


class OutOfMemoryError(ToishiError, MemoryError):
    """A run needs more memory than there is."""


class NumericsError(ToishiError):
    """NaN or infinity met before a weight changed."""


class HealthStop(ToishiError):
    """A health rule asked to stop the run."""


class RecordError(ToishiError):
    """A run folder is damaged, from another version, or incomplete."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or the whole list when nothing is close.

    >>> nearest("grop_size", ["group_size", "steps"])
    "did you mean 'group_size'?"
    >>> nearest("x", ["b", "a"])
    'known: a, b'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(names)
