"""Commands that train: demo, train, resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, Overrides, Recipe, RunFolder, overrides, print_json

if TYPE_CHECKING:
    from toishi.display import Display
    from toishi.loop import Result

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", help="The run folder to make (default: a new one inside runs/).", show_default=False
    ),
]
INTERRUPTED = 130


def demo(settings: Overrides = None, out: Out = None) -> None:
    """Watch a small model learn to add, in minutes on a laptop.

    Trains the bundled 135M model on sums of two numbers, measures before and after on sums that it never trained on,
    and shows one group of answers with the scores that moved it.

    Example:  toishi demo --set seed=1
    """
    _train("sums", settings, out, as_json=False)


def train(recipe: Recipe, settings: Overrides = None, out: Out = None, as_json: AsJson = False) -> None:
    """Train a model as a recipe says.

    Ctrl-C ends after the current step and saves; `toishi resume` goes on from there.

    Example:  toishi train recipe.yaml --set train.steps=50 --out runs/first
    """
    _train(recipe, settings, out, as_json=as_json)


def resume(run: RunFolder, as_json: AsJson = False) -> None:
    """Go on with a run that was interrupted, from its last whole checkpoint.

    Example:  toishi resume runs/first
    """
    from toishi.loop import resume as resume_run

    _report(resume_run(run, _display(as_json)), as_json)


def _train(recipe: str, settings: list[str] | None, out: Path | None, *, as_json: bool) -> None:
    from toishi.recipes import load_recipe

    config = load_recipe(recipe, overrides(settings))
    display = _display(as_json)
    with display.console.status("loading"):
        from toishi.loop import train as train_run
    _report(train_run(config, out, display), as_json)


def _display(as_json: bool) -> Display:
    """With --json, stdout holds the result alone, so the run is shown on stderr."""
    from toishi.consoles import make_console
    from toishi.display import Display

    return Display(make_console(stderr=as_json, lasting=True))


def _report(result: Result, as_json: bool) -> None:
    if as_json:
        evaluations = [evaluation.as_record() for evaluation in result.evaluations]
        print_json({"folder": str(result.folder), "finished": result.finished, "step": result.step, "evaluations": evaluations})
    if not result.finished:
        raise typer.Exit(INTERRUPTED)
