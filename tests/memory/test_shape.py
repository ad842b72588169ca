"""What a model keeps of a forward pass, against tensors counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tiny import tiny_model
from toishi.memory import ModelShape
from toishi.policy.policy import Policy


def shape_of(family: str, dtype: torch.dtype = torch.float32, **options: Any) -> ModelShape:
    return ModelShape.of(Policy(tiny_model(family), compute_dtype=dtype, **options))


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma"])
def test_shapes_are_read_from_any_family(family: str) -> None:
    shape = shape_of(family)
    assert (shape.hidden, shape.layers, shape.vocabulary) == (32, 2, 128)
    assert shape.parameters == shape.trained == sum(weight.numel() for weight in tiny_model(family).parameters())
    assert shape.key_value_width == {"llama": 16, "gpt2": 32, "gemma": 8}[family]


def test_a_llama_layer_keeps_its_inputs_queries_keys_values_and_gates() -> None:
    """Per token and layer: two norms' inputs (32 each), q and the attention's result (32 each), k and v (16 each), gate and up
    (48 each) in fp32; two root mean squares and 4 log-sum-exps in fp32. After the last layer: the norm's input and its root."""
    shape = shape_of("llama")
    layer = 4 * (2 * 32 + 2 * 32 + 2 * 16 + 2 * 48) + 4 * (2 + 4)
    cos_and_sin = 4 * 2 * 8  # the same for every layer; the signed sine is made per layer
    known = 2 * layer + 4 * (32 + 1)
    assert known <= shape.kept_per_token <= known + 3 * cos_and_sin + 16
    assert shape.kept_per_square == pytest.approx(0, abs=0.1)


def test_half_the_bytes_keep_about_half() -> None:
    wide, narrow = shape_of("llama"), shape_of("llama", torch.bfloat16)
    assert narrow.kept_per_token == pytest.approx(wide.kept_per_token / 2, rel=0.1)


def test_a_mask_grows_with_the_square() -> None:
    policy = Policy(tiny_model("llama", attn_implementation="eager"), compute_dtype=torch.float32)
    # eager attention keeps at least the probabilities of 4 heads in 2 layers
    assert ModelShape.of(policy).kept_per_square >= 2 * 4 * 4 - 0.01


def test_checkpointing_is_measured_with_the_layers_own_forwards() -> None:
    plain, recomputing = shape_of("llama"), shape_of("llama", gradient_checkpointing=True)
    assert recomputing.kept_per_token == plain.kept_per_token


def test_measuring_leaves_no_gradient() -> None:
    policy = Policy(tiny_model("llama"), compute_dtype=torch.float32)
    ModelShape.of(policy)
    assert all(weight.grad is None for weight in policy.module.parameters())
