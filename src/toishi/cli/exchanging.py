"""Commands for files of other programs: `toishi import` and `toishi export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, RunFolder, print_json

if TYPE_CHECKING:
    from toishi.interop.tokens import Decode


def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="trl, verl, nemo-rl or prime-rl.", show_default=False)],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or the folder that holds them.", show_default=False)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new run folder.", show_default=False)],
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm", metavar="NAME", help="The algorithm of the run: advantages are checked.", show_default=False
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "--weight", metavar="REWARD=W", help="A reward's weight (default 1). May be repeated.", show_default=False
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="NAME", help="Folder or hub id, for files with ids alone.", show_default=False),
    ] = None,
    version: Annotated[
        str, typer.Option("--program-version", metavar="V", help="Version of the program, for the record.")
    ] = "unknown",
    as_json: AsJson = False,
) -> None:
    """Read another trainer's rollout files into a run folder, which explain and audit can look at.

    What a format does not hold is not filled in: the folder names each missing link with the reason.

    Example:  toishi import verl runs/verl/rollouts runs/from-verl
    """
    from toishi.interop import FORMATS, import_run

    steps = import_run(
        format_,
        path,
        out,
        algorithm_name=algorithm,
        weights=dict(_weight(text) for text in weight or ()),
        version=version,
        decode=None if tokenizer is None else _decoder(tokenizer),
    )
    found = FORMATS[format_]
    if as_json:
        print_json({"folder": str(out), "steps": steps, "format": format_, "missing": dict(found.missing)})
        return
    typer.echo(f"{steps} steps written to {out}")
    typer.echo(f"See what is there and what is missing:  toishi audit {out}\nLook at a step:  toishi explain {out} --step 1")


def export(
    run: RunFolder,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl, csv, parquet (rollouts as rows) or unipo.")
    ] = "jsonl",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The file to write.", show_default=False)
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", min=1, help="This step only (default: all).", show_default=False)
    ] = None,
    group: Annotated[
        int | None, typer.Option("--group", metavar="K", min=0, help="This prompt of the step only.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's rollouts for other programs: rows as JSONL, CSV or parquet, or the JSON that UNIPO shows.

    Example:  toishi export runs/first --format unipo --step 3 -o step3.json
    """
    from toishi.interop import export_run
    from toishi.record import Run

    target = out or Path(f"{run.name}.{'json' if format_ == 'unipo' else format_}")
    count = export_run(format_, Run.open(run), target, step=step, group=group)
    if as_json:
        print_json({"file": str(target), "rollouts": count, "format": format_})
    else:
        typer.echo(f"{count} rollouts written to {target}")


COMMANDS: dict[str, Callable[..., None]] = {"import": import_, "export": export}


def _weight(text: str) -> tuple[str, float]:
    name, sign, value = text.rpartition("=")
    try:
        if not (name and sign):
            raise ValueError
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(f"expected REWARD=NUMBER, got {text!r}", param_hint="--weight") from None


def _decoder(name: str) -> Decode:
    from transformers import AutoTokenizer

    from toishi.errors import ModelError

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ModelError(f"--tokenizer {name}: cannot be loaded ({error})") from None
    return lambda token_ids: str(tokenizer.decode(list(token_ids)))
