"""Recipes become a `Config`: YAML or a mapping, changed by `--set a.b=c`, with every mistake named.

Decisions:
1. Unknown keys are errors that name the nearest known key.
2. A number that YAML 1.1 reads as text (1e-4) is read as the number that a person means.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config.sections import Config
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
    data = dict(source) if isinstance(source, Mapping) else _read_yaml(Path(source))
    for dotted, value in (overrides or {}).items():
        _set(data, dotted, value)
    if "algorithm" in data:
        data["algorithm"] = _algorithm(data["algorithm"])
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(line) for line in error.errors())) from None


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
    return key.strip(), _scalar(yaml.safe_load(raw))


def _scalar(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 (no dot) as text; a person means the number."""
    if isinstance(value, str):
        try:
            return float(value) if any(mark in value for mark in "eE.") and value[:1] in "+-.0123456789" else value
        except ValueError:
            return value
    if isinstance(value, dict):
        return {key: _scalar(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scalar(item) for item in value]
    return value


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"recipe {path} does not exist") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path} is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"recipe {path}: expected key: value lines, got {type(data).__name__}")
    return _scalar(data)  # type: ignore[no-any-return]


def _set(data: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    here: Any = data
    for position, part in enumerate(parents):
        if isinstance(here, list):
            here = here[_index(here, part, dotted)]
            continue
        child = here.get(part)
        if part == "algorithm" and position == 0 and isinstance(child, str):
            child = {"name": child}
        here[part] = list(child) if isinstance(child, list | tuple) else dict(child or {})
        here = here[part]
    if isinstance(here, list):
        here[_index(here, last, dotted)] = value
    else:
        here[last] = value


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
        raise ConfigError("\n".join("algorithm." + _explain(line) for line in error.errors())) from None


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        section: Any = Config
        for part in error["loc"][:-1]:
            annotation = section.model_fields[part].annotation if hasattr(section, "model_fields") else None
            section = _section_of(annotation)
        known = section.model_fields if hasattr(section, "model_fields") else ()
        return f"{where}: unknown key; {nearest(str(error['loc'][-1]), known)}"
    message = error["msg"].removeprefix("Value error, ")
    got = "" if isinstance(error.get("input"), dict | BaseModel) else f", got {error.get('input')!r}"
    return f"{where}: {message}{got}" if where else message


def _section_of(annotation: Any) -> Any:
    if isinstance(annotation, type):
        return annotation
    return next((part for part in getattr(annotation, "__args__", ()) if hasattr(part, "model_fields")), None)
