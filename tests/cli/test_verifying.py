"""`toishi verify`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.answers.cases_of import cases
from tests.cli.conftest import Command

KEYS = ["verdict", "extracted", "gold_read", "answer_read", "reason"]


@pytest.mark.parametrize("case", cases("answers"), ids=lambda case: str(case["kind"]))
def test_reported_cases(case: dict[str, object], toishi: Command) -> None:
    ended = toishi("verify", str(case["gold"]), str(case["completion"]), "--json")
    found = json.loads(ended.out)
    assert list(found) == KEYS
    assert (found["verdict"] == "right") == bool(case["right"])
    assert ended.code == 0


@pytest.mark.parametrize(
    ("gold", "completion", "verdict", "code"),
    [
        ("5", r"\boxed{5}", "right", 0),
        ("-17", "-17", "right", 0),
        ("5", r"\boxed{6}", "wrong", 0),
        ("5", "", "no_answer", 0),
        ("5", r"\boxed{9^{9^{9^9}}}", "undecided", 3),
        ("", "5", "undecided", 3),
        ("3x +", "5", "undecided", 3),
    ],
)
def test_verdicts_and_exit_codes(gold: str, completion: str, verdict: str, code: int, toishi: Command) -> None:
    ended = toishi("verify", gold, completion, "--json")
    assert (json.loads(ended.out)["verdict"], ended.code) == (verdict, code)


def test_a_refused_gold_says_why(toishi: Command) -> None:
    found = json.loads(toishi("verify", "3x +", "5", "--json").out)
    assert (found["gold_read"], found["extracted"]) == (None, None)
    assert "ends too early" in found["reason"]


def test_text(toishi: Command) -> None:
    ended = toishi("verify", "6 cm", r"\boxed{6\text{ m}}")
    assert ended.out.splitlines() == [
        "verdict      wrong",
        r"extracted    6\text{ m}",
        "gold_read    6 cm",
        "answer_read  6 m",
        "reason       6 m is not 6 cm",
    ]


def test_options(toishi: Command) -> None:
    def verdict(*arguments: str) -> str:
        return str(json.loads(toishi("verify", *arguments, "--json").out)["verdict"])

    assert verdict("6 cm", r"\boxed{6}", "--unit", "optional") == "right"
    assert verdict("5", "The answer is 5.", "--where", "box") == "no_answer"
    assert verdict("C", r"\boxed{c}", "--type", "text") == "right"
    assert verdict(r"\pi", r"\boxed{3.14}", "--tolerance", "0.01") == "right"
    assert verdict("5", r"\boxed{5\text{ gizmos}}") == "wrong"
    assert verdict("5", r"\boxed{5\text{ gizmos}}", "--question", "How many gizmos?") == "right"
    ended = toishi("verify", "5", "5", "--type", "nmber")
    assert ended.code == 1
    assert "verify.type" in ended.err


def test_a_completion_from_stdin() -> None:
    text = "word " * 400_000 + r"\boxed{5}"
    command = [sys.executable, "-m", "toishi", "verify", "5", "-", "--json"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["verdict"] == "right"
