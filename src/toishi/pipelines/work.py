"""A stage that is ready to be done: its keys with every name resolved, its configuration, and the folder that it works in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from toishi.config import Config, load_config
from toishi.recipes import recipe_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a kind's `make` is given.

    name     of the stage
    stage    its section, with every name resolved to a path
    config   its recipe with all changes; None where the kind has none
    folder   its own; what was begun there before is gone on with
    console  shows progress
    """

    name: str
    stage: Any
    config: Config | None
    folder: Path
    seed: int
    console: Console

    @property
    def recipe(self) -> Config:
        """The configuration of a kind that has one."""
        assert self.config is not None
        return self.config


def config_of(stage: Any, *, name: str, seed: int, model: Mapping[str, Any]) -> Config | None:
    """The recipe of a stage: its own keys, then the pipeline's seed and model, then the stage's model and changes.

    Raises ConfigError for what no recipe can have.
    """
    if "recipe" not in type(stage).model_fields:
        return None
    changes: dict[str, Any] = {"name": name, "seed": seed, **{f"model.{key}": value for key, value in model.items()}}
    if getattr(stage, "model", None) is not None:
        changes["model.name"] = stage.model
    changes |= dict(stage.set)
    recipe = stage.recipe
    if recipe is None:
        return load_config({}, changes)
    return load_config(recipe if isinstance(recipe, Mapping) else recipe_path(recipe), changes)
