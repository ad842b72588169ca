"""The estimate against bytes counted by hand, and against the files of a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny import save_tiny
from toishi import loop
from toishi.check import check
from toishi.config import load_config
from toishi.disk import DiskEstimate, estimate_disk, free_disk, kept_checkpoints
from toishi.policy.loading import load_model


def recipe(**overrides: Any) -> Any:
    return load_config({}, {key.replace("__", "."): value for key, value in overrides.items()})


def test_adam_keeps_two_numbers_a_weight_and_the_first_checkpoint_none() -> None:
    found = estimate_disk(recipe(), trained=1_000, weight_bytes=4, tokenizer=None)
    assert (found.first, found.later) == (4_000, 12_000)
    momentum = recipe(optimizer={"name": "sgd", "momentum": 0.9})
    assert estimate_disk(momentum, trained=1_000, weight_bytes=8, tokenizer=None).later == 16_000
    assert estimate_disk(recipe(optimizer__name="sgd"), trained=1_000, weight_bytes=4, tokenizer=None).later == 4_000


def test_a_reference_that_is_renewed_is_kept_with_every_checkpoint() -> None:
    renewed = recipe(algorithm={"name": "grpo", "kl": "k3", "kl_coef": 0.1, "reference_every": 10})
    found = estimate_disk(renewed, trained=1_000, weight_bytes=4, tokenizer=None)
    assert (found.first, found.later) == (8_000, 16_000)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # 30 steps, saved after 10, 20, 30 and measured there too
        ({"every": 10, "keep_last": 1, "keep_best": False}, (1, 1)),
        ({"every": 10, "keep_last": 1, "keep_best": True}, (2, 1)),
        ({"every": 10, "keep_last": 2, "keep_best": False}, (2, 1)),
        ({"every": 10, "keep_last": 3, "keep_best": True}, (3, 0)),
        ({"every": 10, "keep_last": 9, "keep_best": True}, (3, 0)),
        ({"every": 10, "keep_last": 1, "keep_best": False, "anchor_every": 10}, (3, 0)),
        ({"every": 5, "keep_last": 1, "keep_best": False, "anchor_every": 15}, (2, 1)),
        ({"every": 0, "keep_last": 1, "keep_best": True}, (1, 0)),
    ],
)
def test_kept_are_the_newest_the_best_and_the_anchors(policy: dict[str, Any], expected: tuple[int, int]) -> None:
    assert kept_checkpoints(recipe(checkpoint=policy, train={"steps": 30}, evaluation={"every": 10})) == expected


def test_the_fullest_moment_has_one_more_than_is_kept() -> None:
    found = DiskEstimate(first=10, later=30, kept=2, extra=1, free=99)
    assert (found.needed, found.fits) == (100, False)
    assert DiskEstimate(first=10, later=30, kept=2, extra=0, free=99).fits is True
    assert DiskEstimate(first=10, later=30, kept=2, extra=0, free=None).fits is None


def test_what_is_free_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    there = free_disk(tmp_path)
    assert there is not None
    assert free_disk(tmp_path / "not" / "made" / "yet") == pytest.approx(there, rel=0.2)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama", hidden_size=128, intermediate_size=512)


@pytest.mark.parametrize("lora", [None, {"rank": 64}])
def test_a_real_run_takes_what_was_said(wide: Path, tmp_path: Path, lora: dict[str, int] | None) -> None:
    config = load_config(
        {
            "model": {"name": str(wide), "dtype": "float32", "lora": lora},
            "rewards": [{"name": "vowels", "function": "tests.making:vowels"}],
            "sampling": {"max_new_tokens": 4},
            "train": {"steps": 4, "prompts_per_step": 1, "group_size": 2},
            "evaluation": {"prompts": 0},
            "checkpoint": {"every": 1, "keep_last": 1, "anchor_every": 2, "keep_best": False},
            "record": {"folder": str(tmp_path)},
        }
    )
    folder = loop.train(config, tmp_path / "run").folder
    loaded = load_model(config.model, seed=0)
    trained = sum(weight.numel() for weight in loaded.module.parameters() if weight.requires_grad)
    found = estimate_disk(config, trained=trained, weight_bytes=4, tokenizer=loaded.tokenizer)
    sizes = {
        place.name: sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        for place in (folder / "checkpoints").iterdir()
    }
    assert sorted(sizes) == ["step_000000", "step_000002", "step_000004"]
    assert found.kept == 2
    assert found.first == pytest.approx(sizes["step_000000"], rel=0.05)
    assert found.later == pytest.approx(sizes["step_000004"], rel=0.05)
    assert found.first + found.kept * found.later == pytest.approx(sum(sizes.values()), rel=0.05)


def test_check_says_it_and_warns_when_it_does_not_fit(wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config({"model": {"name": str(wide), "dtype": "float32"}, "sampling": {"max_new_tokens": 4}})
    monkeypatch.setattr("toishi.disk.free_disk", lambda folder: 1_000)
    report = check(config, with_attacks=False)
    assert report.disk is not None
    assert report.disk.free == 1_000
    assert any(finding.part == "disk" and "checkpoint.keep_last" in finding.message for finding in report.findings)


def test_a_critic_of_its_own_is_saved_with_its_optimizer() -> None:
    separate = recipe(algorithm={"name": "ppo"}, critic={"kind": "separate", "optimizer": {"name": "sgd", "momentum": 0.5}})
    found = estimate_disk(separate, trained=1_000, weight_bytes=4, tokenizer=None)
    assert (found.first, found.later) == (8_000, 8_000 + 8_000 + 4_000)
    shared = estimate_disk(recipe(algorithm={"name": "ppo"}), trained=1_000, weight_bytes=4, tokenizer=None)
    assert (shared.first, shared.later) == (4_000, 12_000)
