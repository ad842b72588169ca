"""What training keeps for a weight by each method: the formulas by hand, and the tensors of sessions that really train.

The tiny Llama: 128 words, hidden 32, 2 layers, 4 heads of 8 with 2 key heads, 48 inside, a head of its own.
    embedding 128 · 32 = 4,096; a layer 32 · 32 · 2 + 32 · 16 · 2 + 3 · 32 · 48 + 2 · 32 = 7,744; last norm 32
    below the head 4,096 + 2 · 7,744 + 32 = 19,616; N = 19,616 + 32 · 128 = 23,712
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.memory import counting

from tests.memory.shapes import SMALL, recipe
from tests.tiny import save_tiny
from toishi.config import load_config
from toishi.loop import train
from toishi.memory import METHODS, by_method, saving, this_recipe

N, BELOW, HIDDEN = 23_712, 19_616, 32
M = 134_515_008
"""Weights of SmolLM2-135M."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model")))


def test_bytes_of_a_weight_are_those_of_the_literature() -> None:
    """fp32 and AdamW: weights 4, gradients 4, two moments 8; a frozen copy 4; SmolLM2-135M in GiB."""
    found = {kept.method: kept for kept in by_method(recipe(), SMALL)}
    head = 16 * 577
    by_hand = {
        "SFT": 16 * M,
        "reward model": 16 * M,
        "DPO": 20 * M,
        "GRPO": 16 * M,
        "GRPO with KL": 20 * M,
        "A2C, shared trunk": 16 * M + head,
        "PPO with KL, shared trunk": 20 * M + head,
        "PPO with KL, critic of its own": 36 * M + head,
        "the same, and a reward model": 40 * M + head,
        "GKD, a teacher as large": 20 * M,
        "GRPO with LoRA": 4 * M + 16 * 16 * 30 * (4 * 576 + 3 * (576 + 1536)),
    }
    assert {name: kept.num_bytes for name, kept in found.items()} == by_hand
    assert [method.name for method in METHODS] == list(by_hand)
    gib = {name: round(num_bytes / 2**30, 2) for name, num_bytes in by_hand.items()}
    assert (gib["GRPO"], gib["GRPO with KL"], gib["PPO with KL, critic of its own"]) == (2.0, 2.51, 4.51)
    assert gib["the same, and a reward model"] == 5.01
    assert found["PPO with KL, critic of its own"].per_weight == pytest.approx(36.0, abs=1e-4)


def test_what_grpo_saves_is_said() -> None:
    """20 of 36 bytes: 20 · 134,515,008 is 2.69 GB."""
    assert saving(by_method(recipe(), SMALL)) == (
        "GRPO keeps 16.0 bytes a weight where PPO with KL, critic of its own keeps 36.0: 2.69 GB less (56%)"
    )


def test_other_optimizers_and_precisions() -> None:
    sgd = {kept.method: kept.num_bytes for kept in by_method(recipe(optimizer={"name": "sgd"}), SMALL)}
    assert (sgd["GRPO"], sgd["GRPO with KL"]) == (8 * M, 12 * M)
    half = {kept.method: kept.num_bytes for kept in by_method(recipe(), replace(SMALL, compute_bytes=2))}
    # masters, gradients and moments in fp32, a copy that computes in bf16, and the frozen reference in bf16
    assert (half["GRPO"], half["GRPO with KL"]) == (18 * M, 20 * M)


def test_a_recipe_with_adapters_or_a_teacher_is_compared_by_its_model() -> None:
    adapted = replace(SMALL, parameters=M + 1_000, trained=1_000, teacher_bytes=77, reward_bytes=99)
    config = recipe(model__lora={})
    assert this_recipe(config, adapted).num_bytes == 4 * M + 16 * 1_000 + 77 + 99
    assert this_recipe(config, adapted).weights == M
    assert by_method(config, adapted)[0].num_bytes == 16 * M


