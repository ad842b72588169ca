"""Actor-critic rows raise a reward, for five seeds; the threshold was set before the first run.

The reward is the share of vowels in what a small random model writes. Over 40 steps of 8 prompts with 4 answers the mean
reward of the last eight steps lies at least 0.1 above that of the first eight. How much the critic explains is not asked for:
the spread of the returns vanishes as the policy learns, faster than the critic follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.seeds import SEEDS
from tests.test_loop import recipe
from tests.tiny import save_tiny
from toishi import loop
from toishi.record.reader import Run

SIZES: dict[str, Any] = {
    "train.steps": 40, "train.prompts_per_step": 8, "train.group_size": 4, "evaluation.prompts": 0, "checkpoint.every": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def trained(tiny: Path, folder: Path, **options: Any) -> list[Any]:
    return list(Run.open(loop.train(recipe(tiny, **SIZES, **options), folder).folder).metrics)


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("row", "kind"), [("a2c", "shared"), pytest.param("ppo", "shared", marks=pytest.mark.slow), ("ppo", "separate")]
)
def test_the_reward_rises(row: str, kind: str, tiny: Path, tmp_path: Path, seed: int) -> None:
    critic = {"kind": kind, "optimizer": {"lr": 1e-3}}
    epochs = 2 if row == "ppo" else 1
    lines = trained(tiny, tmp_path / "run", algorithm=row, critic=critic, seed=seed, **{"train.inner_epochs": epochs})
    rewards = [line["reward/mean"] for line in lines]
    assert mean(rewards[-8:]) > mean(rewards[:8]) + 0.1
