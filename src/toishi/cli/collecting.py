"""Commands that make and choose data with a model: select, collect, pairs.

Each samples and scores answers (`cli.answering`), chooses from them (`toishi.collecting`), prints what went and why, and writes
a JSONL file whole. An empty result is an error: nothing is written then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from toishi.cli.answering import (
    Checkpoint,
    Continue,
    Data,
    From,
    Model,
    OptionalRecipe,
    Out,
    Overwrite,
    Prompts,
    RightReward,
    Samples,
    Shots,
    Threshold,
    Wanted,
    answers,
)
from toishi.cli.common import AsJson, Overrides, finite, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from toishi.cli.answering import Found
    from toishi.collecting.verdicts import Candidate, Verdict

Band = Annotated[
    str | None,
    typer.Option(
        metavar="LOW-HIGH",
        help="Keep pass rates in this band (default: all but never and always right). 0-1 keeps all.",
        show_default=False,
    ),
]
History = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Choose by what became of the prompts in this run: the --prompts whose success moved most (1).",
        show_default=False,
    ),
]


def select(
    out: Out,
    recipe: OptionalRecipe = None,
    samples: Samples = 8,
    band: Band = None,
    reward: RightReward = None,
    threshold: Threshold = 0.5,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="An evaluation set to look for overlap with. May be repeated.", show_default=False),
    ] = None,
    drop_overlap: Annotated[
        bool, typer.Option("--drop-overlap", help="Drop what held-out or evaluation sets hold too.")
    ] = False,
    drop_duplicates: Annotated[bool, typer.Option("--drop-duplicates", help="Keep the first of near-duplicates only.")] = False,
    history: History = None,
    model: Model = None,
    checkpoint: Checkpoint = "last",
    data: Data = None,
    prompts: Prompts = None,
    from_: From = None,
    go_on: Continue = False,
    overwrite: Overwrite = False,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Choose training prompts by how often a model answers them rightly.

    Every prompt is asked N times; prompts that are never or always answered rightly cannot teach by comparison and are dropped.
    Near-duplicates, and overlap with held-out prompts and evaluation sets, are reported. The chosen rows are written with their
    pass rate and where it comes from; all answers lie beside them in a .samples.jsonl file, from which --from chooses again.

    With --history a run that is there already is read instead, and nothing is sampled: the prompts whose success moved most
    (historical variance) are the examples for one-example training.

    Example:  toishi select recipe.yaml --samples 8 --band 0.1-0.9 -o chosen.jsonl
    """
    from toishi.cli.collect_tables import print_selection
    from toishi.collecting.evaluated import evaluation_sets
    from toishi.collecting.right import right_by
    from toishi.collecting.selecting import SelectPlan, read_band
    from toishi.collecting.selecting import select as choose
    from toishi.consoles import make_console
    from toishi.given import NOTHING_GIVEN, the_task

    if history is not None:
        from toishi.cli.historical import by_history

        by_history(out, history, reward, threshold, prompts or 1, as_json)
        return
    wanted_band = None if band is None else read_band(band)
    wanted = Wanted(
        recipe=recipe, from_=from_, out=out, samples=samples, prompts=prompts, model=model, checkpoint=checkpoint, data=data,
        settings=settings, go_on=go_on, overwrite=overwrite,
    )  # fmt: skip
    found = answers(wanted, make_console(stderr=True))
    right = right_by(found.header, reward, threshold)
    plan = SelectPlan(right=right, band=wanted_band, drop_duplicates=drop_duplicates, drop_overlap=drop_overlap)
    evaluated = evaluation_sets(the_task(found.config, NOTHING_GIVEN), against or (), found.config.task)
    report, rows = choose(found.header, found.asked, plan, evaluated)
    if not as_json:
        print_selection(report, make_console())
    _write(out, rows, found, report.as_record(), f"no prompt is left ({report.why_dropped})", "prompts", as_json)


