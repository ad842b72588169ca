"""The list of commands, and what happens when one fails."""

from __future__ import annotations

import inspect
import os
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from toishi import __version__
from toishi.cli import looking, measuring, running
from toishi.errors import ToishiError


class Commands(TyperGroup):
    """Turns errors that toishi raises on purpose into a message on stderr and an exit code, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ToishiError as error:
            message = Text.assemble(("error: ", "bold red"), (str(error), "red"))
            Console(stderr=True).print(message, soft_wrap=True, highlight=False)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            Console(stderr=True).print("interrupted", style="yellow")
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
    "Train": (running.demo, running.train, running.resume),
    "Look at a run": (looking.explain, looking.audit, measuring.evaluate, measuring.sample),
    "Prepare and learn": (measuring.check, looking.recipes, looking.algorithms, measuring.fetch),
}


def help_text(docstring: str) -> str:
    """Paragraphs of a docstring as one line each, so that they wrap to the terminal's width.

    >>> help_text("One.\\n\\n    Two\\n    lines.\\n    ")
    'One.\\n\\nTwo lines.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel, help=help_text(command.__doc__ or ""))(command)


# Read by OpenMP when torch is first imported. Threads that wait for work sleep instead of spinning: with spinning threads two
# busy processes on the same cores were measured to slow each other down ten times and more.
THREAD_SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def main() -> None:
    """Entry point of the `toishi` command. Thread settings that the environment already holds are left alone."""
    for name, value in THREAD_SETTINGS.items():
        os.environ.setdefault(name, value)
    app()
