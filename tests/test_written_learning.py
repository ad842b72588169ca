"""SFT and DPO learn a small task, for five seeds; the thresholds were set before the first run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeds import SEEDS
from tests.test_written import config
from tests.tiny import save_tiny
from toishi import loop
from toishi.record.reader import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.mark.parametrize("seed", SEEDS)
def test_sft_learns_its_rows(tiny: Path, tmp_path: Path, seed: int) -> None:
    options = {"train.steps": 40, "train.prompts_per_step": 8, "optimizer.lr": 3e-3, "seed": seed, "checkpoint.every": 0}
    loop.train(config(tiny, None, tmp_path, "sft", **options), tmp_path / "run")
    losses = [line["update/loss"] for line in Run.open(tmp_path / "run").metrics]
    assert sum(losses[-5:]) / 5 < 0.5 * losses[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("row", ["dpo", "dpo_online"])
def test_preferences_are_learned(tiny: Path, tmp_path: Path, seed: int, row: str) -> None:
    options = {"train.steps": 40, "train.prompts_per_step": 8, "optimizer.lr": 1e-3, "seed": seed, "checkpoint.every": 0}
    made = config(tiny, None, tmp_path, row, **(options | {"train.group_size": 2 if row == "dpo" else 4}))
    loop.train(made, tmp_path / "run")
    lines = Run.open(tmp_path / "run").metrics
    assert lines[0]["preference/loss"] == pytest.approx(0.6931472, abs=1e-6), "policy and reference are still one"
    if row == "dpo":
        assert sum(line["preference/accuracy"] for line in lines[-5:]) / 5 > 0.7
        assert sum(line["preference/loss"] for line in lines[-5:]) / 5 < 0.69
    else:
        first, last = (sum(line["reward/mean"] for line in part) / 8 for part in (lines[:8], lines[-8:]))
        assert last > first