def collect(
    out: Out,
    recipe: OptionalRecipe = None,
    samples: Samples = 8,
    keep: Annotated[
        Literal["right", "best", "top", "all"],
        typer.Option(help="Every right answer, the one with the highest reward, the --top highest, or all that pass."),
    ] = "right",
    top: Annotated[int, typer.Option(min=1, metavar="K", help="How many, with --keep top.")] = 4,
    min_reward: Annotated[
        float | None, typer.Option(callback=finite, metavar="X", help="Drop answers with a lower reward.", show_default=False)
    ] = None,
    reward: RightReward = None,
    threshold: Threshold = 0.5,
    min_tokens: Annotated[int, typer.Option(min=0, metavar="N", help="Drop shorter answers.")] = 0,
    max_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Drop longer answers.", show_default=False)] = None,
    keep_truncated: Annotated[
        bool, typer.Option("--keep-truncated", help="Answers that the token limit cut may stay.")
    ] = False,
    keep_unreadable: Annotated[
        bool, typer.Option("--keep-unreadable", help="Answers in which no answer can be read may stay.")
    ] = False,
    dedup: Annotated[
        Literal["exact", "words", "near", "off"],
        typer.Option(help="Which repeated answers to one prompt go: the same text, the same words, near ones too."),
    ] = "exact",
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Drop answers in other languages: en, ja, ...", show_default=False)
    ] = None,
    shots: Shots = None,
    model: Model = None,
    checkpoint: Checkpoint = "last",
    data: Data = None,
    prompts: Prompts = None,
    from_: From = None,
    go_on: Continue = False,
    overwrite: Overwrite = False,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Rejection sampling: ask every prompt N times, and write the answers that are good enough to be learnt from by SFT.

    Rows have prompt (text) or messages (a chat), completion, reward, scores, and where they come from. Every answer that is
    dropped is counted under its reason; all of them lie in a .samples.jsonl file, from which --from chooses again without a
    model.

    Example:  toishi collect recipe.yaml --samples 16 --keep best --min-reward 1 -o sft.jsonl
    """
    from toishi.cli.collect_tables import print_kept
    from toishi.collecting.keeping import KeepPlan
    from toishi.collecting.keeping import keep as choose
    from toishi.collecting.right import right_by
    from toishi.consoles import make_console

    wanted = Wanted(
        recipe=recipe, from_=from_, out=out, samples=samples, prompts=prompts, model=model, checkpoint=checkpoint, data=data,
        settings=settings, go_on=go_on, overwrite=overwrite, shots=shots,
    )  # fmt: skip
    found = answers(wanted, make_console(stderr=True))
    plan = KeepPlan(
        keep=keep, right=right_by(found.header, reward, threshold) if keep == "right" else None, top=top,
        min_reward=min_reward, min_tokens=min_tokens, max_tokens=max_tokens, truncated=keep_truncated,
        unreadable=keep_unreadable, dedup=dedup, language=language,
    )  # fmt: skip
    report, rows = choose(found.header, found.asked, plan)
    if not as_json:
        print_kept(report, make_console())
    _write(out, rows, found, report.as_record(), f"no answer is left ({report.why_dropped})", "answers", as_json)


def pairs(
    out: Out,
    recipe: OptionalRecipe = None,
    samples: Samples = 8,
    per_prompt: Annotated[int, typer.Option(min=1, metavar="K", help="Pairs of a prompt, at most.")] = 1,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A judge of the recipe (mode: pairwise) decides, not the rewards.", show_default=False
        ),
    ] = None,
    calls: Annotated[int, typer.Option(min=2, metavar="N", help="Of the judge for each pair, half in each order.")] = 4,
    min_margin: Annotated[
        float | None,
        typer.Option(
            callback=finite,
            min=0.0,
            metavar="X",
            help="Keep larger margins only (default: 0 of rewards, 0.5 of a judge).",
            show_default=False,
        ),
    ] = None,
    no_balance: Annotated[
        bool, typer.Option("--no-balance", help="Do not balance the lengths of chosen and rejected.")
    ] = False,
    model: Model = None,
    checkpoint: Checkpoint = "last",
    data: Data = None,
    prompts: Prompts = None,
    from_: From = None,
    go_on: Continue = False,
    overwrite: Overwrite = False,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Make preference pairs: of the answers to each prompt the best against the worst, by their rewards or by a judge.

    A judge is shown each pair several times, in both orders equally often; its margin is the mean from -1 to 1. Lengths of
    chosen and rejected answers are balanced.

    Example:  toishi pairs recipe.yaml --samples 8 --per-prompt 2 -o pairs.jsonl
    """
    from toishi.cli.collect_tables import print_paired
    from toishi.collecting.pairing import PairPlan, candidates, pair_up
    from toishi.collecting.samples import claim
    from toishi.collecting.verdicts import verdicts_path
    from toishi.consoles import make_console

    wanted = Wanted(
        recipe=recipe, from_=from_, out=out, samples=samples, prompts=prompts, model=model, checkpoint=checkpoint, data=data,
        settings=settings, go_on=go_on, overwrite=overwrite,
    )  # fmt: skip
    if judge is not None:
        claim([verdicts_path(out)], go_on=go_on, overwrite=overwrite)
    console = make_console(stderr=True)
    found = answers(wanted, console)
    margin = min_margin if min_margin is not None else 0.0 if judge is None else 0.5
    plan = PairPlan(per_prompt=per_prompt, min_margin=margin, balance=not no_balance)
    verdicts = None
    if judge is not None:
        verdicts = _verdicts(found, judge, candidates(found.asked, plan)[0], out, calls, go_on, console)
    report, rows = pair_up(found.header, found.asked, plan, by=judge or "reward", verdicts=verdicts)
    if not as_json:
        print_paired(report, make_console())
    _write(out, rows, found, report.as_record(), f"no pair is left ({report.why_dropped})", "pairs", as_json)


def _verdicts(
    found: Found, name: str, asked: list[Candidate], out: Path, calls: int, go_on: bool, console: Console
) -> dict[str, Verdict]:
    """What the recipe's judge `name` says of the candidates."""
    from toishi.collecting.verdicts import judged_by, verdicts_path
    from toishi.counting import counting

    with counting(console, "pairs") as told:
        said, notes = judged_by(found.config, name, asked, verdicts_path(out), calls=calls, go_on=go_on, on_progress=told)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False)
    return said


def _write(
    out: Path, rows: list[dict[str, Any]], found: Found, report: dict[str, Any], nothing: str, noun: str, as_json: bool
) -> None:
    """The rows, and the last word of a command. Raises DataError when there is no row."""
    from toishi.collecting.samples import write_rows
    from toishi.errors import DataError

    if not rows:
        older = " (what is there is from before)" if out.exists() else ""
        raise DataError(
            f"{nothing}, so {out} was not written{older}. All answers are in {found.file}: --from {found.file} chooses again"
        )
    write_rows(out, rows)
    if as_json:
        print_json(report | {"file": str(out), "samples_file": str(found.file), "source": found.header.provenance})
    else:
        typer.echo(f"{len(rows)} {noun} written to {out}; all answers: {found.file}")


COMMANDS = (select, collect, pairs)
