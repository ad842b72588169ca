"""Which optional packages a recipe needs, and which of them are missing: found before anything heavy is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

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
    if any(reward.options.get("kind", reward.name) == "math" for reward in config.rewards):
        yield "math_verify", "math", "the reward 'math'"
    if any(reward.options.get("kind", reward.name) == "json_schema" for reward in config.rewards):
        yield "jsonschema", "schema", "the reward 'json_schema'"
    if any(reward.options.get("kind", reward.name) == "gym" for reward in config.rewards):
        yield "reasoning_gym", "gym", "the reward 'gym'"
    for name in dict.fromkeys(config.track):
        yield name, name, f"track: [{name}]"
    if any(_asks_a_server(reward.options) for reward in config.rewards):
        yield "openai", "judge", "a judge at an address (base_url)"


def _asks_a_server(options: Mapping[str, Any]) -> bool:
    """Whether a reward's `judge`, or one of its `judges`, is a server."""
    listed = options.get("judges")
    judges = [options.get("judge"), *(listed if isinstance(listed, list | tuple) else [])]
    return any(isinstance(judge, Mapping) and judge.get("base_url") is not None for judge in judges)
