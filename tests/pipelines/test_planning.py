"""Everything that can be wrong with a pipeline file, said before anything runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.making import WRITTEN, read, small
from toishi.errors import ConfigError
from toishi.pipelines import contents
from toishi.pipelines.planning import pipeline_names, read_pipeline
from toishi.pipelines.running import faults, look_at

Change = Callable[[dict[str, Any]], Any]
STAGES: Callable[[dict[str, Any]], Any] = lambda values: values["stages"]  # noqa: E731

UNREADABLE: dict[str, tuple[Change, str]] = {
    "unknown stage": (
        lambda v: v["stages"]["rl"].update(model="${stages.sff.model}"),
        r"stage 'rl': \$\{stages.sff.model\}: there is no stage 'sff'; did you mean 'sft'\?",
    ),
    "unknown output": (
        lambda v: v["stages"]["rl"].update(model="${stages.sft.data}"),
        r"stage 'rl': \$\{stages.sft.data\}: stage 'sft' makes model",
    ),
    "later stage": (
        lambda v: v["stages"]["sft"].update(model="${stages.rl.model}"),
        r"stage 'sft': \$\{stages.rl.model\}: stage 'rl' comes later or is this one; move it before this stage",
    ),
    "itself": (
        lambda v: v["stages"]["rl"].update(model="${stages.rl.model}"),
        r"stage 'rl' comes later or is this one",
    ),
    "no reference": (
        lambda v: v["stages"]["rl"].update(model="${sft}"),
        r"\$\{sft\} names nothing; there are \$\{folder\}, \$\{stages.answers.data\}, \$\{stages.sft.model\}",
    ),
    "unknown kind": (
        lambda v: v["stages"]["rl"].update(kind="trian"),
        r"stage 'rl': there is no kind 'trian'; did you mean 'train'\?",
    ),
    "no kind": (lambda v: v["stages"]["rl"].pop("kind"), "stage 'rl': no kind is given"),
    "unknown key": (
        lambda v: v["stages"]["answers"].update(sampels=3),
        r"stage 'answers': sampels: unknown key; did you mean 'samples'\?",
    ),
    "wrong value": (
        lambda v: v["stages"]["answers"].update(samples=0),
        "stage 'answers': samples: Input should be greater than or equal to 1, got 0",
    ),
    "unknown aim": (
        lambda v: v["stages"]["rl"].update(aim="vowel"),
        r"stage 'rl': aim: nothing is measured under the name 'vowel'; did you mean 'vowels'\?",
    ),
    "odd name": (lambda v: v["stages"].update({"1 st": v["stages"]["rl"]}), "stage '1 st': a stage's name is made of letters"),
    "no stages": (lambda v: v.update(stages={}), "stages: "),
    "measure from a stage": (
        lambda v: v["measure"]["vowels"].update(set={"task.path": "${stages.answers.data}"}),
        "measure 'vowels': .* held-out prompts cannot come from a stage",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_refused(case: str, tmp_path: Path) -> None:
    change, words = UNREADABLE[case]
    values = copy.deepcopy(small(tmp_path / "model"))
    change(values)
    with pytest.raises(ConfigError, match=words):
        read(values, tmp_path)


FAULTS: dict[str, tuple[Change, str, str]] = {
    "a recipe's key": (
        lambda v: v["stages"]["rl"].update(set={"train.stepz": 3}),
        "stage 'rl'", "train.stepz: unknown key; did you mean 'steps'?",
    ),
    "a task's option, while its file is not there": (
        lambda v: v["stages"]["sft"].update(set={"task.pronpt_column": "a"}),
        "stage 'sft'", "task.pronpt_column: unknown option; did you mean 'prompt_column'?",
    ),
    "a reward's option": (
        lambda v: v["stages"]["rl"].update(set={"rewards": [{"name": "length"}]}),
        "stage 'rl'", "reward 'length'.target: this option is required",
    ),
    "adapters": (
        lambda v: v["stages"]["sft"].update(set={"model.lora": {}}),
        "stage 'sft'", "model.lora: a stage hands a whole model on, and an adapter is none; train all weights here",
    ),
    "no steps": (
        lambda v: v["stages"]["sft"].update(set={"train.steps": 0}),
        "stage 'sft'", "train.steps is 0: nothing would be trained; leave the stage out",
    ),
    "which reward is right": (
        lambda v: v["stages"]["answers"].update(reward="number"),
        "stage 'answers'", "--reward: there is no reward 'number'; known: total, vowels",
    ),
    "an endless task": (
        lambda v: v["stages"]["answers"].update(prompts=None, set={"task.high": 2000}),
        "stage 'answers'", "the prompts of task 'sums' do not run out: say how many with --prompts N",
    ),
    "nothing measured": (
        lambda v: v["measure"]["vowels"].update(set={"evaluation.prompts": 0}),
        "measure 'vowels'", "evaluation.prompts is 0: nothing would be measured",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_found_before_the_first_stage(case: str, tmp_path: Path) -> None:
    change, where, words = FAULTS[case]
    values = copy.deepcopy(small(tmp_path / "model"))
    change(values)
    found = faults(read(values, tmp_path), tmp_path / "out")
    assert list(found) == [where]
    assert words in "\n".join(found[where])
    assert not (tmp_path / "out").exists()


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    values = copy.deepcopy(small(tmp_path / "model"))
    values["stages"]["rl"]["kind"] = "trian"
    values["stages"]["sft"]["aim"] = "nothing"
    with pytest.raises(ConfigError) as caught:
        read(values, tmp_path)
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "the pipeline cannot start", "stage 'rl'", "stage 'sft'",
    ]  # fmt: skip


def test_overrides_change_a_stage_or_its_recipe(tmp_path: Path) -> None:
    changes = {"answers.samples": 7, "sft.train.steps": 9, "vowels.evaluation.samples": 3, "seed": 5}
    pipeline = read(small(tmp_path / "model"), tmp_path, changes)
    answers, sft, *_ = pipeline.stages
    assert answers.stage.samples == 7  # type: ignore[attr-defined]
    _, config = pipeline.stage_of(sft, {})
    assert config is not None
    assert (config.train.steps, config.seed) == (9, 5)
    assert pipeline.measured("vowels").evaluation.samples == 3
    with pytest.raises(
        ConfigError, match=r"--set sftt.train.steps: expected STAGE.KEY=VALUE; there is no stage 'sftt'; did you mean 'sft'\?"
    ):
        read(small(tmp_path / "model"), tmp_path, {"sftt.train.steps": 1})


def test_a_stage_takes_model_and_seed_of_the_pipeline_unless_it_says_otherwise(tmp_path: Path) -> None:
    values = small(tmp_path / "model") | {"seed": 3}
    values["stages"]["sft"] |= {"set": {"seed": 8, "model.dtype": "float64"}}
    pipeline = read(values, tmp_path)
    configs = [pipeline.stage_of(planned, {})[1] for planned in pipeline.stages[:3]]
    assert [config.seed for config in configs if config] == [3, 8, 3]
    assert [config.model.dtype for config in configs if config] == ["float32", "float64", "float32"]
    assert [config.model.name for config in configs if config] == [*[str(tmp_path / "model")] * 2, "${stages.sft.model}"]


def test_a_pipeline_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file 'r2', and no shipped pipeline of that name; known: r1"):
        read_pipeline("r2")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"pipeline .* is not YAML"):
        read_pipeline(str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize("name", pipeline_names())
def test_shipped_pipelines_have_no_fault(name: str, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "bundled_model_folder", lambda: tiny)
    pipeline = read_pipeline(name)
    assert faults(pipeline, tmp_path) == {}
    assert {stage.state for stage in look_at(pipeline, tmp_path).stages} == {"next", "waits"}


def test_the_example_of_the_page_has_no_fault(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "bundled_model_folder", lambda: tiny)
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    (tmp_path / "mine.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    pipeline = read_pipeline(str(tmp_path / "mine.yaml"), {"rl.train.steps": 50})
    assert faults(pipeline, tmp_path) == {}
    _, config = pipeline.stage_of(pipeline.stages[2], {})
    assert config is not None
    assert config.train.steps == 50


def test_held_out_files_of_r1_hold_nothing_that_is_trained_on() -> None:
    folder = read_pipeline("r1").source.parent
    held = {line for file in folder.glob("*_heldout.jsonl") for line in prompts_of(file)}
    trained = {line for file in folder.glob("*.jsonl") if "_heldout" not in file.name for line in prompts_of(file)}
    assert len(held) == 24 + 24 + 32
    assert not held & trained


def prompts_of(file: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in file.read_text("utf-8").splitlines()]


def test_written_recipes_need_no_reward_where_nothing_is_measured(tmp_path: Path) -> None:
    values = copy.deepcopy(small(tmp_path / "model"))
    (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}], "completion": "b"}\n')
    recipe = copy.deepcopy(WRITTEN)
    recipe["task"]["path"] = str(tmp_path / "rows.jsonl")
    values["stages"] = {"sft": {"kind": "train", "recipe": recipe}}
    assert faults(read(values, tmp_path), tmp_path / "out") == {}
    recipe["evaluation"] = {"prompts": 1}
    assert "at least one reward is needed" in str(faults(read(values, tmp_path), tmp_path / "out"))
