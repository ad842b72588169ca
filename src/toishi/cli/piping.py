"""The command `pipeline`: stages that take from one another, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, overrides, print_json, write_page

if TYPE_CHECKING:
    from rich.console import Console

    from toishi.pipelines.planning import Pipeline
    from toishi.pipelines.running import PipelineView

File = Annotated[
    str, typer.Argument(metavar="FILE", help="A YAML file, or the name of a shipped pipeline.", show_default=False)
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Change one value of a stage or of its recipe, e.g. sft.train.steps=5. May be repeated.",
        show_default=False,
    ),
]


def pipeline(
    file: File,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="The pipeline's folder (default: runs/NAME).", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every stage and say what would be done; nothing is written.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the report there too.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run stages that take from one another: data, SFT, RL, rejection sampling, reward models, distillation.

    All stages are checked before the first one begins. Killed at any moment and typed again, the same command goes on; a stage
    that depends on nothing that changed is not done again. At the end a report shows what each stage gained on held-out
    prompts, and which gains cannot be told from chance; it is also in FOLDER/report.html.

    Example:  toishi pipeline r1 --out runs/r1
    """
    from toishi.consoles import make_console

    console = make_console(stderr=as_json)
    with console.status("loading"):
        from toishi.pipelines.planning import read_pipeline

        read = read_pipeline(file, overrides(settings))
    folder = out or Path("runs") / read.name
    if dry_run:
        _look(read, folder, console, as_json)
        return
    _report(_run(read, folder, as_json), console, html, as_json)


def _run(read: Pipeline, folder: Path, as_json: bool) -> PipelineView:
    from toishi.consoles import make_console
    from toishi.pipelines.running import run_pipeline

    return run_pipeline(read, folder, make_console(stderr=as_json, lasting=True))


def _look(read: Pipeline, folder: Path, console: Console, as_json: bool) -> None:
    """Every stage's state and faults. Ends with exit code 1 if the pipeline could not start."""
    from toishi.cli.pipeline_tables import render_look
    from toishi.pipelines.running import faults, look_at
    from toishi.pipelines.story import as_record

    with console.status("checking"):
        view, found = look_at(read, folder), faults(read, folder)
    if as_json:
        print_json({"ok": not found, "faults": found, **as_record(view)})
    else:
        render_look(view, found, console)
    if found:
        raise typer.Exit(1)


def _report(view: PipelineView, console: Console, html: Path | None, as_json: bool) -> None:
    from toishi.explanation.page.render_html import html_page
    from toishi.explanation.page.render_terminal import render
    from toishi.pipelines.story import as_record, page

    told = page(view)
    write_page(view.folder / "report.html", html_page(told))
    if html is not None:
        write_page(html, html_page(told))
    if as_json:
        print_json(as_record(view))
    else:
        render(told, console)
