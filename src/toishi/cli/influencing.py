"""`toishi explain --influence`: makes the account of who moved what, where it is not on record, by doing the step again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from toishi.record import Run


def ensure_influence(run: Run, step: int, *, tokens: bool = False) -> None:
    """Does the step again from the nearest checkpoint and traces it; the cost is printed first. Nothing, when it is on record.

    tokens  shares are wanted token by token
    Ends with exit code 1 when the step does not come out as recorded, or nothing can be said of it.
    """
    from toishi.consoles import make_console
    from toishi.record.influence_files import has_influence, read_influence
    from toishi.replay.plan import plan_replay

    if has_influence(run.folder, step) and not (tokens and not read_influence(run.folder, step).has_tokens):
        return
    aside = make_console(stderr=True)
    plan = plan_replay(run, step)
    missing = "which tokens pushed" if tokens else "who moved what"
    aside.print(f"{missing} is not on record: {plan.text}; then each text's gradient", highlight=False, soft_wrap=True)
    with aside.status("loading the model") as status:
        from toishi.tracing.afterwards import replay_traced

        def on_step(number: int) -> None:
            status.update(f"doing step {number} of {plan.step} again")

        why = "asked for (toishi explain --influence)"
        report, trace = replay_traced(run, plan, influence=True, tokens=tokens, why=why, on_step=on_step)
    if report.difference is not None:
        typer.echo(f"nothing was written: {report.difference.text}", err=True)
        raise typer.Exit(1)
    if not has_influence(run.folder, step):
        typer.echo("; ".join(trace.notes if trace is not None else ()) or "nothing moved in this step", err=True)
        raise typer.Exit(1)
