"""train, resume, demo: what is printed, what is on disk, how they end."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command, Finished
from toishi import loop
from toishi.config import Config
from toishi.loop import Result
from toishi.record.reader import Run


def test_train_ends_well_and_says_what_it_did(finished: Finished) -> None:
    out = finished.ended.out
    assert finished.ended.code == 0
    assert "2 prompts × 3 answers = 6 answers a step, 6 steps (36 answers in all)" in out
    assert "all of its 23,712 weights are trained" in " ".join(out.split())
    assert Run.open(finished.folder).steps == (1, 2, 3, 4, 5, 6)


def test_steps_are_a_table_under_one_header(finished: Finished) -> None:
    lines = finished.ended.out.splitlines()
    header = next(line for line in lines if line.split()[:3] == ["step", "reward", "mixed"])
    assert lines.count(header) == 1
    run = Run.open(finished.folder)
    for line in run.metrics:
        shown = next(text for text in lines if text[:5] == f"{line['step']:>5}" and len(text) == len(header))
        assert float(shown.split()[1]) == pytest.approx(line["reward/mean"], abs=5e-4)
        assert shown.split()[2] == f"{line['groups/mixed']}/2"
    assert len(header) <= 80


def test_train_shows_before_and_after_curve_group_and_folder(finished: Finished) -> None:
    out = finished.ended.out
    first, last = (
        next(line for line in lines if line["mode"] == "greedy")
        for lines in (Run.open(finished.folder).evaluations, reversed(Run.open(finished.folder).evaluations))
    )
    for label, line in (("before", first), ("after", last)):
        assert line["interval"] is None  # four prompts are too few
        assert f"{line['value']:.3f}" in next(row for row in out.splitlines() if row.split()[:1] == [label])
    assert "too few prompts for an interval" in " ".join(out.split())
    assert out.count("held-out: mean reward [95% interval]") == 1
    assert "┤" in out
    assert "advantage" in out
    assert f"toishi explain {finished.folder} --step" in out
    assert f"run folder  {finished.folder}" in out


def test_only_prose_and_paths_are_wider_than_the_terminal(finished: Finished) -> None:
    wide = [line for line in finished.ended.out.splitlines() if len(line.rstrip()) > 80]
    assert all("held-out" in line or str(finished.folder) in line for line in wide), wide


def test_train_json_is_one_document_on_stdout(recipe: Path, tmp_path: Path, toishi: Command) -> None:
    ended = toishi("train", recipe, "--out", tmp_path / "run", "--set", "train.steps=1", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found["finished"] is True
    assert found["step"] == 1
    assert {line["mode"] for line in found["evaluations"]} == {"greedy", "sampled"}
    assert "a step, 1 step (6 answers in all)" in ended.err


def test_an_interrupt_saves_and_resume_goes_on(
    recipe: Path, tmp_path: Path, toishi: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.train_step

    def interrupted(*arguments: Any) -> Any:
        report = step(*arguments)
        if report.step == 2:
            signal.raise_signal(signal.SIGINT)
        return report

    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(loop, "train_step", interrupted)
        ended = toishi("train", recipe, "--out", folder)
    assert ended.code == 130
    assert f"toishi resume {folder}" in ended.out
    assert Run.open(folder).steps == (1, 2)
    again = toishi("resume", folder)
    assert again.code == 0
    assert "Going on after step 2: 4 of 6 steps to go." in again.out
    assert Run.open(folder).steps == (1, 2, 3, 4, 5, 6)


def test_an_interrupt_outside_of_a_step_ends_with_130(
    recipe: Path, tmp_path: Path, toishi: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "gather", interrupted)
    ended = toishi("train", recipe, "--out", tmp_path / "run")
    assert (ended.code, ended.out, ended.err.strip()) == (130, "", "interrupted")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.grop_size=3", "train.grop_size: unknown key; did you mean 'group_size'?"),
        ("algorithm=grpoo", "unknown algorithm 'grpoo'; did you mean 'grpo'?"),
        ("train.steps", "expected key=value"),
        ("train.group_size=1", "train.group_size must be at least 2, got 1"),
        ("task.name=summs", "there is no task 'summs'; did you mean 'sums'?"),
        ("model.name=./nowhere", "does not exist"),
    ],
)
def test_mistakes_are_told_before_a_folder_is_made(
    setting: str, message: str, recipe: Path, tmp_path: Path, toishi: Command
) -> None:
    ended = toishi("train", recipe, "--set", setting, "--out", tmp_path / "run")
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()


def test_a_missing_recipe_names_the_nearest(toishi: Command) -> None:
    ended = toishi("train", "sms")
    assert ended.code == 1
    assert "did you mean 'sums'?" in ended.err


def test_a_folder_that_holds_something_is_left_alone(finished: Finished, recipe: Path, toishi: Command) -> None:
    before = (finished.folder / "metrics.jsonl").read_bytes()
    ended = toishi("train", recipe, "--out", finished.folder)
    assert ended.code == 1
    assert "already holds a run" in ended.err
    assert (finished.folder / "metrics.jsonl").read_bytes() == before


def test_resume_of_a_finished_run_repeats_its_result(finished: Finished, tmp_path: Path, toishi: Command) -> None:
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    ended = toishi("resume", folder, "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["step"] == 6
    assert "it has done all of its steps" in ended.err
    assert Run.open(folder).steps == (1, 2, 3, 4, 5, 6)


def test_resume_of_nothing(tmp_path: Path, toishi: Command) -> None:
    ended = toishi("resume", tmp_path / "nothing")
    assert ended.code == 1
    assert "there is no such run folder" in ended.err


def test_demo_is_the_recipe_sums(tmp_path: Path, toishi: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Config, Path | None]] = []

    def train(config: Config, folder: Path | None, display: object) -> Result:
        asked.append((config, folder))
        return Result(tmp_path, True, 0, ())

    monkeypatch.setattr(loop, "train", train)
    ended = toishi("demo", "--set", "seed=1", "--out", tmp_path / "run")
    assert ended.code == 0
    config, folder = asked[0]
    assert (config.name, config.seed, config.model.name, folder) == ("sums", 1, "bundled", tmp_path / "run")
