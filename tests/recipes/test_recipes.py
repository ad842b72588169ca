"""Every built-in recipe loads, and what its text says is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from toishi.errors import ConfigError
from toishi.preflight import preflight
from toishi.recipes import load_recipe, recipe_description, recipe_names, recipe_path

NEEDY = {"own_data", "rlaif-rubric", "length-long-tldr", "length-short-tldr"}  # a file, a server, the hub
RUNNABLE = sorted(set(recipe_names()) - NEEDY)


def test_the_recipes_are_there() -> None:
    assert set(recipe_names()) >= {"sums", "json_keys", "length30", "dapo_refill", "lora", "own_data"}


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_loads_under_its_own_name_and_describes_itself(name: str) -> None:
    config = load_recipe(name)
    assert config.name == name
    assert recipe_description(name) == config.description != ""


@pytest.mark.parametrize("name", RUNNABLE)
def test_data_and_rewards_of_a_recipe_are_sound(name: str) -> None:
    found = preflight(load_recipe(name))
    if any("does not let programs run in namespaces" in error.message for error in found.errors):
        pytest.skip(found.errors[0].message)
    assert found.errors == []
    assert found.task is not None
    assert len(found.task.heldout_prompts()) >= load_recipe(name).evaluation.prompts


@pytest.mark.parametrize("name", recipe_names())
def test_answers_a_step_in_the_comments_are_the_product(name: str) -> None:
    train = load_recipe(name).train
    for prompts, group_size, answers in re.findall(
        r"(\d+) prompts x (\d+) answers = (\d+)", recipe_path(name).read_text("utf-8")
    ):
        assert (int(prompts), int(group_size)) == (train.prompts_per_step, train.group_size)
        assert int(answers) == train.prompts_per_step * train.group_size


def test_the_demo_is_what_was_measured() -> None:
    config = load_recipe("sums")
    task = config.task.options
    assert (config.algorithm.name, config.optimizer.lr, config.optimizer.warmup_steps) == ("grpo", 1e-5, 3)
    assert (task["low"], task["high"], config.sampling.max_new_tokens) == (1, 20, 24)
    assert (config.train.prompts_per_step, config.train.group_size, config.train.steps) == (4, 8, 30)
    assert (config.evaluation.prompts, config.evaluation.samples, config.evaluation.greedy) == (64, 8, True)


@pytest.mark.parametrize("ending", ["", "-tldr"])
def test_the_two_length_recipes_differ_in_the_target_alone(ending: str) -> None:
    short, long = (
        load_recipe(f"length-{way}{ending}").model_dump(exclude={"name", "description"}) for way in ("short", "long")
    )
    targets = [values["rewards"][0].pop("target") for values in (short, long)]
    assert short == long
    assert targets == ([100, 500] if ending else [16, 52])


def test_own_data_works_with_the_files_that_its_comments_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comments = [line[1:] for line in recipe_path("own_data").read_text("utf-8").splitlines() if line.startswith("#")]
    row = next(line.strip() for line in comments if line.strip().startswith('{"prompt"'))
    start = next(at for at, line in enumerate(comments) if line.strip().startswith("def "))
    function = [line[3:] for line in comments[start : start + 3]]
    (tmp_path / "my_rewards.py").write_text("\n".join(function) + "\n", encoding="utf-8")
    rows = [row.replace("Japan", f"Japan {number}") for number in range(80)]
    (tmp_path / "my_data.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = preflight(load_recipe("own_data"))
    assert found.errors == []
    assert found.dry_run is not None
    paid = {row.answer: row.reward for row in found.dry_run.rows}
    assert (paid["the gold"], paid["nothing"], paid["no idea"]) == (1.0, 0.0, 0.0)


def test_a_file_wins_over_a_built_in_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums").write_text("name: mine\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_recipe("sums").name == "mine"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("length3", "no built-in recipe of that name; did you mean 'length30'?"),
        ("folder/sums.yaml", "recipe file folder/sums.yaml does not exist"),
    ],
)
def test_what_is_no_recipe(recipe: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        recipe_path(recipe)


@pytest.mark.parametrize("name", recipe_names())
def test_lines_fit_an_editor(name: str) -> None:
    text = recipe_path(name).read_text("utf-8")
    assert max(map(len, text.splitlines())) <= 128
    assert text.startswith("# ")
    assert isinstance(yaml.safe_load(text), dict)
