"""What is said of a pipeline: gains, verdicts, the page, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import run_command
from tests.pipelines.conftest import Done
from tests.pipelines.making import small, written
from toishi.evaluate import Evaluation
from toishi.pipelines.gains import deciding, gains_of, outcome
from toishi.pipelines.running import PipelineView, StageView
from toishi.pipelines.story import _inside, as_record, headline


def evaluation(values: list[float], mode: Literal["greedy", "sampled"] = "greedy") -> Evaluation:
    mean = sum(values) / len(values)
    return Evaluation(
        step=0, mode=mode, num_prompts=len(values), samples=1, temperature=1.0, value=mean, interval=(mean - 0.1, mean + 0.1),
        readable=None, value_readable=None, truncated=0.0, mean_tokens=3.0, unscored=0,
        by_prompt={f"p{place}": value for place, value in enumerate(values)},
    )  # fmt: skip


def stage(name: str, before: list[float], after: list[float]) -> StageView:
    return StageView(
        name=name, kind="train", about="", aim=("vowels",), state="finished",
        before={"vowels": [evaluation(before)]}, after={"vowels": [evaluation(after)]},
    )  # fmt: skip


@pytest.fixture
def told(done: Done) -> PipelineView:
    """Twelve prompts: all right afterwards, all wrong, the same, half of them changed in either direction; eight prompts."""
    return replace(
        done.view,
        stages=(
            stage("up", [0.0] * 12, [1.0] * 12),
            stage("down", [1.0] * 12, [0.0] * 12),
            stage("same", [1.0] * 12, [1.0] * 12),
            stage("mixed", [1.0, 0.0] * 6, [0.0, 1.0] * 6),
            stage("few", [0.0] * 8, [1.0] * 8),
        ),
    )


def test_verdicts_by_the_interval_alone(told: PipelineView) -> None:
    gains = {gain.stage: gain for gain in gains_of(told)}
    assert {name: gain.outcome for name, gain in gains.items()} == {
        "up": "helped", "down": "harmed", "same": "no_help", "mixed": "unclear", "few": "unclear",
    }  # fmt: skip
    assert [gains[name].change for name in ("up", "down", "same", "mixed")] == [1.0, -1.0, 0.0, 0.0]
    assert gains["few"].interval is None
    low, high = gains["mixed"].interval or (0.0, 0.0)
    assert low < -0.3
    assert high > 0.3
    assert _inside(told.folder / "stages" / "a", told.folder) == "stages/a"
    assert _inside(told.folder.parent, told.folder) == str(told.folder.parent)
    assert headline(told, list(gains.values())) == (
        "Helped: up (vowels). Made it worse: down (vowels). Did not help: same (vowels). "
        "Cannot be told: mixed (vowels), few (vowels)."
    )


def test_a_gain_that_would_not_matter_is_no_help() -> None:
    assert outcome((-0.03, 0.049), 0.05) == "no_help"
    assert outcome((-0.03, 0.05), 0.05) == "unclear"
    assert outcome((0.0, 0.2), 0.05) == "unclear"
    assert outcome((0.001, 0.002), 0.05) == "helped"


def test_greedy_answers_decide_where_they_were_measured(told: PipelineView) -> None:
    both = replace(
        told.stages[0],
        before={"vowels": [evaluation([0.0] * 12), evaluation([0.0] * 12, "sampled")]},
        after={"vowels": [evaluation([0.0] * 12), evaluation([1.0] * 12, "sampled")]},
    )
    gains = gains_of(replace(told, stages=(both,)))
    assert [gain.mode for gain in gains] == ["greedy", "sampled"]
    assert [gain.outcome for gain in deciding(gains)] == ["no_help"]


def test_a_stage_is_compared_with_the_model_that_it_started_from(done: Done) -> None:
    _, sft, rl, student = done.view.stages
    assert sft.before == done.view.base
    assert rl.before == student.before == sft.after
    assert sft.after != sft.before
    for gain in gains_of(done.view):
        found = next(one for one in done.view.stages if one.name == gain.stage)
        (after,) = [one for one in found.after["vowels"] if one.mode == gain.mode]
        (before,) = [one for one in found.before["vowels"] if one.mode == gain.mode]
        pairs = [(after.by_prompt[prompt], before.by_prompt[prompt]) for prompt in after.by_prompt]
        assert gain.change == pytest.approx(sum(one - other for one, other in pairs) / 12, abs=1e-12)


def test_the_command_tells_the_same_as_the_page(done: Done, tiny: Path, tmp_path: Path) -> None:
    file, page = written(small(tiny), tmp_path / "small.yaml"), tmp_path / "page.html"
    ended = run_command("pipeline", file, "--out", done.folder, "--html", page)
    assert ended.code == 0, ended.err
    words = headline(done.view, gains_of(done.view))
    assert words in " ".join(ended.out.split())
    text = page.read_text("utf-8")
    assert words in text
    assert text == (done.folder / "report.html").read_text("utf-8")
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    for name in ("answers", "sft", "rl", "student"):
        assert f"<code>{name}</code>" in text


def test_json_is_one_document(done: Done, tiny: Path, tmp_path: Path) -> None:
    file = written(small(tiny), tmp_path / "small.yaml")
    ended = run_command("pipeline", file, "--out", done.folder, "--json")
    told = json.loads(ended.out)
    assert told["finished"] is True
    assert [(one["name"], one["state"]) for one in told["stages"]] == [
        (name, "kept") for name in ("answers", "sft", "rl", "student")
    ]
    record: dict[str, Any] = json.loads(json.dumps(as_record(done.view), default=str))
    assert told["gains"] == record["gains"]


def test_a_dry_run_says_how_each_stage_stands_and_writes_nothing(done: Done, tiny: Path, tmp_path: Path) -> None:
    file = written(small(tiny), tmp_path / "small.yaml")
    ended = run_command("pipeline", file, "--out", tmp_path / "new", "--dry-run")
    assert ended.code == 0
    assert "4   student   shrink    to be done; depends on stages before it" in ended.out
    assert not (tmp_path / "new").exists()
    again = run_command("pipeline", file, "--out", done.folder, "--dry-run", "--set", "rl.train.steps=4")
    assert "3   rl        train     to be done" in again.out
    assert "4   student   shrink    done before" in again.out
    wrong = run_command("pipeline", file, "--out", done.folder, "--dry-run", "--set", "rl.train.stepz=4")
    assert wrong.code == 1
    assert "stage 'rl': train.stepz: unknown key; did you mean 'steps'?" in " ".join(wrong.out.split())
    as_json = json.loads(run_command("pipeline", file, "--dry-run", "--json", "--set", "rl.train.stepz=4").out)
    assert as_json["ok"] is False
    assert list(as_json["faults"]) == ["stage 'rl'"]
