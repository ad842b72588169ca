"""What one stage takes from another, by name: `${stages.sft.model}` stands for what the stage `sft` made.

Decisions:
1. Only a stage that stands earlier can be named: the order of the file is the order of the run.
2. `${folder}` is the folder of the pipeline file, so that data can lie beside it.
3. The same text is resolved twice: to the path that is opened, and to the sha256 of what lies there, by which a stage knows
   whether anything changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toishi.errors import ConfigError, nearest

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a stage made, by the stage's name and the output's."""

    stage: str
    output: str


def references(value: Any) -> Iterator[str]:
    """The names between `${` and `}` in all texts of nested plain values.

    >>> list(references({"a": ["${stages.sft.model}"], "b": "${folder}/x.jsonl"}))
    ['stages.sft.model', 'folder']
    """
    if isinstance(value, str):
        yield from _REFERENCE.findall(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def parsed(name: str, outputs: Mapping[str, tuple[str, ...]], *, where: str, later: tuple[str, ...] = ()) -> Reference | None:
    """The reference that `name` is; None for the folder.

    outputs  earlier stage -> names of what it makes; `later`: stages that come after
    Raises ConfigError with the names that there are.

    >>> parsed("stages.sft.model", {"sft": ("model", "run")}, where="stage 'rl'")
    Reference(stage='sft', output='model')
    >>> parsed("stages.sft.data", {"sft": ("model", "run")}, where="stage 'rl'")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: stage 'rl': ${stages.sft.data}: stage 'sft' makes model, run
    """
    if name == FOLDER:
        return None
    first, _, rest = name.partition(".")
    stage, _, output = rest.partition(".")
    known = ", ".join(f"${{stages.{one}.{made}}}" for one, all_made in outputs.items() for made in all_made)
    if first != "stages" or not stage or not output:
        listed = f", {known}" if known else ""
        raise ConfigError(f"{where}: ${{{name}}} names nothing; there are ${{folder}}{listed}")
    if stage in later:
        raise ConfigError(f"{where}: ${{{name}}}: stage '{stage}' comes later or is this one; move it before this stage")
    if stage not in outputs:
        hint = nearest(stage, outputs) if outputs else "no stage comes before this one"
        raise ConfigError(f"{where}: ${{{name}}}: there is no stage '{stage}'; {hint}")
    if output not in outputs[stage]:
        raise ConfigError(f"{where}: ${{{name}}}: stage '{stage}' makes {', '.join(outputs[stage])}")
    return Reference(stage, output)


def resolved(value: Any, lookup: Callable[[str], str]) -> Any:
    """Nested plain values with every `${name}` in their texts replaced by `lookup(name)`.

    >>> resolved({"path": "${folder}/x"}, lambda name: "/data")
    {'path': '/data/x'}
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: lookup(found.group(1)), value)
    if isinstance(value, Mapping):
        return {key: resolved(item, lookup) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(item, lookup) for item in value]
    return value
