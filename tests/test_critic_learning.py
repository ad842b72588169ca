"""Actor-critic rows raise a reward, for five seeds; the thresholds were set before the first run.

The reward is the share of vowels in what a small random model writes. Over 40 steps of 8 prompts with 4 answers: the mean
reward of the last eight steps lies at least 0.1 above that of the first eight, and over the last twenty steps the critic knows
something of what comes (mean explained variance above 0).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_loop import recipe
from tests.tiny import save_tiny
from toishi import loop
from toishi.record.reader import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("row", "kind"), [("a2c", "shared"), ("ppo", "shared"), ("ppo", "separate")])
def test_the_reward_rises(row: str, kind: str, tiny: Path, tmp_path: Path, seed: int) -> None:
    options = {
        "seed": seed,
        "algorithm": row,
        "critic": {"kind": kind, "optimizer": {"lr": 1e-2 if kind == "shared" else 3e-3}},
        "train.steps": 40,
        "train.prompts_per_step": 8,
        "train.group_size": 4,
        "train.inner_epochs": 2 if row == "ppo" else 1,
        "evaluation.prompts": 0,
        "checkpoint.every": 0,
    }
    lines = Run.open(loop.train(recipe(tiny, **options), tmp_path / "run").folder).metrics
    rewards = [line["reward/mean"] for line in lines]
    assert mean(rewards[-8:]) > mean(rewards[:8]) + 0.1
    assert mean([line["critic/explained_variance"] for line in lines[-20:]]) > 0
