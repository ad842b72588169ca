"""Which optional packages a recipe needs, and which of them are missing: found before anything heavy is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from toishi.config import Config
from toishi.errors import MissingExtraError


def missing_packages(config: Config) -> list[MissingExtraError]:
    """One error, with what to install, for each package that the recipe needs and that is not installed.

    >>> missing_packages(Config())
    []
    """
    return [
        MissingExtraError(package, extra=extra, purpose=purpose)
        for package, extra, purpose in _needed(config)
        if importlib.util.find_spec(package) is None
    ]


def _needed(config: Config) -> Iterator[tuple[str, str, str]]:
    """(package, extra, purpose) of everything that the recipe uses beyond the core installation."""
    if config.model.lora is not None or config.model.adapter is not None:
        yield "peft", "lora", "LoRA training"
    if config.task.name == "hub":
        yield "datasets", "hub", "the task 'hub'"
    if config.task.name == "reasoning_gym":
        yield "reasoning_gym", "gym", "the task 'reasoning_gym'"
