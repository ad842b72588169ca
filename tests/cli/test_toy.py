"""`toishi explain toy`: its options, its mistakes, and a run folder that is called toy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command


def test_prints_the_walk(toishi: Command) -> None:
    ended = toishi("explain", "toy", width=100)
    assert ended.code == 0
    assert "One step of GRPO" in ended.out
    assert "51.4%" in ended.out


def test_in_japanese(toishi: Command) -> None:
    ended = toishi("explain", "toy", "--lang", "ja", width=100)
    assert ended.code == 0
    assert "アドバンテージ" in ended.out


def test_json_may_come_first(toishi: Command) -> None:
    assert json.loads(toishi("explain", "--json", "toy").out)["mean"] == pytest.approx(0.5)


def test_writes_one_file(toishi: Command, tmp_path: Path) -> None:
    ended = toishi("explain", "toy", "--html", tmp_path / "toy.html")
    assert (ended.code, ended.out) == (0, "")
    assert "toy.html" in ended.err
    assert (tmp_path / "toy.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    refused = toishi("explain", "toy", "--html", tmp_path / "no" / "toy.html")
    assert refused.code == 1
    assert "cannot be written" in refused.err


def test_own_numbers(toishi: Command) -> None:
    options = ("--words", "yes,no,.", "--first", ".5,.3,.2", "--second", ".1,.1,.8", "--scores", "1,0,-", "--points", "1")
    found = json.loads(toishi("explain", "toy", "--json", *options, "--comments", "right|wrong|").out)
    assert found["world"]["words"] == ["yes", "no", "."]
    assert [answer["reward"] for answer in found["answers"]] == [1.0, 0.0, None]
    assert [answer["advantage"] for answer in found["answers"]] == pytest.approx([1.0, -1.0, 0.0])
    assert [answer["comment"] for answer in found["answers"]] == ["right", "wrong", ""]
    assert found["before"]["expected_reward"] is None
    assert found["sft"]["answer"] == "yes ."


def test_own_answers_and_drawn_ones(toishi: Command) -> None:
    named = json.loads(toishi("explain", "toy", "--json", "--answers", "good,good,bad", "--target", "ok").out)
    assert [answer["text"] for answer in named["answers"]] == ["good <end>", "good <end>", "bad <end>"]
    assert named["sft"]["answer"] == "ok <end>"
    drawn = [json.loads(toishi("explain", "toy", "--json", "-G", "6", "--seed", seed).out)["answers"] for seed in "112"]
    assert len(drawn[0]) == 6
    assert drawn[0] == drawn[1] != drawn[2]


def test_own_step(toishi: Command) -> None:
    bounds = ("--clip-low", ".1", "--clip-high", ".5")
    options = ("--row", "dapo", *bounds, "--kl", "k3", "--beta", ".1", "--set", "reduction=sequence_sum")
    found = json.loads(toishi("explain", "toy", "--json", *options, "--optimizer", "adam", "--lr", ".5", "--inner", "3").out)
    row = found["row"]
    assert (row["name"], row["clip_low"], row["clip_high"], row["kl"], row["kl_coef"]) == ("dapo", 0.1, 0.5, "k3", 0.1)
    assert row["reduction"] == "sequence_sum"
    steps = [update["step"] for update in found["updates"]]
    assert [(step["optimizer"], step["lr"]) for step in steps] == [("adam", 0.5)] * 3
    assert [abs(change) for change in steps[0]["change"]["first"]] == pytest.approx([0.5] * 4, abs=1e-6)
    assert (found["beside_step"]["optimizer"], found["beside_step"]["lr"]) == ("sgd", 2.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scores", "8,6,3"), "got 3 scores of the judge, expected 4: one for each of good, ok, bad, <end>"),
        (("--scores", "8,x,3,3"), "--scores: 'x' is not a number"),
        (("--first", ".4,.3,.2,.2"), "sum to 1.1, expected 1; divide each by 1.1"),
        (("--row", "grop"), "unknown algorithm 'grop'; did you mean 'grpo'?"),
        (("--set", "scal=none"), "there is no choice 'scal' in an algorithm's row; did you mean 'scale'?"),
        (("--set", "scale=nothing"), "got 'nothing'"),
        (("--set", "scale"), "expected key=value"),
        (("--lang", "jp"), "no texts in language 'jp'; known: en, ja"),
        (("--answers", "goood"), "'goood' is not a word of this vocabulary; did you mean 'good'?"),
        (("--answers", "good", "-G", "3"), "give one of the two"),
        (("-G", "0"), "at least one answer, got 0"),
        (("--optimizer", "adma"), "unknown optimizer 'adma'; known: sgd, adam"),
        (("--kl", "k5"), "kl: Input should be"),
    ],
)
def test_mistakes_are_named(options: tuple[str, ...], message: str, toishi: Command) -> None:
    ended = toishi("explain", "toy", *options)
    assert (ended.code, ended.out) == (1, "")
    assert message in " ".join(ended.err.split())


def test_help_has_an_example(toishi: Command) -> None:
    ended = toishi("explain", "toy", "--help", width=120)
    assert ended.code == 0
    assert "Example:  toishi explain toy" in ended.out or "Example: toishi explain toy" in ended.out
    assert "explain toy" in toishi("--help", width=120).out


def test_a_run_of_that_name_is_shown_instead(toishi: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    ended = toishi("explain", "toy")
    assert ended.code == 1
    assert "toy" in ended.err
