"""What several commands share: option types, overrides, printing JSON, writing a page."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, TextIO

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


def finite(value: float | None) -> float | None:
    """An option's number as it is. Raises BadParameter for NaN, which no comparison holds for, and for infinity.

    >>> finite(0.5), finite(None)
    (0.5, None)
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a finite number, got {value}")
    return value


def overrides(texts: list[str] | None) -> dict[str, Any]:
    """The `--set` options as dotted keys and values, later ones winning."""
    from toishi.config import parse_override

    return dict(parse_override(text) for text in texts or ())


def write_page(path: Path, text: str) -> None:
    """Writes an HTML page and says where. Raises ConfigError when it cannot."""
    from toishi.errors import ConfigError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html {path}: cannot be written ({error.strerror}); choose another place") from None
    typer.echo(f"written: {path}", err=True)


def print_json(value: Any) -> None:
    """One JSON document; numbers that JSON has not (nan, inf) become null."""
    target = _results[-1] if _results else sys.stdout
    plain = _plain(value)
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False, default=str)
    try:
        text.encode(target.encoding or "utf-8")
    except UnicodeEncodeError:  # an ASCII log, half a character in an answer: JSON can escape both
        text = json.dumps(plain, indent=2, allow_nan=False, default=str)
    typer.echo(text, file=target)


_results: list[TextIO] = []


@contextmanager
def results_apart() -> Iterator[None]:
    """Inside, `print_json` alone reaches stdout. What anyone else prints, a child process too, goes to stderr."""
    try:
        number, aside = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, AttributeError):  # a stream that is no file: io.UnsupportedOperation is an OSError
        with _sent_to(sys.stdout), redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    kept = os.dup(number)
    os.dup2(aside, number)
    try:
        with open(os.dup(kept), "w", encoding=sys.stdout.encoding) as results, _sent_to(results):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, number)
        os.close(kept)


@contextmanager
def _sent_to(stream: TextIO) -> Iterator[None]:
    _results.append(stream)
    try:
        yield
    finally:
        _results.pop()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
