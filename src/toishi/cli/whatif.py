"""`toishi whatif`: a recorded step with other scores, fewer answers or another rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, RunFolder, print_json

if TYPE_CHECKING:
    from toishi.counterfactual.change import Change
    from toishi.counterfactual.model import WhatIf
    from toishi.counterfactual.recorded import RecordedStep


def whatif(
    run: RunFolder,
    step: Annotated[int, typer.Option("--step", metavar="N", min=1, help="The step.")],
    group: Annotated[int, typer.Option("--group", metavar="K", min=0, help="The prompt whose answers are judged otherwise.")],
    score: Annotated[
        list[str] | None,
        typer.Option(
            "--score",
            metavar="[NAME:]I=S",
            help="Answer I would have got S, on the reward's own scale. May be repeated.",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        list[int] | None,
        typer.Option(
            "--drop", metavar="I", min=0, help="Answer I would have been left out. May be repeated.", show_default=False
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Another rule, e.g. algorithm.scale=none. May be repeated.", show_default=False
        ),
    ] = None,
    update: Annotated[int, typer.Option("--update", metavar="U", min=0, help="Which optimizer update of the step.")] = 0,
    real: Annotated[
        bool, typer.Option("--real", help="Also do the step again with the change; the cost is said first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What a step would have done, had a judge scored otherwise: new advantages, and new probabilities with their error bar.

    Advantages and token weights are exact. Probabilities are forecast from the record alone (record.trace_influence, or toishi
    explain --influence), without the model; a change smaller than its bar has no sign. All changes of one call hold together.

    Example:  toishi whatif runs/first --step 12 --group 0 --score 3=9 --real
    """
    from toishi.cli.common import overrides
    from toishi.consoles import make_console
    from toishi.counterfactual.answering import answer
    from toishi.counterfactual.change import change_of, read_scores
    from toishi.counterfactual.recorded import read_step
    from toishi.counterfactual.render import render_whatif
    from toishi.record import Run

    change = change_of(read_scores(score or ()), drop or (), overrides(settings))
    recorded = read_step(Run.open(run), step, group)
    found = answer(recorded, group, change, update=update)
    if real:
        found = _redone(recorded, change, found)
    print_json(found.as_dict()) if as_json else render_whatif(found, make_console())


def _redone(step: RecordedStep, change: Change, found: WhatIf) -> WhatIf:
    """The same with the step really done again; progress on stderr."""
    from toishi.consoles import make_console
    from toishi.counterfactual.answering import with_real
    from toishi.counterfactual.redo import redo_changed, redone
    from toishi.replay.plan import plan_replay

    aside = make_console(stderr=True)
    plan = plan_replay(step.run, found.step)
    aside.print(f"{plan.text}; then step {found.step} once more with the change", highlight=False, soft_wrap=True)
    with aside.status("loading the model") as status:
        (done,), report = redo_changed(step, plan, [(found.group, change)], on_stage=status.update)
    return with_real(found, done.changes, redone=redone(done, report))
