"""The cases of the folder `cases`, and one way to ask both the command's function and the reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.rewards.judging import asked, judge
from toishi.answers.reading import read_gold
from toishi.answers.verifying import Verdict, verify
from toishi.rewards.math import MathReward

FOLDER = Path(__file__).parent / "cases"


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def paid(gold: Any, completion: str) -> float | None:
    """What the reward `math` pays, after making sure that `verify` says the same."""
    verdict = said(gold, completion)
    value = judge(MathReward(), completion, asked("Solve the problem.", gold=gold)).value
    assert value == {"right": 1.0, "wrong": 0.0, "no_answer": 0.0, "undecided": None}[verdict.verdict]
    return value


def said(gold: Any, completion: str) -> Verdict:
    return verify(read_gold(gold), completion)
