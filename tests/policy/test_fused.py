"""Drop-ins for norms, rotary embeddings and gated activations against the plain modules and against float64 autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from tests.tiny import tiny_model
from toishi.policy.fused import fuse, plain
from toishi.policy.fused.functions import ROWS_AT_ONCE, gated_silu, rms_norm, rotate
from toishi.policy.policy import Policy
from toishi.policy.recomputing import recompute_layers

FUSED_PARTS = {
    # two layers: 4 norms and the last, 2 attentions, 2 gated parts
    **dict.fromkeys(("llama", "mistral", "qwen2", "smollm3"), 9),
    "qwen3": 13,  # and a norm for q and one for k
    "gemma": 7,  # gated by GELU, which stays
    "gemma2": 11,  # four norms a layer
    "phi3": 5,  # only norms: its rotary turns a part of a head, its gate and up are one product
    "olmo2": 11,  # q and k norms; its rotary rounds otherwise
}
Function = Callable[..., Tensor]


def model(family: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    return tiny_model(family, seed=seed, dtype=dtype, attn_implementation="eager")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def values_and_gradients(function: Function, inputs: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Output and all gradients for a fixed pull at the output. In every precision the inputs are bf16 numbers."""
    leaves = [value.bfloat16().to(dtype).requires_grad_() for value in inputs]
    output = function(*leaves)
    pull = randn(*output.shape, seed=9).bfloat16().to(dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, pull)]


def distance(found: Tensor, truth: Tensor) -> float:
    return float((found.double() - truth.double()).norm() / truth.double().norm())


def norm_truth(offset: float) -> Function:
    def norm(x: Tensor, weight_D: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-3) * (weight_D + offset)

    return norm


def plain_norm(kind: type[Any]) -> Function:
    def norm(x: Tensor, weight_D: Tensor) -> Tensor:
        part = kind(weight_D.shape[-1], eps=1e-3)
        return torch.func.functional_call(part, {"weight": weight_D}, (x,))  # type: ignore[no-any-return]

    return norm


def both(q: Tensor, k: Tensor) -> Tensor:
    return torch.cat((q, k), dim=1)


ANGLES = randn(1, 7, 8, seed=5)
COS, SIN = ANGLES.cos().bfloat16().double(), ANGLES.sin().bfloat16().double()


def plain_rotary(q: Tensor, k: Tensor) -> Tensor:
    return both(*apply_rotary_pos_emb(q, k, COS.to(q.dtype), SIN.to(q.dtype)))


def turned(z: Tensor) -> Tensor:
    """The definition, pair by pair; cos and sin of one pair may differ."""
    half = z.shape[-1] // 2
    columns = [z[..., i] * COS[..., i] - z[..., i + half] * SIN[..., i] for i in range(half)]
    columns += [z[..., i] * COS[..., i] + z[..., i - half] * SIN[..., i] for i in range(half, 2 * half)]
    return torch.stack(columns, -1)


X, WEIGHT = randn(2, 5, 24), 1 + 0.3 * randn(24, seed=1)
GATE, UP = 3 * randn(4, 40), randn(4, 40, seed=2)
QUERIES, KEYS = randn(1, 7, 3, 8).transpose(1, 2), randn(1, 7, 2, 8, seed=3).transpose(1, 2)

OFFSET, LAST = {"offset": 1.0, "round_last": True}, {"round_last": True}


def norm_with(**options: Any) -> Function:
    return lambda x, weight_D: rms_norm(x, weight_D, 1e-3, **options)


def drop_in_rotary(q: Tensor, k: Tensor) -> Tensor:
    return both(*rotate(q, k, COS.to(q.dtype), SIN.to(q.dtype)))


