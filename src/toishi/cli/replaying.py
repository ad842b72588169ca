"""The command that does a recorded step again: replay."""

from __future__ import annotations

from typing import Annotated

import typer

from toishi.cli.common import AsJson, RunFolder, print_json


def replay(
    run: RunFolder,
    step: Annotated[int, typer.Option("--step", metavar="N", min=1, help="The step to do again.")],
    trace: Annotated[
        bool, typer.Option("--trace", help="Also measure what the step did, and SFT beside it; written to traces/ in RUN.")
    ] = False,
    group: Annotated[
        int | None,
        typer.Option(
            "--group", metavar="K", min=0, help="With --trace: the group to put SFT beside (default: the most mixed)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do a recorded step again and compare every link, from the scores to the weights.

    Starts from the nearest checkpoint and the recorded answers: nothing is sampled or scored. On the run's own machine and
    versions every bit must agree; elsewhere within stated bounds. Ends with exit code 1 at the first link that differs.

    Example:  toishi replay runs/first --step 12
    """
    from toishi.consoles import make_console
    from toishi.record import Run
    from toishi.replay.plan import plan_replay

    if group is not None and not trace:
        raise typer.BadParameter("it chooses what is traced; add --trace", param_hint="--group")
    console, aside = make_console(), make_console(stderr=True)
    found = Run.open(run)
    plan = plan_replay(found, step)
    aside.print(plan.text, highlight=False, soft_wrap=True)
    with aside.status("loading the model") as status:
        from toishi.cli.replay_tables import replay_texts, trace_text
        from toishi.replay.redo import replay as replay_run
        from toishi.tracing.afterwards import replay_traced

        def on_step(number: int) -> None:
            status.update(f"doing step {number} of {plan.step} again")

        made = None
        if trace:
            report, made = replay_traced(found, plan, group=group, on_step=on_step)
        else:
            report = replay_run(found, plan, on_step=on_step)
    if as_json:
        print_json(report.as_dict())
    else:
        for text in replay_texts(report):
            console.print(text)
    if trace:
        aside.print(trace_text(found.folder, step, made), highlight=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)
