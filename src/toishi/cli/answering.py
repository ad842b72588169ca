"""What select, collect and pairs share: where answers come from, which options say so, and how progress is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import finite

if TYPE_CHECKING:
    from rich.console import Console

    from toishi.collecting.asking import AskPlan
    from toishi.collecting.samples import Asked, Header
    from toishi.config import Config
    from toishi.sampler import Source

OptionalRecipe = Annotated[
    str | None,
    typer.Argument(metavar="[RECIPE]", help="A YAML file, or the name of a built-in recipe.", show_default=False),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The JSONL file to write.", show_default=False)]
Samples = Annotated[int, typer.Option("--samples", "-n", min=1, metavar="N", help="Answers to each prompt.")]
Prompts = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="The first N of the task's prompts (default: all).", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="RUN|MODEL", help="Who answers, in place of the recipe's model.", show_default=False),
]
Checkpoint = Annotated[str, typer.Option("--checkpoint", metavar="WHICH", help="Of a run: last, best, or a step's number.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Prompts of a JSONL, CSV or Parquet file, in place of the recipe's task.",
        show_default=False,
    ),
]
Shots = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Worked examples (JSONL rows with prompt and completion) shown before every prompt, and not written out.",
        show_default=False,
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="SAMPLES",
        help="Choose from answers that are there already: a .samples.jsonl file.",
        show_default=False,
    ),
]
Continue = Annotated[bool, typer.Option("--continue", help="Go on with what an interrupted command has written.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Begin anew where the file is there already.")]
RightReward = Annotated[
    str | None,
    typer.Option(
        "--reward", metavar="NAME", help="The reward that tells right from wrong (default: the only one).", show_default=False
    ),
]
Threshold = Annotated[float, typer.Option(callback=finite, help="A value of that reward at or above it is right.")]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Whose answers to what are wanted, as it was typed."""

    recipe: str | None
    from_: Path | None
    out: Path
    samples: int
    prompts: int | None
    model: str | None
    checkpoint: str
    data: Path | None
    settings: list[str] | None
    go_on: bool
    overwrite: bool
    shots: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The answers, the file that holds them, and the configuration that they came from."""

    header: Header
    asked: tuple[Asked, ...]
    file: Path
    config: Config


def answers(wanted: Wanted, console: Console) -> Found:
    """The answers out of a samples file, or sampled now. Raises ConfigError for options that contradict each other."""
    from toishi.collecting.asking import ask_all, require_samples
    from toishi.collecting.samples import claim, read_samples, samples_path
    from toishi.config import load_config
    from toishi.counting import counting

    if wanted.from_ is not None:
        _refuse_beside_from(wanted)
        claim([wanted.out], go_on=wanted.go_on, overwrite=wanted.overwrite)
        header, asked = read_samples(wanted.from_)
        require_samples(header, asked, wanted.from_)
        return Found(header=header, asked=asked, file=wanted.from_, config=load_config(dict(header.config)))
    file = samples_path(wanted.out)
    claim([wanted.out, file], go_on=wanted.go_on, overwrite=wanted.overwrite)
    with console.status("loading"):
        plan = _plan(wanted)
    with counting(console) as told:
        try:
            header, asked = ask_all(plan, file, go_on=wanted.go_on, on_progress=told)
        except KeyboardInterrupt:
            told_where = f"what was sampled is in {file}; the same command with --continue goes on"
            console.print(told_where, style="yellow", markup=False, highlight=False, soft_wrap=True)
            raise
    return Found(header=header, asked=asked, file=file, config=plan.config)


def _refuse_beside_from(wanted: Wanted) -> None:
    from toishi.errors import ConfigError

    beside = {
        "RECIPE": wanted.recipe, "--model": wanted.model, "--data": wanted.data, "--prompts": wanted.prompts,
        "--set": wanted.settings, "--shots": wanted.shots,
    }  # fmt: skip
    given = [name for name, value in beside.items() if value]
    if given:
        raise ConfigError(f"--from takes answers as they are: leave {', '.join(given)} out, or leave --from out to sample anew")
    if wanted.from_ is not None and wanted.from_.resolve() == wanted.out.resolve():
        raise ConfigError(f"-o {wanted.out} would replace the answers of --from: choose another -o")


def _plan(wanted: Wanted) -> AskPlan:
    from toishi.cli.common import overrides
    from toishi.collecting.asking import AskPlan
    from toishi.collecting.shots import read_shots
    from toishi.config import load_config
    from toishi.errors import ConfigError
    from toishi.recipes import load_recipe
    from toishi.sampler import Source

    changes = overrides(wanted.settings)
    if wanted.recipe is None and (wanted.model is None or wanted.data is None):
        raise ConfigError(
            "say what is asked of whom: a RECIPE, or both --model and --data (rewards and columns then with --set)"
        )
    config = load_recipe(wanted.recipe, changes) if wanted.recipe is not None else None
    if config is None:
        file = {"name": "file", "path": str(wanted.data), "heldout": 0}
        config = load_config({"name": "collect", "task": file}, changes)
    elif wanted.data is not None:
        config = _with_data(config, wanted.data)
    source = Source(model=config.model) if wanted.model is None else Source.find(wanted.model, wanted.checkpoint)
    return AskPlan(
        recipe=wanted.recipe or str(wanted.data),
        config=_with_model(config, source),
        samples=wanted.samples,
        prompts=wanted.prompts,
        shots=() if wanted.shots is None else read_shots(wanted.shots),
        run=source.run,
        step=source.step,
    )


def _with_data(config: Config, data: Path) -> Config:
    """The recipe over another file; how its rows are read stays as the recipe has it."""
    own = config.task.options if config.task.name == "file" else {}
    task = {"name": "file", "heldout": 0} | own | {"path": str(data)}
    return config.model_copy(update={"task": type(config.task).model_validate(task)})


def _with_model(config: Config, source: Source) -> Config:
    model = source.model if source.run is not None else config.model.model_copy(update={"name": source.model.name})
    return config.model_copy(update={"model": model})
