"""Built-in recipes, by name: YAML files beside this module, written to be read and copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from toishi.config import Config, load_config
from toishi.errors import ConfigError, nearest

_FOLDER = Path(__file__).parent


def recipe_names() -> tuple[str, ...]:
    """
    >>> "sums" in recipe_names()
    True
    """
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def recipe_path(recipe: str) -> Path:
    """The file of a built-in recipe, or the path itself when it is one.

    A name without ".yaml" and without a folder means the built-in one, unless a file of exactly that name lies here.
    Raises ConfigError for what is neither.

    >>> recipe_path("sums").name
    'sums.yaml'
    >>> recipe_path("sum")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: there is no file 'sum', and no built-in recipe of that name; did you mean 'sums'?
    """
    path = Path(recipe).expanduser()
    if path.is_file():
        return path
    if recipe in recipe_names():
        return _FOLDER / f"{recipe}.yaml"
    hint = f"; {nearest(path.stem, recipe_names())}"
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"recipe file {path} does not exist. Built-in recipes are given by name{hint}")
    raise ConfigError(f"there is no file '{recipe}', and no built-in recipe of that name{hint}")


def load_recipe(recipe: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a recipe file or built-in recipe, with dotted overrides.

    >>> load_recipe("sums", {"train.steps": 2}).train.steps
    2
    """
    return load_config(recipe_path(recipe), overrides)


def recipe_description(name: str) -> str:
    """The `description` line of a built-in recipe."""
    return str(yaml.safe_load(recipe_path(name).read_text(encoding="utf-8")).get("description", ""))
