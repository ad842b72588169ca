"""Recipes become a `Config`: YAML or a mapping, changed by `--set a.b=c`, with every mistake named.

Decisions:
1. Unknown keys are errors that name the nearest known key.
2. NaN and infinity are refused wherever they stand, in free options too: no setting means them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config.sections import Config
from toishi.config.yaml_text import read_yaml
from toishi.errors import ConfigError, nearest


def load_config(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Config:
    """A recipe (path or mapping) with dotted overrides, as a validated `Config`.

    >>> load_config({"seed": 3}, {"train.steps": 5}).train.steps
    5
    >>> load_config({"train": {"grop_size": 8}})
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: train.grop_size: unknown key; did you mean 'group_size'?
    """
    data = copy.deepcopy(dict(source)) if isinstance(source, Mapping) else read_file(Path(source))
    for dotted, value in _checked_overrides(overrides).items():
        _set(data, dotted, value)
    for where, number in _not_finite(data, ""):
        raise ConfigError(f"{where}: expected a finite number, got {number}")
    if "algorithm" in data:
        data["algorithm"] = _algorithm(data["algorithm"])
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(explained(line) for line in error.errors())) from None


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=c` as a dotted key and a YAML value.

    >>> parse_override("optimizer.lr=1e-4")
    ('optimizer.lr', 0.0001)
    >>> parse_override("model.lora={rank: 4}")
    ('model.lora', {'rank': 4})
    """
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set train.steps=5")
    try:
        return key.strip(), read_yaml(raw)
    except ValueError as error:
        raise ConfigError(f"--set {text!r}: the value is not YAML that can be used: {error}") from None


def _checked_overrides(overrides: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if overrides is None:
        return {}
    if not isinstance(overrides, Mapping) or not all(isinstance(key, str) for key in overrides):
        raise ConfigError(f"overrides: expected a mapping such as {{'train.steps': 5}}, got {overrides!r:.80}")
    return overrides


def _not_finite(value: Any, where: str) -> Iterator[tuple[str, float]]:
    """Every NaN and infinity with its place."""
    if isinstance(value, float) and not math.isfinite(value):
        yield where, value
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in inside:
        yield from _not_finite(item, f"{where}.{key}" if where else str(key))


def read_file(path: Path, noun: str = "recipe") -> dict[str, Any]:
    """The mapping that a YAML file holds. Raises ConfigError that calls the file a `noun`."""
    try:
        data = read_yaml(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{noun} {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"{noun} {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{noun} {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except ValueError as error:
        raise ConfigError(f"{noun} {path} is not YAML that can be used: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{noun} {path}: expected key: value lines, got {type(data).__name__}")
    return data


def _set(data: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    here: Any = data
    for position, part in enumerate(parents):
        place: Any = _index(here, part, dotted) if isinstance(here, list) else part
        child = here[place] if isinstance(here, list) else here.get(place)
        here[place] = here = _opened(child, ".".join(parents[: position + 1]), dotted)
    here[_index(here, last, dotted) if isinstance(here, list) else last] = value


def _opened(child: Any, where: str, dotted: str) -> dict[str, Any] | list[Any]:
    """What stands at `where`, as something in which a value can be set."""
    if where == "algorithm" and isinstance(child, str):
        return {"name": child}
    if isinstance(child, list | tuple):
        return list(child)
    if child is None or isinstance(child, Mapping):
        return dict(child or {})
    raise ConfigError(f"{dotted}: '{where}' is the value {child!r:.60}, so nothing can be set inside it")


def _index(items: list[Any], part: str, dotted: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise ConfigError(f"{dotted}: '{part}' must be a position from 0 to {len(items) - 1}")
    return int(part)


def _algorithm(value: Any) -> Algorithm:
    """`grpo`, or `{name: grpo, kl: k3, ...}`: a row by name with some of its choices changed."""
    if isinstance(value, Algorithm):
        return value
    if isinstance(value, str):
        return algorithm(value)
    if not isinstance(value, Mapping):
        raise ConfigError(f"algorithm: expected a name or a mapping, got {type(value).__name__}")
    changes = dict(value)
    row = algorithm(str(changes.pop("name", "grpo")))
    unknown = [key for key in changes if key not in Algorithm.model_fields]
    if unknown:
        raise ConfigError(f"algorithm.{unknown[0]}: unknown key; {nearest(unknown[0], Algorithm.model_fields)}")
    try:
        return Algorithm.model_validate(row.model_dump() | changes)
    except ValidationError as error:
        raise ConfigError("\n".join("algorithm." + explained(line) for line in error.errors())) from None


def explained(error: Any, root: Any = Config) -> str:
    """One of pydantic's errors about the model `root` in words: the key, what is wrong with it, and what it got."""
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        section: Any = root
        for part in error["loc"][:-1]:
            annotation = section.model_fields[part].annotation if hasattr(section, "model_fields") else None
            section = _section_of(annotation)
        known = section.model_fields if hasattr(section, "model_fields") else ()
        return f"{where}: unknown key; {nearest(str(error['loc'][-1]), known)}"
    message = error["msg"].removeprefix("Value error, ")
    got = "" if isinstance(error.get("input"), dict | BaseModel) else f", got {error.get('input')!r:.100}"
    if error["type"] == "bool_type":
        got += "; write true or false"
    return f"{where}: {message}{got}" if where else message


def _section_of(annotation: Any) -> Any:
    if isinstance(annotation, type):
        return annotation
    return next((part for part in getattr(annotation, "__args__", ()) if hasattr(part, "model_fields")), None)