SUMS: dict[str, Any] = {"task": {"name": "sums", "heldout": 2}, "rewards": [{"name": "number"}]}
WRITTEN: dict[str, Any] = SUMS | {"task": {"name": "sums", "heldout": 2, "written": True}}
HEAD = HIDDEN + 1
LORA = 8 * 2 * (2 * (HIDDEN + HIDDEN) + 2 * (HIDDEN + 16) + 3 * (HIDDEN + 48))
"""Rank 8 beside each of the seven linear layers of both layers: rank · (in + out)."""
RUNS: dict[str, tuple[dict[str, Any], int]] = {
    "SFT": (WRITTEN | {"algorithm": "sft", "train.group_size": 1}, 16 * N),
    "reward model": (WRITTEN | {"algorithm": "reward_model", "rewards": []}, 16 * (BELOW + HIDDEN)),
    "DPO": (WRITTEN | {"algorithm": "dpo"}, 20 * N),
    "GRPO": (SUMS | {"algorithm": {"name": "grpo", "entropy_coef": 0.01}}, 16 * N),
    "GRPO with KL": (SUMS | {"algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.04}}, 20 * N),
    "A2C, shared trunk": (SUMS | {"algorithm": "a2c"}, 16 * N + 16 * HEAD),
    "PPO with KL, shared trunk": (SUMS | {"algorithm": {"name": "ppo", "kl_coef": 0.05}}, 20 * N + 16 * HEAD),
    "PPO with KL, critic of its own": (
        SUMS | {"algorithm": {"name": "ppo", "kl_coef": 0.05}, "critic.kind": "separate"},
        20 * N + 16 * BELOW + 4 * (N - BELOW) + 16 * HEAD,  # the critic's vocabulary layer lies idle
    ),
    "GKD, a teacher as large": (WRITTEN | {"algorithm": "gkd", "train.group_size": 1}, 20 * N),
    "GRPO with LoRA": (
        SUMS | {"algorithm": {"name": "grpo", "entropy_coef": 0.01}, "model.lora": {"rank": 8}},
        4 * N + 16 * LORA,
    ),
}
"""Settings, and the bytes by hand. Groups may be tied on a tiny model; an entropy term moves the weights all the same."""


@pytest.mark.parametrize("method", RUNS)
def test_a_session_holds_exactly_these_tensors(method: str, tiny: str, tmp_path: Path) -> None:
    settings, by_hand = RUNS[method]
    if method.startswith("GKD"):
        settings = settings | {"teacher": {"name": tiny}}
    config = load_config(
        {"model": {"name": tiny, "dtype": "float32"}, "evaluation": {"prompts": 0}, "sampling": {"max_new_tokens": 8}},
        {"train.steps": 1, "train.prompts_per_step": 2, "train.group_size": 2} | settings,
    )
    with counting() as found:
        train(config, tmp_path / "run")
    assert sum(found["held"].values()) == by_hand
    said = {part.name: part.num_bytes for part in found["plan"].kept.parts}
    assert {name: num_bytes for name, num_bytes in found["held"].items() if num_bytes} == said


def test_in_half_precision_masters_stand_beside_the_copy_that_computes(tiny: str, tmp_path: Path) -> None:
    config = load_config(
        {"model": {"name": tiny, "dtype": "bfloat16"}, "evaluation": {"prompts": 0}, "sampling": {"max_new_tokens": 8}},
        {"train.steps": 1, "train.prompts_per_step": 2, "train.group_size": 2}
        | SUMS
        | {"algorithm": {"name": "ppo", "kl_coef": 0.05}, "critic.kind": "separate"},
    )
    with counting() as found:
        train(config, tmp_path / "run")
    # policy 16 + 2, reference 2, critic 16 + 2, of its idle layer 2; its head computes in fp32
    by_hand = 20 * N + 18 * BELOW + 2 * (N - BELOW) + 16 * HEAD
    assert sum(found["held"].values()) == by_hand == found["plan"].kept.num_bytes
