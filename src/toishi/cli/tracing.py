"""The option --trace of commands that ask a model: inferences told to OpenTelemetry or Weave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from toishi.comparison import Around

Trace = Annotated[
    list[str] | None,
    typer.Option(
        "--trace",
        metavar="otel|weave",
        help="Tell an OpenTelemetry collector or Weave of every answer. May be repeated.",
        show_default=False,
    ),
]


@contextmanager
def telling(names: Sequence[str] | None, doing: str, facts: Mapping[str, str]) -> Iterator[Around]:
    """Gives what to put around an engine. What a tracer has to say goes to stderr; it never ends the command.

    Raises ConfigError for an unknown tracer, MissingExtraError for one that is not installed.
    """
    from toishi.spans import Telling, TracedEngine
    from toishi.spans.tracers import tracers

    chosen = tracers(names or ())
    if not chosen:
        yield lambda engine, model, prompts: engine
        return
    with Telling(chosen, doing, facts, _say) as told:
        yield lambda engine, model, prompts: TracedEngine(engine, told, model=model, prompts=prompts)


def _say(text: str) -> None:
    from toishi.consoles import make_console, visible

    make_console(stderr=True).print(visible(text), style="yellow", markup=False, highlight=False, soft_wrap=True)
