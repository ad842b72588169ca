"""The command that compares one completion with one gold."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from toishi.cli.common import AsJson, finite, print_json

UNDECIDED = 3
SETTINGS = {"ignore_unknown_options": True}
"""For the command: a gold such as -17 is no option."""

KEYS = ("verdict", "extracted", "gold_read", "answer_read", "reason")


def verify(
    gold: Annotated[
        str, typer.Argument(metavar="GOLD", help="The right answer, as it stands in the data.", show_default=False)
    ],
    completion: Annotated[
        str, typer.Argument(metavar="COMPLETION", help="What the model wrote, all of it; - reads stdin.", show_default=False)
    ],
    type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="How the gold is read; auto: by what it looks like.")
    ] = "auto",
    where: Annotated[
        str, typer.Option("--where", metavar="WHERE", help="Where an answer may stand: box, marked, anywhere.")
    ] = "marked",
    unit: Annotated[
        str, typer.Option("--unit", metavar="RULE", help="A unit or percent sign: required or optional.")
    ] = "required",
    tolerance: Annotated[
        float, typer.Option(callback=finite, min=0.0, max=1.0, help="How far off a number counts, relative to the gold.")
    ] = 0.0,
    question: Annotated[
        str, typer.Option("--question", metavar="TEXT", help="The question: its words may stand behind a number.")
    ] = "",
    limit_s: Annotated[
        float, typer.Option("--limit-s", callback=finite, min=0.05, help="Seconds that comparing formulas may take.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Compare a completion with a gold, as the reward `math` does, and say how both were read.

    The verdict is right, wrong, no_answer or undecided (could not be compared, or the gold could not be read whole). The
    exit code is 0 for the first three, whichever it is, and 3 for undecided.

    Example:  toishi verify "12500" "So the total is \\boxed{12,500}." --json
    """
    options = {"type": type, "where": where, "unit": unit, "tolerance": tolerance, "limit_s": limit_s}
    found = _verdict(gold, sys.stdin.read() if completion == "-" else completion, options, question)
    record = {key: found[key] for key in KEYS}
    if as_json:
        print_json(record)
    else:
        for key, value in record.items():
            typer.echo(f"{key:<12} {'-' if value is None else value}".rstrip())
    if record["verdict"] == "undecided":
        raise typer.Exit(UNDECIDED)


def _verdict(gold: str, completion: str, options: dict[str, Any], question: str) -> dict[str, Any]:
    from toishi.answers.reading import read_gold
    from toishi.answers.things import words_of
    from toishi.answers.verifying import check_gold, verify
    from toishi.errors import DataError
    from toishi.options import from_options
    from toishi.rewards.math import MathReward

    reward = from_options(MathReward, options, where="verify")
    try:
        read = read_gold(gold, reward.type)
        problem = check_gold(read)
    except DataError as error:
        return _refused(str(error))
    return _refused(problem) if problem else asdict(verify(read, completion, replace(reward.rules, things=words_of(question))))


def _refused(problem: str) -> dict[str, Any]:
    return {"verdict": "undecided", "extracted": None, "gold_read": None, "answer_read": None, "reason": problem}
