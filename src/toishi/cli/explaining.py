"""`toishi explain RUN`: all steps at a glance, one step in full, or one group or answer followed through every link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, RunFolder, print_json, write_page

if TYPE_CHECKING:
    from rich.console import Console

    from toishi.explanation.chain.model import Chain
    from toishi.record import Run

Number = int | None


def _whole(name: str, metavar: str, words: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(name, metavar=metavar, min=0, help=words, show_default=False)
    return info


def explain(
    run: RunFolder,
    step: Annotated[Number, _whole("--step", "N", "Show this step (default: an overview of all).")] = None,
    group: Annotated[
        Number, _whole("--group", "K", "Follow this prompt's answers, from the scores to the probabilities.")
    ] = None,
    member: Annotated[Number, _whole("--member", "I", "Follow this answer of the group, token by token.")] = None,
    update: Annotated[
        Number, _whole("--update", "U", "Show the pushes of this optimizer update (default: the first with this group).")
    ] = None,
    language: Annotated[str, typer.Option("--lang", metavar="en|ja", help="Language of what is followed.")] = "en",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one HTML file instead.", show_default=False)
    ] = None,
    rejudge: Annotated[
        int | None,
        typer.Option(
            "--rejudge", metavar="M", min=1, help="Judge the step M times more: which signs change?", show_default=False
        ),
    ] = None,
    reward: Annotated[
        str | None, typer.Option("--reward", metavar="NAME", help="With --rejudge: ask this reward only.", show_default=False)
    ] = None,
    influence: Annotated[
        bool, typer.Option("--influence", help="With --step: which answer moved which; does the step again if need be.")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="With --member: the same, token by token.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how a step turned scores into pushes on tokens, and what it did to the probabilities.

    Without --step: one line for every step, the reward curve, and the steps worth a closer look. Every number of a followed
    group or answer is recomputed; ends with exit code 1 if one does not follow from those before it, naming the link. Without
    --group, the group and the answer that pushed most are chosen.

    Example:  toishi explain runs/first --step 12 --group 0 --member 3 --html step12.html
    """
    from rich.console import Console

    from toishi.record import Run

    asked = (group, member, update, html)
    _require_step(step, asked, rejudge, reward, influence or tokens)
    found, console = Run.open(run), Console()
    if step is not None and rejudge is not None:
        _rejudged(found, step, rejudge, reward, as_json)
        return
    if step is None:
        _overview(found, console, as_json)
        return
    from toishi.explanation.chain.build import explain_chain

    if influence or tokens:
        from toishi.cli.influencing import ensure_influence

        ensure_influence(found, step, tokens=tokens)
    chain = explain_chain(found, step, group=group, member=member, update=update, language=language)
    if html is not None:
        _write(found, chain, language, html)
    if as_json:
        _print_json(found, chain, with_step=group is None)
    elif html is None:
        _print(found, chain, console, language, with_step=group is None)
    if chain.broken is not None:
        check = next(check for check in chain.checks if not check.ok)
        typer.echo(f"the first broken link is '{check.name}': {check.where}", err=True)
        raise typer.Exit(1)


def _require_step(
    step: int | None, asked: tuple[object, ...], rejudge: int | None, reward: str | None, influence: bool
) -> None:
    """Raises BadParameter for options that do not go together; `asked` are those that follow a group or an answer."""
    followed = any(value is not None for value in asked)
    if step is None and (followed or influence or rejudge is not None):
        raise typer.BadParameter("following a group or an answer needs a step; add --step N", param_hint="--step")
    if reward is not None and rejudge is None:
        raise typer.BadParameter("it says what to ask again; add --rejudge M", param_hint="--reward")
    if rejudge is not None and (followed or influence):
        text = "it judges the whole step; leave group, member, update, html and influence out"
        raise typer.BadParameter(text, param_hint="--rejudge")


def _overview(run: Run, console: Console, as_json: bool) -> None:
    from toishi.explanation.overview import overview, render_overview

    whole = overview(run)
    print_json(whole.as_dict()) if as_json else render_overview(whole, console)


def _rejudged(run: Run, step: int, times: int, reward: str | None, as_json: bool) -> None:
    from toishi.cli.rejudge_tables import render_rejudged
    from toishi.consoles import make_console
    from toishi.rejudging import rejudge

    console = make_console(stderr=as_json)
    with console.status("judging again"):
        found = rejudge(run, step, times, reward=reward)
    print_json(found.as_record()) if as_json else render_rejudged(found, console)


def _write(run: Run, chain: Chain, language: str, path: Path) -> None:
    """With the answers to what a reader may ask of the group."""
    from toishi.consoles import make_console
    from toishi.counterfactual.grid import whatifs_of
    from toishi.explanation.chain.story import page
    from toishi.explanation.page.render_html import html_page

    update = 0 if chain.weights is None else chain.weights.update
    with make_console(stderr=True).status("asking what other scores would have done"):
        asked = whatifs_of(run, chain.step, chain.group, first=chain.member, update=update)
    write_page(path, html_page(page(chain, language, asked=asked)))


def _print_json(run: Run, chain: Chain, *, with_step: bool) -> None:
    """The chain alone when a group was named; else the step's view with the chain inside."""
    from dataclasses import asdict

    if not with_step:
        print_json(asdict(chain))
        return
    from toishi.explanation.step import step_report

    print_json({**step_report(run, chain.step).as_dict(), "chain": asdict(chain)})


def _print(run: Run, chain: Chain, console: Console, language: str, *, with_step: bool) -> None:
    """The whole chain when a group was named; else the step's tables and what the chain comes to."""
    from toishi.explanation.chain.story import TERMINAL_ROWS, page, summary
    from toishi.explanation.page.render_terminal import render, render_section

    if not with_step:
        render(page(chain, language, TERMINAL_ROWS), console)
        return
    from toishi.explanation.render import render_step
    from toishi.explanation.step import step_report

    render_step(step_report(run, chain.step), console)
    console.print("")
    render_section(summary(chain, language), console)
