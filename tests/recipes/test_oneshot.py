"""One-example training: the recipes' values, the pool and the single problem, the controls, on a tiny model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import run_command
from tests.tiny import save_tiny
from toishi.errors import ConfigError, DataError
from toishi.loop import train
from toishi.matching import match
from toishi.metrics import WEIGHTS_CHECKSUM
from toishi.ops.random import uniforms
from toishi.recipes import load_recipe
from toishi.record.reader import Run
from toishi.rewards.random import RandomReward
from toishi.rewards.scripted import answered
from toishi.tasks.sums import Sums
from toishi.types import Prompt

SMALL: dict[str, Any] = {
    "model.dtype": "float32", "train.steps": 2, "train.prompts_per_step": 2, "train.group_size": 2,
    "sampling.max_new_tokens": 4, "evaluation.prompts": 2, "evaluation.samples": 1, "evaluation.every": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model")))


def test_the_published_settings() -> None:
    """arXiv 2504.20571: beta .001, alpha -.001 on the entropy, T .6, clip .2, one update a step, weight decay .01."""
    config = load_recipe("oneshot")
    row = config.algorithm
    assert (row.name, row.kl, row.kl_coef, row.entropy_coef, row.clip_low, row.clip_high) == (
        *("grpo", "k3", 0.001, 0.001, 0.2, 0.2),
    )
    assert (config.sampling.temperature, config.optimizer.weight_decay, config.train.num_updates) == (0.6, 0.01, 1)
    control = load_recipe("entropy-only")
    assert (control.algorithm.policy_term, control.algorithm.entropy_coef, control.sampling.temperature) == (False, 0.001, 0.6)
    assert control.task == config.task
    assert control.evaluation.every <= 4


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("oneshot", {}),
        ("oneshot", {"rewards": [{"name": "format", "regex": r".*\d\.?\s*"}]}),
        ("oneshot", {"rewards": [{"name": "random"}]}),
        ("entropy-only", {}),
    ],
)
def test_one_problem_fills_the_step(name: str, changes: dict[str, Any], tiny: str, tmp_path: Path) -> None:
    run = Run.open(train(load_recipe(name, SMALL | changes | {"model.name": tiny}), tmp_path / "run").folder)
    rows = [row for step in run.steps for row in run.rollout_rows(step)]
    (only,) = load_recipe(name).task.options["only"]
    assert {row["prompt_id"] for row in rows} == {f"sums/{only[0]}+{only[1]}"}
    assert len(rows) == 2 * 2 * 2
    assert len({(row["step"], row["group"], row["member"]) for row in rows}) == 8
    weights = {line[WEIGHTS_CHECKSUM] for line in run.metrics}
    assert len(weights) == 2  # KL and entropy terms move them, whatever the rewards


def test_a_pool_comes_round_and_holds_out_the_same_problems() -> None:
    few, all_of_them = Sums(pool=3).build(seed=4), Sums().build(seed=4)
    assert few.num_train == 3
    seen = [few.train_prompt(index).id for index in range(9)]
    assert len(set(seen)) == 3
    assert all(sorted(seen[at : at + 3]) == sorted(set(seen)) for at in (0, 3, 6))
    assert few.heldout_prompts() == all_of_them.heldout_prompts()
    assert set(seen).isdisjoint(prompt.id for prompt in few.heldout_prompts())
    wide = Sums(high=10_000, pool=2).build(seed=0)
    assert (wide.num_train, len({wide.train_prompt(index).id for index in range(6)})) == (2, 2)


def test_what_cannot_be_the_only_problem_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.only: \[7, 21\] is no problem of this task, expected 2 numbers from 1 to 20"):
        Sums(only=((7, 21),))
    with pytest.raises(ConfigError, match="give one of the two"):
        Sums(only=((7, 8),), pool=2)
    held = Sums().build(seed=0).heldout_prompts()[0].columns["terms"]
    with pytest.raises(DataError, match="is held out with seed 0"):
        Sums(only=(held[::-1],)).build(seed=0).train_prompt(0)


def test_a_coin_is_thrown_anew_for_every_answer() -> None:
    prompt = Prompt(id="a", text="?")
    thrown = [RandomReward(probability=0.3).score_group(prompt, [answered(str(number))] * 50) for number in range(40)]
    values = [judgement.value for group in thrown for (judgement,) in group]
    # 2,000 throws: five standard errors are 5 · sqrt(.21 / 2000) = .051
    assert sum(value or 0.0 for value in values) / 2000 == pytest.approx(0.3, abs=0.051)
    assert thrown[0] == RandomReward(probability=0.3).score_group(prompt, [answered("0")] * 50)
    assert thrown[0] != RandomReward(probability=0.3, seed=1).score_group(prompt, [answered("0")] * 50)
    assert {judgement.value for (judgement,) in RandomReward(probability=0.0).score_group(prompt, [answered("0")] * 9)} == {0.0}


def test_the_temperature_of_equal_entropy_is_found_through_noise() -> None:
    """Entropy log(1 + 3T) with a noise of one in a thousand: log 2.5 at T = .5."""

    def noisy(temperature: float) -> float:
        wobble = float(uniforms((round(temperature * 1e9),), 1)[0]) - 0.5
        return math.log(1 + 3 * temperature) * (1 + 0.002 * wobble)

    found = match(noisy, math.log(2.5))
    assert found.temperature == pytest.approx(0.5, rel=0.05)
    assert found.entropy == pytest.approx(math.log(2.5), rel=0.02)
    with pytest.raises(ConfigError, match=r"no temperature from 0\.05 to 2 matches: the entropy to match is 3\.0000 nats"):
        match(noisy, 3.0)


def test_the_command_measures_the_base_at_matched_temperature(tiny: str, tmp_path: Path) -> None:
    """The same model: its own temperature comes out."""
    train(load_recipe("oneshot", SMALL | {"model.name": tiny, "optimizer.lr": 1e-9}), tmp_path / "run")
    given = [f"{name}={value}" for name, value in SMALL.items()]
    options = [word for text in (*given, "evaluation.samples=8") for word in ("--set", text)]
    ended = run_command("evaluate", tiny, "--recipe", "oneshot", "--like", tmp_path / "run", *options, width=200)
    assert ended.code == 0, ended.err
    said = ended.out + ended.err
    assert float(said.split("temperature ")[1].split(":")[0]) == pytest.approx(0.6, rel=0.15)
