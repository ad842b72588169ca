"""`toishi judge audit`: how far a recipe's judge can be trusted, in numbers with intervals, and one sentence what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toishi.cli.common import AsJson, Overrides, finite, overrides, print_json

if TYPE_CHECKING:
    from toishi.config import Config
    from toishi.rejudging import AuditAnswers


def audit(
    source: Annotated[
        str, typer.Argument(metavar="RECIPE|RUN", help="Whose judge: a recipe, or a run's folder.", show_default=False)
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Answers to judge: rows with prompt, answer, and label (true, false or a number); source: own or other.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="NAME", help="A checker of the recipe that knows the truth.", show_default=False),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option("--reward", metavar="NAME", help="Which reward to audit (default: the only judge).", show_default=False),
    ] = None,
    askings: Annotated[int, typer.Option(min=1, help="How often each answer is judged; repeat noise needs two.")] = 3,
    answers: Annotated[int, typer.Option(min=1, help="At most so many answers; of a run the latest.")] = 200,
    group_size: Annotated[
        int | None,
        typer.Option(min=2, help="Group size for the table of signs (default: the recipe's).", show_default=False),
    ] = None,
    threshold: Annotated[float, typer.Option(callback=finite, help="A score at or above it calls an answer right.")] = 0.5,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Measure a recipe's judge: agreement with labels or a checker, error rates, biases, repeat noise, and what that noise does
    to the signs of advantages.

    On a run, its recorded answers are judged again. On a recipe, give labelled answers. Ends with a verdict: good, usable,
    unclear or bad, by bands that docs/judge-audit.md states, and with what to do.

    Example:  toishi judge audit rlaif.yaml --labels answers.jsonl --askings 3
    """
    from toishi.cli.audit_tables import render_audit
    from toishi.consoles import make_console
    from toishi.rejudging import AuditPlan, audit_judge

    config, found = _opened(source, labels, answers, overrides(settings))
    plan = AuditPlan(reward=reward, against=against, askings=askings, group_size=group_size, threshold=threshold)
    console = make_console(stderr=as_json)
    with console.status("judging") as status:
        report = audit_judge(config, found, plan, lambda name, done, total: status.update(f"{name}: {done} of {total}"))
    print_json(report.as_record()) if as_json else render_audit(report, console)


def _opened(source: str, labels: Path | None, limit: int, changes: dict[str, Any]) -> tuple[Config, AuditAnswers]:
    """The configuration and the answers."""
    from toishi.config import load_config
    from toishi.errors import ConfigError
    from toishi.recipes import load_recipe
    from toishi.record import Run
    from toishi.recorded import recorded_config
    from toishi.rejudging import answers_of_file, answers_of_run

    run = Run.open(source) if Path(source).is_dir() else None
    config = load_recipe(source, changes) if run is None else recorded_config(run)
    if run is not None and changes:
        config = load_config(config.model_dump(mode="json"), changes)
    if labels is not None:
        return config, answers_of_file(labels, limit=limit)
    if run is None:
        raise ConfigError(
            f"{source} is a recipe and holds no answers: give some to judge with --labels FILE (rows with prompt, answer and "
            "label), or audit a run of it, whose answers are on record"
        )
    return config, answers_of_run(run, limit=limit)
