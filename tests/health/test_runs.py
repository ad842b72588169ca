"""The rules on real runs of a tiny random model: healthy ones are left in peace, broken ones are named.

The task: say anything with a vowel in it and stop in time. A random model does so in a few percent of its answers; half a point
is paid for each part. The runs differ in seed, model family and algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import save_tiny
from toishi import train
from toishi.errors import HealthStop
from toishi.record import Run
from toishi.rewards.base import Judgement
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


def healthy_run(models: Mapping[str, Path], seed: int, folder: Path, steps: int) -> Run:
    model = models[FAMILIES[seed % len(FAMILIES)]]
    task = ScriptedTask(PROMPTS, heldout=HELDOUT)
    reward = ScriptedReward(values=vowel_and_stop)
    overrides = ALGORITHMS[seed % len(ALGORITHMS)]
    train(recipe(model, seed, steps), task=task, rewards=[reward], overrides=overrides, folder=folder, quiet=True)
    return Run.open(folder)


def spoken(run: Run) -> Iterator[str]:
    """Warnings and stops, in words."""
    for event in run.events:
        if event["kind"] == "health" and event["action"] != "note":
            yield f"step {event['step']}, {event['rule']}: {event['message']}"
