"""explain, audit, algorithms, recipes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Command, Finished
from toishi.algorithms.notes import describe
from toishi.algorithms.rows import ROWS
from toishi.recipes import recipe_names, recipe_path
from toishi.record.reader import Run


def test_explain_shows_every_step(finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, width=120)
    assert ended.code == 0
    assert "6 steps on record" in ended.out
    assert "┤" in ended.out


def test_explain_shows_a_step(finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, "--step", "3", width=120)
    assert ended.code == 0
    run = Run.open(finished.folder)
    for row in run.rollout_rows(3):
        assert f"{row['advantage']:+.3f}".replace("+0.000", "0.000") in ended.out


def test_explain_json(finished: Finished, toishi: Command) -> None:
    step = json.loads(toishi("explain", finished.folder, "--step", "2", "--json").out)
    assert (step["step"], len(step["groups"]), len(step["groups"][0]["members"])) == (2, 2, 3)
    whole = json.loads(toishi("explain", finished.folder, "--json").out)
    assert [line["step"] for line in whole["steps"]] == [1, 2, 3, 4, 5, 6]


def test_explain_of_a_step_that_is_not_there(finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, "--step", "77")
    assert ended.code == 1
    assert "step 77 is not on record; steps 1 to 6 are" in ended.err


def test_audit_of_a_good_run(finished: Finished, toishi: Command) -> None:
    ended = toishi("audit", finished.folder)
    assert ended.code == 0
    report = json.loads(toishi("audit", finished.folder, "--json").out)
    assert report["ok"] is True
    assert (report["steps"], report["rollouts"]) == (6, 36)


def test_audit_of_a_run_that_was_changed_ends_with_1(finished: Finished, tmp_path: Path, toishi: Command) -> None:
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    line = json.loads(lines[2])
    line["reward/mean"] += 1.0
    lines[2] = json.dumps(line)
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ended = toishi("audit", folder)
    assert ended.code == 1
    assert json.loads(toishi("audit", folder, "--json").out)["ok"] is False


def test_algorithms_lists_every_row(toishi: Command) -> None:
    ended = toishi("algorithms", width=120)
    assert ended.code == 0
    for name in ROWS:
        assert describe(name).title.split(":")[0] in ended.out
    assert {entry["row"]["name"] for entry in json.loads(toishi("algorithms", "--json").out)} == set(ROWS)


def test_an_algorithm_in_full(toishi: Command) -> None:
    ended = toishi("algorithms", "dapo", width=120)
    assert ended.code == 0
    for part in ("Equation", "The row", "Paper", "Traps", "clip_high", "0.28", "drop_tied"):
        assert part in ended.out
    assert json.loads(toishi("algorithms", "dapo", "--json").out)[0]["row"]["clip_high"] == 0.28


@pytest.mark.parametrize("name", ROWS)
def test_algorithm_pages_fit_a_narrow_terminal(name: str, toishi: Command) -> None:
    assert all(len(line) <= 60 for line in toishi("algorithms", name, width=60).out.splitlines())


def test_recipes_lists_all_and_prints_one(toishi: Command) -> None:
    assert set(json.loads(toishi("recipes", "--json").out)) == set(recipe_names())
    listed = toishi("recipes").out
    assert all(name in listed for name in recipe_names())
    printed = toishi("recipes", "sums").out
    assert printed == recipe_path("sums").read_text(encoding="utf-8")
    assert yaml.safe_load(printed)["name"] == "sums"


@pytest.mark.parametrize(("command", "name"), [("algorithms", "gpro"), ("recipes", "sms")])
def test_unknown_names(command: str, name: str, toishi: Command) -> None:
    ended = toishi(command, name)
    assert ended.code == 1
    assert "did you mean" in ended.err
