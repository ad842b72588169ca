"""The estimate, against bytes counted by hand (135 million weights; GiB as in the literature)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.memory.shapes import SMALL, recipe
from toishi.memory import MemoryEstimate, ModelShape, Part, Phase, estimate_memory
from toishi.memory.estimate import row_tokens

GIB = 2**30


def estimated(shape: ModelShape = SMALL, *, prompt_tokens: int = 45, budget: int = 2048, **overrides: object) -> MemoryEstimate:
    return estimate_memory(recipe(**overrides), shape, prompt_tokens=prompt_tokens, budget=budget)


def parts(estimate: MemoryEstimate) -> dict[str, int]:
    return {
        part.name: part.num_bytes for part in (*estimate.always, *(part for phase in estimate.phases for part in phase.parts))
    }


def of_weights(found: dict[str, int]) -> float:
    names = ("weights", "compute copy", "gradients", "optimizer", "reference model")
    return sum(found.get(name, 0) for name in names) / GIB


def test_full_training_takes_16_bytes_a_weight() -> None:
    assert of_weights(parts(estimated())) == pytest.approx(2.004, abs=1e-3)


def test_a_reference_model_takes_4_more() -> None:
    assert of_weights(parts(estimated(algorithm={"kl": "k3", "kl_coef": 0.1}))) == pytest.approx(2.505, abs=1e-3)


def test_half_precision_adds_a_copy() -> None:
    found = parts(estimated(replace(SMALL, compute_bytes=2)))
    assert found["compute copy"] == 2 * 134_515_008
    assert of_weights(found) == pytest.approx(18 / 16 * 2.0045, abs=1e-3)


def test_adapters_take_4_bytes_a_frozen_weight_and_16_a_trained_one() -> None:
    adapted = replace(SMALL, parameters=139_399_488, trained=4_884_480)
    assert of_weights(parts(estimated(adapted))) == pytest.approx((4 * 134_515_008 + 16 * 4_884_480) / GIB)


@pytest.mark.parametrize(("momentum", "num_bytes"), [(0.0, None), (0.9, 4)])
def test_sgd_keeps_less(momentum: float, num_bytes: int | None) -> None:
    found = parts(estimated(optimizer={"name": "sgd", "momentum": momentum}))
    assert found.get("optimizer") == (None if num_bytes is None else num_bytes * 134_515_008)


def test_keys_and_values_of_prompts_once_and_of_every_answer() -> None:
    # fp32 numbers of 4 prompts x 45 and 32 answers x 128 places (127 used), and the prompts once more where they were computed
    found = parts(estimated(sampling__max_new_tokens=128, evaluation__prompts=0))
    numbers = 2 * 30 * 192
    assert found["key-value cache"] == 4 * numbers * (4 * 45 + 32 * 127) + 4 * numbers * 4 * 45


def test_short_answers_are_sampled_without_laid_out_weights() -> None:
    assert "laid-out weights" not in parts(estimated(sampling__max_new_tokens=31))
    found = parts(estimated(sampling__max_new_tokens=32))
    assert found["laid-out weights"] == 4 * (106_168_320 + 49_152 * 576)
    assert found["left from sampling"] == 4 * 106_168_320


@pytest.mark.parametrize(
    ("budget", "options", "tokens"),
    [
        (2048, {}, 3 * (45 + 8 * 63)),  # whole groups of 549, and no fourth
        (4096, {}, 4 * (45 + 8 * 63)),  # there are no more than four
        (512, {}, 45 + 7 * 63),  # a group is split: 7 answers behind their prompt
        (1, {}, 45 + 63),  # never less than one answer
        (4096, {"mixed": False}, 45 + 8 * 63),
        (4096, {"shared": False}, 45 + 63),
    ],
)
def test_rows_are_as_long_as_packing_makes_them(budget: int, options: dict[str, bool], tokens: int) -> None:
    assert row_tokens(recipe(sampling__max_new_tokens=64), 45, budget, **options) == tokens


def test_activations_follow_the_rows() -> None:
    assert parts(estimated(budget=512))["activations"] == 700_000 * (45 + 7 * 63)
    squared = replace(SMALL, kept_per_square=60.0)
    assert parts(estimated(squared, budget=512))["activations"] == 700_000 * 486 + 60 * 486**2


def test_an_update_in_one_pass_shares_places_between_activations_and_gradients() -> None:
    """One group of 45 + 8 · 63 tokens; two thirds of the smaller, the activations, and none where masters are apart."""
    one: dict[str, Any] = {"train__prompts_per_step": 1, "train__group_size": 8, "sampling__max_new_tokens": 64}
    kept = 700_000 * 549
    assert parts(estimated(**one))["activations"] == kept - 2 * kept // 3
    assert parts(estimated(replace(SMALL, compute_bytes=2), **one))["activations"] == kept
    wide = replace(SMALL, kept_per_token=7_000_000.0)  # more than the gradients' 538 MB: two thirds of those
    assert parts(estimated(wide, **one))["activations"] == 10 * kept - 2 * 4 * 134_515_008 // 3
    assert parts(estimated(**(one | {"train__prompts_per_step": 4})))["activations"] == 3 * kept


def test_models_of_rewards_count() -> None:
    found = parts(estimated(replace(SMALL, reward_bytes=1_000)))
    assert found["reward models"] == 1_000
    assert "reward models" not in parts(estimated())


def test_checkpointing_keeps_layer_inputs_and_one_layer() -> None:
    found = parts(estimated(budget=512, train__gradient_checkpointing=True))
    assert found["activations"] == 700_000 * 486 // 30 + 30 * 486 * 576 * 4


def test_a_plain_head_has_whole_logits() -> None:
    assert "logits" not in parts(estimated())
    assert parts(estimated(replace(SMALL, fast_head=False), budget=512))["logits"] == 5 * 486 * 49_152 * 4


def test_a_trace_holds_the_weights_from_before() -> None:
    assert parts(estimated(record__trace_every=1))["weights before the step"] == 8 * 134_515_008


def test_only_the_largest_phase_counts() -> None:
    estimate = MemoryEstimate(
        always=(Part("weights", 10, ""),),
        phases=(Phase("sampling", (Part("cache", 5, ""),)), Phase("update", (Part("logits", 2, ""), Part("more", 2, "")))),
        budget=1,
    )
    assert (estimate.needed, estimate.peak.name) == (15, "sampling")


def test_a_gpu_keeps_no_laid_out_weights() -> None:
    found = parts(estimated(replace(SMALL, device="cuda")))
    assert "laid-out weights" not in found
    assert "libraries" not in found


def test_a_shared_critic_is_a_head_and_a_separate_one_a_second_model() -> None:
    """Bytes of 36 N: policy 16, critic 16, reference 4."""
    shared = parts(estimated(algorithm={"name": "ppo"}))
    assert shared["critic"] == 16 * 577
    separate = parts(estimated(algorithm={"name": "ppo", "kl_coef": 0.1}, critic={"kind": "separate"}))
    assert separate["critic"] == 16 * (134_515_008 + 577)
    assert of_weights(separate) + separate["critic"] / GIB == pytest.approx(4.51, abs=5e-3)
    assert "critic" not in parts(estimated())


def test_a_separate_critic_has_its_own_optimizer_and_frozen_weights() -> None:
    adapted = replace(SMALL, parameters=139_399_488, trained=4_884_480, compute_bytes=2)
    sgd = {"kind": "separate", "optimizer": {"name": "sgd"}}
    found = parts(estimated(adapted, algorithm={"name": "a2c"}, critic=sgd))
    assert found["critic"] == (4 + 4 + 2) * 4_884_480 + 8 * 577 + 2 * 134_515_008
