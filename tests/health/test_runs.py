"""The rules on real runs of a tiny random model: healthy ones are left in peace, broken ones are named.

The task: say something with a vowel in it and stop in time, half a point for each. A random model rarely stops. The runs differ
in seed, model family and algorithm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import save_tiny
from toishi import train
from toishi.errors import HealthStop
from toishi.record import Run
from toishi.rewards.base import Judgement, Reward
from toishi.rewards.scripted import ScriptedReward
from toishi.tasks.scripted import ScriptedTask
from toishi.types import Completion, Prompt

PROMPTS = [f"say {word} {number}" for number in range(8) for word in ("cat", "mat", "sum")]
HELDOUT = [f"say hat {number}" for number in range(8)]
FAMILIES = ("llama", "qwen2", "gpt2")
ALGORITHMS: tuple[dict[str, Any], ...] = (
    {"algorithm": "grpo"},
    {"algorithm": "dr_grpo"},
    {"algorithm": "dapo"},
    {"algorithm": "rloo", "train.inner_epochs": 2},
    {"algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.01}, "train.minibatches": 2},
)


def vowel_and_stop(_: Prompt, answer: Completion) -> float:
    return 0.5 * any(letter in "aeiou" for letter in answer.text) + 0.5 * (not answer.is_truncated)


def breaks_on_cut_answers(_: Prompt, answer: Completion) -> float | Judgement:
    if answer.num_tokens < 12:
        return 0.0
    return Judgement(value=None, status="failed", reason="no reply from the judge")


def recipe(model: Path, seed: int, steps: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "model": {"name": str(model), "dtype": "float32"},
        "sampling": {"max_new_tokens": 12},
        "optimizer": {"lr": 3e-3},
        "train": {"steps": steps, "prompts_per_step": 4, "group_size": 8},
        "evaluation": {"every": 10, "prompts": 8, "prompts_during": 8, "samples": 2},
        "checkpoint": {"every": 0},
        "record": {"tokens": False},
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {family: save_tiny(folder / family, family, seed=1) for family in FAMILIES}


def run_of(models: Mapping[str, Path], seed: int, folder: Path, *, steps: int, reward: Reward, **overrides: Any) -> Run:
    """The run as its folder tells it, whether it ended or was stopped."""
    model = models[FAMILIES[seed % len(FAMILIES)]]
    task = ScriptedTask(PROMPTS, heldout=HELDOUT)
    with contextlib.suppress(HealthStop):
        train(recipe(model, seed, steps), task=task, rewards=[reward], overrides=overrides, folder=folder, quiet=True)
    return Run.open(folder)


def spoken(run: Run) -> dict[str, tuple[int, str, str]]:
    """Rule -> (step, action, evidence) of what was said, notes left out."""
    return {
        event["rule"]: (event["step"], event["action"], event["message"])
        for event in reversed(run.events)
        if event["kind"] == "health" and event["action"] != "note"
    }


def disturbances(models: Mapping[str, Path], seeds: range, folder: Path, steps: int) -> dict[int, object]:
    """What was said in healthy runs, by seed; each must have learned."""
    found: dict[int, object] = {}
    for seed in seeds:
        overrides = ALGORITHMS[seed % len(ALGORITHMS)]
        run = run_of(models, seed, folder / str(seed), steps=steps, reward=ScriptedReward(values=vowel_and_stop), **overrides)
        rewards = [row["reward/mean"] for row in run.metrics]
        assert sum(rewards[-5:]) > sum(rewards[:5])
        if said := spoken(run):
            found[seed] = said
    return found


def test_healthy_runs_are_left_in_peace(models: Mapping[str, Path], tmp_path: Path) -> None:
    assert disturbances(models, range(3), tmp_path, steps=25) == {}


@pytest.mark.slow
def test_at_most_one_of_twenty_healthy_runs_is_disturbed(models: Mapping[str, Path], tmp_path: Path) -> None:
    found = disturbances(models, range(20), tmp_path, steps=40)
    assert len(found) <= 1, found


def test_a_reward_that_breaks_stops_the_run_after_its_step_is_written(models: Mapping[str, Path], tmp_path: Path) -> None:
    run = run_of(models, 0, tmp_path / "run", steps=5, reward=ScriptedReward(values=breaks_on_cut_answers))
    step, action, evidence = spoken(run)["failed_rewards"]
    assert (step, action, len(run.metrics)) == (1, "stop", 1)
    cut = sum(row["finish_reason"] == "length" for row in run.rollout_rows(1))
    assert evidence == f"reward 'scripted' failed on {cut} of 32 answers (health.max_failed_share is 0.5)"


def test_a_reward_that_never_pays_is_named(models: Mapping[str, Path], tmp_path: Path) -> None:
    run = run_of(models, 0, tmp_path / "run", steps=10, reward=ScriptedReward(values=lambda prompt, answer: 0.0))
    assert {rule: said[0] for rule, said in spoken(run).items()} == {"all_wrong": 10, "constant_reward": 10}


def test_a_learning_rate_that_wrecks_the_model_is_named(models: Mapping[str, Path], tmp_path: Path) -> None:
    reward = ScriptedReward(values=vowel_and_stop)
    run = run_of(models, 0, tmp_path / "run", steps=15, reward=reward, **{"optimizer.lr": 3.0})
    assert "entropy_collapse" in spoken(run)
