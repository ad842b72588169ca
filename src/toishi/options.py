"""Free options of a named thing (a task, a reward) turned into a frozen dataclass whose fields are those options.

Decisions:
1. The dataclass is the only description: field names, types, limits (`Annotated[int, Field(ge=1)]`) and defaults.
2. Types are strict, since a recipe that says `high: "20"` or `heldout: true` means something else than it gets.
   YAML has no tuples, so a list is taken where a tuple is asked for; a whole number is taken where a float is.
3. Checks across fields belong to the dataclass's `__post_init__`, which raises `ConfigError`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from toishi.errors import ConfigError, nearest

T = TypeVar("T")
_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


def from_options(cls: type[T], options: Mapping[str, Any], *, where: str, beside: Iterable[str] = (), **given: Any) -> T:
    """An instance of the dataclass `cls` from user-written `options` and values `given` by the program.

    where   how a message calls the place, such as "task" or "reward 'number'"
    beside  keys that may stand beside the options, to be suggested for a mistyped one
    Raises ConfigError for an unknown option (naming the nearest), a missing one, and a wrong type or value.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Dice:
    ...     sides: int = 6
    >>> from_options(Dice, {"sides": 20}, where="task")
    Dice(sides=20)
    >>> from_options(Dice, {"side": 20}, where="task")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: task.side: unknown option; did you mean 'sides'?
    """
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init and field.name not in given}  # type: ignore[arg-type]
    for key in options:
        if key not in fields:
            raise ConfigError(f"{where}.{key}: unknown option; {nearest(key, [*fields, *beside])}")
    for key, field in fields.items():
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if key not in options and not has_default:
            raise ConfigError(f"{where}.{key}: this option is required")
    hints = get_type_hints(cls, include_extras=True)
    values = {key: _checked(value, hints[key], f"{where}.{key}") for key, value in options.items()}
    return cls(**values, **given)


def _checked(value: Any, hint: Any, where: str) -> Any:
    try:
        return TypeAdapter(hint, config=_STRICT).validate_python(_frozen(value))
    except ValidationError as error:
        first, *others = error.errors()
        said = first["msg"].removeprefix("Value error, ")
        if _is_union(hint):  # each type has failed by itself
            said = " or ".join(dict.fromkeys([said, *(one["msg"].removeprefix("Input should be ") for one in others)]))
        remedy = "; write true or false" if first["type"] == "bool_type" else ""
        raise ConfigError(f"{where}: {said}, got {value!r}{remedy}") from None


def _frozen(value: Any) -> Any:
    """Lists, and lists in them, as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _is_union(hint: Any) -> bool:
    """Whether there are two types besides None."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(plain) in (Union, UnionType) and len(set(get_args(plain)) - {type(None)}) > 1
