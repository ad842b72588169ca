"""What several commands share: option types, overrides, printing JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a built-in recipe.", show_default=False)
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one value of the recipe, e.g. train.steps=5. May be repeated.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def overrides(texts: list[str] | None) -> dict[str, Any]:
    """The `--set` options as dotted keys and values, later ones winning."""
    from toishi.config import parse_override

    return dict(parse_override(text) for text in texts or ())


def print_json(value: Any) -> None:
    """One JSON document; numbers that JSON has not (nan, inf) become null."""
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
