"""The command that asks several models the same prompts: compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toishi.cli.common import AsJson, Overrides, overrides, print_json
from toishi.cli.tracing import Trace, telling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toishi.config import Config
    from toishi.sampler import Source
    from toishi.types import Prompt


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|MODEL...", help="Runs' folders, models' folders, hub ids, or 'bundled'.", show_default=False
        ),
    ],
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="RECIPE",
            help="Whose held-out prompts and sampling (default: those of the first run named).",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="FILE", help="Prompts of a JSONL, CSV or Parquet file, in their order.", show_default=False
        ),
    ] = None,
    prompts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The first N prompts (default: evaluation.prompts).", show_default=False),
    ] = None,
    texts: Annotated[int, typer.Option(min=0, metavar="N", help="Print the answers to the first N prompts, too.")] = 0,
    settings: Overrides = None,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="WHICH", help="Of a run: last, best, or a step's number.")
    ] = "last",
    trace: Trace = None,
    as_json: AsJson = False,
) -> None:
    """Ask several models the same prompts, greedy and sampled, and count the tokens of every answer.

    Prints the counts prompt by prompt, each model's mean with a 95% interval over prompts, and its paired difference to the
    first model.

    Example:  toishi compare bundled runs/short runs/long --texts 2
    """
    from toishi.consoles import make_console

    console = make_console(stderr=as_json)
    with console.status("loading") as status:
        from toishi.cli.comparison_tables import print_comparison
        from toishi.comparison import compare_models, names_of
        from toishi.sampler import Source

        opened = [Source.find(source, checkpoint) for source in sources]
        config = _config(opened, recipe, data, overrides(settings))
        asked = _prompts(config, data)[: prompts or (None if data else config.evaluation.prompts)]
        facts = {"models": ", ".join(sources), "prompts": str(len(asked)), "seed": str(config.seed)}
        with telling(trace, "compare", facts) as around:
            found = compare_models(
                list(zip(names_of(sources), opened, strict=True)),
                config,
                asked,
                around=around,
                on_model=lambda model, mode: status.update(f"{model}: {mode} answers to {len(asked)} prompts"),
            )
    if as_json:
        print_json(found.as_record())
    else:
        print_comparison(found, console, texts=texts)


def _config(opened: Sequence[Source], recipe: str | None, data: Path | None, changes: dict[str, Any]) -> Config:
    """The recipe, or that of the first run, or the defaults where the prompts come from a file."""
    from toishi.config import load_config
    from toishi.errors import ConfigError
    from toishi.recipes import load_recipe
    from toishi.sampler import run_config

    file = {} if data is None else {"task.name": "file", "task.path": str(data), "task.heldout": 0}
    if recipe is not None:
        return load_recipe(recipe, file | changes)
    run = next((source.run for source in opened if source.run is not None), None)
    if run is not None:
        return load_config(run_config(run).model_dump(mode="json"), file | changes)
    if data is not None:
        return load_config({"name": "compare"}, file | changes)
    raise ConfigError(
        "none of these is a run: say whose prompts to ask, with --recipe (such as --recipe length-short) or --data"
    )


def _prompts(config: Config, data: Path | None) -> Sequence[Prompt]:
    """Held-out prompts, or every row of the file."""
    from toishi.given import NOTHING_GIVEN, the_task
    from toishi.tasks import ListedTask

    task = the_task(config, NOTHING_GIVEN)
    return task.train if data is not None and isinstance(task, ListedTask) else task.heldout_prompts()
