"""`toishi judge parse`: every text of the cases as a person would pipe it in."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import Command
from tests.judging.cases_of import EVERY, IDS, Case
from toishi.cli.app import app


def parse(text: str, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["judge", "parse", *arguments], input=text.encode("utf-8"))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.mark.parametrize("case", EVERY, ids=IDS)
def test_every_text(case: Case) -> None:
    group = [] if case.candidates is None else ["--candidates", str(case.candidates)]
    code, out = parse(case.text, f"--scale={case.scale}", "--form", case.form, *group, "--json")
    said = json.loads(out)
    key = "score" if case.candidates is None else "scores"
    expected = None if case.error else case.expected
    assert (code, said[key], said["error"]) == (0, expected, case.error or None)
    assert bool(said["why"]) == bool(case.error)
    assert said.keys() == {key, "error", "why"}


def test_in_words() -> None:
    assert parse('{"score": 7.5}') == (0, "score 7.5 of 1-10\n")
    assert parse('{"scores": [7, 2]}', "--candidates", "2") == (0, "scores 7, 2 of 1-10\n")
    assert parse('{"score": 15}') == (0, "no score (out_of_range): the score is 15, outside 1-10\n")


def test_the_range_is_stated() -> None:
    assert parse('{"score": 0.5}', "--scale", "0-1") == (0, "score 0.5 of 0-1\n")
    assert parse("Rating: [[3]]", "--form", "rating") == (0, "score 3 of 1-10\n")


def test_bytes_that_are_no_text_are_read_as_far_as_they_go() -> None:
    result = CliRunner().invoke(app, ["judge", "parse"], input=b'{"reason": "\xff", "score": 4}')
    assert (result.exit_code, result.stdout) == (0, "score 4 of 1-10\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scale", "ten"), "--scale: expected the lowest and the highest score"),
        (("--scale", "A-E"), "letters are read from probabilities"),
        (("--candidates", "2", "--form", "rating"), "a group's scores are read as JSON only"),
    ],
)
def test_options_that_cannot_be_meant(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["judge", "parse", *arguments], input="{}")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == ""


def test_help_has_an_example_that_works(toishi: Command) -> None:
    ended = toishi("judge", "parse", "--help", width=120)
    assert ended.code == 0
    assert "toishi judge parse --scale 1-10" in ended.out
    assert "parse" in toishi("judge", "--help").out
