"""toishi from Python: public names, and runs made from Python objects."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toishi
from tests.tiny import save_tiny
from toishi.api import read_recipe
from toishi.explanation.chain.model import Chain
from toishi.explanation.overview import OverviewView
from toishi.explanation.step import StepView
from toishi.given import given_objects, with_given
from toishi.rewards import FunctionReward
from toishi.session import gather
from toishi.tasks import ScriptedTask

RECIPE: dict[str, Any] = {
    "sampling": {"max_new_tokens": 4},
    "train": {"steps": 1, "prompts_per_step": 1, "group_size": 2},
    "evaluation": {"prompts": 0},
}


def letters(completions: list[str]) -> list[float]:
    return [float(sum(map(str.isalpha, text))) for text in completions]


def digits(completions: list[str]) -> list[float]:
    return [float(sum(map(str.isdigit, text))) for text in completions]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return RECIPE | {"model": {"name": str(save_tiny(tmp_path_factory.mktemp("model"))), "dtype": "float32"}}


@pytest.fixture(scope="module")
def run(recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    task = ScriptedTask(["one", "two"])
    return toishi.train(recipe, task=task, rewards=[letters, digits], weights=[1.0, 0.5], folder=folder, quiet=True).folder


@pytest.mark.parametrize("name", toishi.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(toishi, name) is not None


def test_public_names_are_listed_and_unknown_ones_refused() -> None:
    assert set(toishi.__all__) <= set(dir(toishi))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = toishi.trian  # type: ignore[attr-defined]


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """Importing `toishi.x` sets the attribute x of the package, whatever stood there."""
    modules = {module.name for module in pkgutil.iter_modules(toishi.__path__)}
    assert not modules & set(toishi.__all__)


def test_import_is_light() -> None:
    code = "import sys, toishi; toishi.Prompt, toishi.ConfigError; sys.exit(bool({'torch', 'pydantic'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_record_names_the_objects(run: Path) -> None:
    config = toishi.Run.open(run).run["config"]
    assert config["task"] == {"name": "scripted", "python": "toishi.tasks.scripted:ScriptedTask"}
    assert [reward["name"] for reward in config["rewards"]] == ["letters", "digits"]
    assert [reward["weight"] for reward in config["rewards"]] == [1.0, 0.5]
    assert config["rewards"][0]["python"] == f"{__name__}:letters"


def test_the_reward_is_the_weighted_sum(run: Path) -> None:
    for rollout in toishi.Run.open(run).step(1).rollouts:
        text = rollout.completion.text
        assert rollout.reward == pytest.approx(sum(map(str.isalpha, text)) + 0.5 * sum(map(str.isdigit, text)))


def test_resume_needs_the_same_objects(run: Path) -> None:
    task = ScriptedTask(["one", "two"])
    with pytest.raises(toishi.ConfigError, match=r"'scripted' .* came as Python objects.*toishi\.resume\(folder, task="):
        toishi.resume(run, quiet=True)
    with pytest.raises(toishi.ConfigError, match=r"expected 'letters' .*, 'digits' .*, got 'digits', 'letters'"):
        toishi.resume(run, task=task, rewards=[digits, letters], quiet=True)
    assert toishi.resume(run, task=task, rewards=[letters, digits], quiet=True).finished


def test_what_a_recipe_says_is_not_exchanged_on_resume() -> None:
    config = toishi.load_config({})
    given = given_objects(None, [letters])
    with pytest.raises(toishi.ConfigError, match="rewards of its recipe, which cannot be exchanged"):
        gather(config, given)


@pytest.mark.parametrize(
    ("rewards", "weights", "message"),
    [
        ([letters], [1.0, 2.0], "got 2 for 1 rewards"),
        (None, [1.0], "they belong to rewards="),
    ],
)
def test_weights_belong_to_rewards(rewards: Any, weights: list[float], message: str) -> None:
    with pytest.raises(toishi.ConfigError, match=message):
        with_given(toishi.load_config({}), given_objects(None, rewards), weights)


def test_what_is_no_reward_is_refused() -> None:
    with pytest.raises(toishi.ConfigError, match=r"expected functions or rewards, got 'number' \(a str\)"):
        given_objects(None, ["number"])  # type: ignore[list-item]


def test_no_reward_at_all_is_refused(recipe: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(toishi.ConfigError, match="at least one reward"):
        toishi.train(recipe, rewards=[], folder=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_explain_prints_and_returns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = toishi.explain(run, quiet=True)
    assert isinstance(whole, OverviewView)
    assert capsys.readouterr().out == ""
    assert whole.as_dict()["algorithm"] == "grpo"
    step = toishi.explain(run, step=1)
    assert isinstance(step, StepView)
    assert "letters" in capsys.readouterr().out
    assert step.as_dict()["step"] == 1


def test_one_answer_is_followed_through_every_link(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = toishi.explain(run, 1, group=0, member=1)
    assert isinstance(chain, Chain)
    assert (chain.group, chain.member, chain.broken) == (0, 1, None)
    assert "#1" in capsys.readouterr().out
    with pytest.raises(toishi.ConfigError, match="belong to a step"):
        toishi.explain(run, group=0)
    with pytest.raises(toishi.ConfigError, match="has no group 99"):
        toishi.explain(run, 1, group=99, quiet=True)


def test_a_recipe_may_be_a_name_a_path_a_mapping_or_a_config(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("seed: 7\n")
    expected = toishi.load_config({"seed": 7}, {"train.steps": 3})
    for source in (path, str(path), {"seed": 7}, toishi.Config(seed=7)):
        assert read_recipe(source, {"train.steps": 3}) == expected
    assert read_recipe("sums").name == "sums"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: toishi.train(5), "recipe: expected a name, a path, a mapping or a Config, got 5"),  # type: ignore[arg-type]
        (lambda: toishi.train(None), "recipe: expected"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", overrides=["a=1"]), "overrides: expected a mapping"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", rewards="letters"), "rewards: expected a list"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", rewards=3), "rewards: expected a list"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", rewards={"a": letters}), "rewards: expected a list"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", rewards=[3]), "expected functions or rewards"),  # type: ignore[list-item]
        (lambda: toishi.train("sums", task=[1]), r"task: expected a task, got \[1\] \(a list\)"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", task=ScriptedTask), "task: expected a task"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", weights=[1.0]), "weights: they belong to rewards"),
        (lambda: toishi.train("sums", rewards=[letters], weights=["a"]), "weights: expected"),  # type: ignore[list-item]
        (lambda: toishi.train("sums", rewards=[letters], weights="1"), "weights: expected"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", rewards=[letters], weights=1.0), "weights: expected"),  # type: ignore[arg-type]
        (lambda: toishi.train("sums", rewards=[letters], weights=[float("nan")]), "weights: expected a list of finite numbers"),
        (lambda: toishi.train("sums", rewards=[letters], weights=[True]), "weights: expected"),
        (lambda: toishi.train("sums", folder=5), "folder: expected a path"),  # type: ignore[arg-type]
        (lambda: toishi.resume(5), "folder: expected a path"),  # type: ignore[arg-type]
        (lambda: toishi.explain("runs", step="2"), "step: expected a whole number, got '2'"),  # type: ignore[arg-type]
        (lambda: toishi.explain("runs", step=2.0), "step: expected a whole number, got 2.0"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_an_error_that_says_what_was_expected(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(toishi.ConfigError, match=message):
        wrong()


def test_one_reward_alone_need_not_be_a_list() -> None:
    alone, listed = given_objects(None, letters), given_objects(None, [letters])
    assert [reward.name for reward in alone.rewards or ()] == [reward.name for reward in listed.rewards or ()] == ["letters"]
    given = with_given(read_recipe("sums"), given_objects(None, FunctionReward.from_callable(letters)), (2,))
    assert [(reward.name, reward.weight) for reward in given.rewards] == [("letters", 2.0)]
