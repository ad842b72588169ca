"""The list of commands, and what happens when one fails."""

from __future__ import annotations

import inspect
import os
import sys
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from toishi import __version__
from toishi.cli import (
    collecting,
    comparing,
    exchanging,
    explaining,
    judging,
    labelling,
    looking,
    measuring,
    piping,
    replaying,
    running,
    toy,
    verifying,
    whatif,
)
from toishi.cli.common import print_json, results_apart
from toishi.cli.waiting import choose_waiting
from toishi.consoles import discard, make_console, replace_unknown_signs, visible
from toishi.errors import ToishiError

AS_JSON = "toishi.as_json"
READER_GONE = 141


class Commands(TyperGroup):
    """Turns errors that toishi raises on purpose into a message on stderr and an exit code, without a traceback."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """`explain toy` is a command of its own: it has no run, and options that no run has."""
        if toy.is_toy(args):
            return super().resolve_command(ctx, [toy.NAME, *toy.without_name(args)])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        replace_unknown_signs()
        try:
            with results_apart() if ctx.meta[AS_JSON] else nullcontext():
                return self._explained(ctx)
        except BrokenPipeError:
            discard(sys.stdout)
            raise typer.Exit(READER_GONE) from None

    def _explained(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ToishiError as error:
            message = Text.assemble(("error: ", "bold red"), (visible(str(error)), "red"))
            make_console(stderr=True).print(message, soft_wrap=True, highlight=False)
            if ctx.meta[AS_JSON]:
                print_json({"error": str(error), "kind": type(error).__name__})
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            make_console(stderr=True).print("interrupted", style="yellow")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    name="toishi",
    help="Post-train a language model with rewards, and see what every step changed.\n\nStart with:  toishi demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"toishi {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


PANELS = {
    "Train": (running.demo, running.train, running.resume, piping.pipeline),
    "Look at a run": (
        *(explaining.explain, looking.audit, replaying.replay, whatif.whatif),
        *(measuring.evaluate, measuring.sample, comparing.compare),
    ),
    "Make and choose data": (*collecting.COMMANDS, labelling.label),
    "Prepare and learn": (measuring.check, looking.recipes, looking.algorithms, verifying.verify, measuring.fetch),
}


def help_text(docstring: str) -> str:
    """Paragraphs of a docstring as one line each, so that they wrap to the terminal's width.

    >>> help_text("One.\\n\\n    Two\\n    lines.\\n    ")
    'One.\\n\\nTwo lines.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


for panel, commands in PANELS.items():
    for command in commands:
        settings = verifying.SETTINGS if command is verifying.verify else None
        app.command(rich_help_panel=panel, help=help_text(command.__doc__ or ""), context_settings=settings)(command)
app.command(toy.NAME, rich_help_panel="Prepare and learn", help=help_text(toy.explain_toy.__doc__ or ""))(toy.explain_toy)
for name, exchange in exchanging.COMMANDS.items():
    app.command(name, rich_help_panel="Look at a run", help=help_text(exchange.__doc__ or ""))(exchange)
for about_judges in judging.COMMANDS:
    judging.group.command(help=help_text(about_judges.__doc__ or ""))(about_judges)
app.add_typer(judging.group, rich_help_panel="Prepare and learn")


def main() -> None:
    """Entry point of the `toishi` command."""
    choose_waiting(sys.argv[1] if len(sys.argv) > 1 else "", os.environ)
    try:
        app()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            discard(sys.stdout)
            sys.exit(READER_GONE)