CASES: dict[str, tuple[Function, Function, Function, list[Tensor]]] = {
    # drop-in, truth in float64, plain transformers or torch, inputs
    "norm": (norm_with(), norm_truth(0.0), plain_norm(LlamaRMSNorm), [X, WEIGHT]),
    "norm_offset": (norm_with(**OFFSET), norm_truth(1.0), plain_norm(GemmaRMSNorm), [X, WEIGHT - 1]),
    "norm_round_last": (norm_with(**LAST), norm_truth(0.0), plain_norm(Olmo2RMSNorm), [X, WEIGHT]),
    "gated": (gated_silu, lambda g, u: g / (1 + torch.exp(-g)) * u, lambda g, u: nn.functional.silu(g) * u, [GATE, UP]),
    "rotary": (drop_in_rotary, lambda q, k: both(turned(q), turned(k)), plain_rotary, [QUERIES, KEYS]),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_formula_in_float64(case: str) -> None:
    drop_in, truth, _, inputs = CASES[case]
    value, *gradients = values_and_gradients(drop_in, inputs, torch.float64)
    true_value, *true_gradients = values_and_gradients(truth, inputs, torch.float64)
    assert distance(value, true_value) < 1e-14
    assert max(map(distance, gradients, true_gradients)) < 1e-12


@pytest.mark.parametrize("case", CASES)
def test_fp32_is_equal_to_the_plain_part_to_rounding(case: str) -> None:
    drop_in, _, unfused, inputs = CASES[case]
    found, expected = (values_and_gradients(function, inputs, torch.float32) for function in (drop_in, unfused))
    assert max(map(distance, found, expected)) < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_bf16_is_no_further_from_the_truth_than_the_plain_part(case: str) -> None:
    drop_in, truth, unfused, inputs = CASES[case]
    exact = values_and_gradients(truth, inputs, torch.float64)
    found, expected = (values_and_gradients(function, inputs, torch.bfloat16) for function in (drop_in, unfused))
    for one, other, true in zip(found, expected, exact, strict=True):
        assert 0 < distance(other, true) < 0.02
        assert distance(one, true) <= 1.2 * distance(other, true)


@pytest.mark.parametrize("case", CASES)
def test_without_a_gradient_the_bits_are_the_same(case: str) -> None:
    drop_in, _, _, inputs = CASES[case]
    for dtype in (torch.float32, torch.bfloat16):
        with_gradient = values_and_gradients(drop_in, inputs, dtype)[0]
        with torch.inference_mode():
            assert torch.equal(drop_in(*(value.bfloat16().to(dtype) for value in inputs)), with_gradient)


def test_a_norm_over_several_blocks_of_rows_has_the_gradient_of_one() -> None:
    inputs = [randn(ROWS_AT_ONCE + 3, 4), randn(4, seed=1)]
    found, expected = (values_and_gradients(f, inputs, torch.float64) for f in (CASES["norm"][0], norm_truth(0.0)))
    assert max(map(distance, found, expected)) < 1e-12


def test_a_frozen_weight_gets_no_gradient_and_the_input_the_same() -> None:
    x, weight_D = X.clone().requires_grad_(), WEIGHT.clone()
    rms_norm(x, weight_D, 1e-3).sum().backward()  # type: ignore[no-untyped-call]
    assert weight_D.grad is None
    assert x.grad is not None
    (expected,) = torch.autograd.grad(norm_truth(0.0)(x, weight_D).sum(), x)
    assert distance(x.grad, expected) < 1e-12


def passed(module: Any, ids: list[int], dtype: torch.dtype) -> list[Tensor]:
    """Logits and all gradients of one pass."""
    module.zero_grad()
    logits = module(input_ids=torch.tensor([ids]), use_cache=False).logits
    logits.backward(randn(*logits.shape).to(dtype))
    return [logits.detach(), *(weight.grad.clone() for weight in module.parameters())]


@pytest.mark.parametrize("family", FUSED_PARTS)
def test_a_model_gives_the_same_numbers(family: str) -> None:
    module, ids = model(family), [5, 6, 7, 8, 9, 10, 11]
    before = passed(module, ids, torch.float32)
    assert fuse(module) == FUSED_PARTS[family]
    after = passed(module, ids, torch.float32)
    assert max(map(distance, after, before)) < 1e-5
    assert any(not torch.equal(one, other) for one, other in zip(after, before, strict=True)), "nothing was replaced"
    with plain(module):
        assert all(map(torch.equal, passed(module, ids, torch.float32), before))
    assert all(map(torch.equal, passed(module, ids, torch.float32), after))


def test_bf16_models_are_no_further_from_the_truth() -> None:
    """Errors of 16-bit sums differ by chance from one input to the next, so they are compared over many."""
    fused = unfused = 0.0
    for family in FUSED_PARTS:
        for seed in range(3):
            module, ids = model(family, seed=seed).bfloat16(), [5 + seed, 16, 7, 28, 9 + seed, 30, 11]
            truth = passed(copy.deepcopy(module).float(), ids, torch.float32)
            unfused += sum(map(distance, passed(module, ids, torch.bfloat16), truth)) / len(truth)
            fuse(module)
            fused += sum(map(distance, passed(module, ids, torch.bfloat16), truth)) / len(truth)
    assert 0 < fused <= 1.2 * unfused


def test_float64_norms_stay_what_transformers_computes() -> None:
    module = model("llama", torch.float64)
    before = passed(module, [5, 6, 7], torch.float64)
    fuse(module)
    assert max(map(distance, passed(module, [5, 6, 7], torch.float64), before)) < 1e-12


def test_nothing_leaks_into_classes_copies_or_saved_weights() -> None:
    module, other = model("llama"), model("llama")
    names = list(module.state_dict())
    fuse(module)
    assert fuse(module) == 0, "a second call changes nothing"
    assert list(module.state_dict()) == names
    assert all("forward" not in part.__dict__ for part in other.modules())
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
        logits = twin(input_ids=torch.tensor([[5, 6, 7]])).logits
        assert float(logits.abs().max()) > 0.1, "a copy computes with its own weights"


def test_parts_that_somebody_changed_stay_as_they_are() -> None:
    module = model("llama")
    norm = module.model.norm
    norm.forward = lambda hidden: hidden
    module.model.layers[0].mlp.act_fn = nn.GELU()
    kind = type("LlamaRMSNorm", (LlamaRMSNorm,), {})
    module.model.layers[0].input_layernorm.__class__ = kind
    assert fuse(module) == 6
    assert norm.forward(3) == 3


def test_recomputed_layers_give_the_same_gradient() -> None:
    module, ids = model("llama"), [5, 6, 7, 8]
    fuse(module)
    expected = passed(module, ids, torch.float32)
    recompute_layers(module)
    assert all(map(torch.equal, passed(module, ids, torch.float32), expected))


def test_a_policy_computes_with_drop_ins() -> None:
    made = Policy(tiny_model("llama"), compute_dtype=torch.bfloat16)
    assert fuse(made.module) == 0
    assert sum("forward" in part.__dict__ for part in made.module.modules()) == FUSED_PARTS["llama"]
