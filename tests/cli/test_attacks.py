"""What `toishi check` says of attacks on a recipe's rewards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

SERVER = "{base_url: 'http://127.0.0.1:9/v1', model: judge}"


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    path = tmp_path / "weak.yaml"
    path.write_text("rewards: [{name: contains, phrases_column: answer}]\n", encoding="utf-8")
    return path


def test_what_paid_is_a_table_a_remedy_and_a_warning(weak: Path, toishi: Command) -> None:
    ended = toishi("check", weak, "--no-model")
    assert ended.code == 0, "a warning forbids nothing"
    out = " ".join(ended.out.split())
    assert "attacks on the rewards, " in out
    assert "contains lists all candidates 1.00 0.00 1.00" in out
    assert "read one answer at one place" in out
    assert "warning in attacks: the sum of the rewards pays" in out
    assert "Training could start (the model was not looked at), with 1 warning." in out
    assert all(len(line.rstrip()) <= 80 for line in ended.out.splitlines())


def test_attacks_can_be_left_out(weak: Path, toishi: Command) -> None:
    ended = toishi("check", weak, "--no-model", "--no-attacks")
    assert "attack" not in ended.out
    assert json.loads(toishi("check", weak, "--no-model", "--no-attacks", "--json").out)["attacks"] is None


def test_the_report_as_json(weak: Path, toishi: Command) -> None:
    report = json.loads(toishi("check", weak, "--no-model", "--json").out)
    first = report["attacks"]["hacked"][0]
    assert (first["reward"], first["attack"], first["paid"], first["on"]) == ("the sum", "lists all candidates", 1.0, 4)
    assert report["attacks"]["form_only"] == []
    assert [finding["part"] for finding in report["findings"]] == ["attacks"]


def test_a_sound_reward_and_a_form(toishi: Command) -> None:
    sound = " ".join(toishi("check", "sums", "--no-model").out.split())
    assert "The sum pays no attack as much as the right answer." in sound
    assert "Nothing wrong found" in sound
    form = " ".join(toishi("check", "length30", "--no-model").out.split())
    assert "'length' pays a wrong answer as much as the right one: it looks at form" in form
    assert "Nothing wrong found" in form


def test_the_cost_of_a_judge_is_said_before_it_is_asked(tmp_path: Path, toishi: Command) -> None:
    path = tmp_path / "judged.yaml"
    path.write_text(f"rewards: [{{name: judge, probe: 'off', judge: {SERVER}}}]\n", encoding="utf-8")
    refused = toishi("check", path, "--no-model")
    assert refused.code == 1, "no judge answers there: nothing is asked twice"
    assert "The attacks ask" not in refused.out
    code = toishi("check", "code", "--no-model")
    if code.code == 0:
        said, shown = code.out.index("The attacks ask 'code' about"), code.out.index("attacks on the rewards")
        assert said < shown
