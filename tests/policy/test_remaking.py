"""Tensors that are made again in the backward pass: the same bits from less memory, and nothing left behind."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from tests.making import settings, two_groups
from tests.tiny import tiny_model
from toishi.algorithms.apply import assign_advantages
from toishi.policy import policy as policy_module
from toishi.policy import remaking as remaking_module
from toishi.policy.fused import functions
from toishi.policy.fused.functions import gated_silu, rms_norm
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.remaking import offer, remaking
from toishi.update import update_policy

FAMILIES = ("llama", "qwen3", "olmo2", "gemma", "mistral")
TOKENS, HIDDEN, MIDDLE, LAYERS = 50, 32, 48, 2


def lora_model() -> Any:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
        torch.manual_seed(3)
        module: Any = peft.get_peft_model(tiny_model("llama"), peft.LoraConfig(r=2, target_modules="all-linear"))
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.linspace(-0.1, 0.1, weight.numel()).view_as(weight))
    return module


def made(family: str, dtype: torch.dtype = torch.float32, **options: Any) -> Policy:
    return Policy(lora_model() if family == "lora" else tiny_model(family), compute_dtype=dtype, **options)


def keep_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "remaking", nullcontext)


def logprobs(policy: Policy) -> Tensor:
    ids = torch.arange(5, 5 + TOKENS)
    predicted = policy.predict(ids, torch.arange(TOKENS), torch.arange(TOKENS - 1))
    return predicted.logprobs_and_entropy(ids[1:], 1.0)[0]


def gradients(policy: Policy) -> dict[str, Tensor]:
    """Of one update on two groups, packed behind their prompts."""
    chosen = settings("grpo", lr=0.1)
    groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
    update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
    return {name: master.grad for name, master in policy.masters.items() if master.grad is not None}


@contextmanager
def noting(kept: dict[int, Tensor]) -> Iterator[None]:
    """What autograd keeps inside, by its memory."""

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", [*FAMILIES, "lora"])
def test_gradients_are_equal_bit_for_bit(family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradients(made(family, dtype))
    keep_everything(monkeypatch)
    expected = gradients(made(family, dtype))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert any(bool(gradient.any()) for gradient in found.values())


NORMS = {"llama": 2 * LAYERS, "lora": 2 * LAYERS - 1}
"""Under adapters nothing before the first layer is trained: its first norm keeps no input to make its output from."""


@pytest.mark.parametrize("family", NORMS)
def test_two_norms_and_the_gated_activation_of_each_layer_are_not_kept(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that stand around the forward pass get what is kept."""
    sizes = []
    for _ in range(2):
        kept: dict[int, Tensor] = {}
        with noting(kept):
            values = logprobs(made(family))
        sizes.append(sum(tensor.untyped_storage().nbytes() for tensor in kept.values()))
        assert values.requires_grad
        keep_everything(monkeypatch)
    assert sizes[1] - sizes[0] == 4 * TOKENS * (NORMS[family] * HIDDEN + LAYERS * MIDDLE)


@pytest.mark.parametrize("family", NORMS)
def test_layers_that_saved_the_same_tensor_share_one_that_is_made_again(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, calls = made(family), Counter[str]()

    def counting(output: Tensor, make: Any, *inputs: Tensor) -> None:
        def counted(*given: Tensor) -> Tensor:
            calls["norm" if len(given) == 3 else "gated"] += 1
            return make(*given)  # type: ignore[no-any-return]

        offer(output, counted, *inputs)

    monkeypatch.setattr(functions, "offer", counting)
    values = logprobs(policy)
    assert not calls
    values.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
    assert calls == {"norm": NORMS[family], "gated": LAYERS}
    first = {name: master.grad.clone() for name, master in policy.masters.items() if master.grad is not None}
    policy.zero_grad()
    values.sum().backward()  # type: ignore[no-untyped-call]
    assert calls == {"norm": 2 * NORMS[family], "gated": 2 * LAYERS}
    assert all(torch.equal(policy.masters[name].grad, gradient) for name, gradient in first.items())  # type: ignore[arg-type]


def alive(references: list[StorageWeakRef]) -> int:
    return sum(not reference.expired() for reference in references)  # type: ignore[no-untyped-call]


def test_nothing_survives_the_backward_pass_or_a_graph_that_is_dropped() -> None:
    policy = made("llama")
    gc.collect()
    gc.disable()  # by reference counts alone, without help from the collector of cycles
    try:
        for backward in (True, False):
            held: list[StorageWeakRef] = []
            weights = {weight.untyped_storage().data_ptr() for weight in policy.module.parameters()}

            def pack(tensor: Tensor, held: list[StorageWeakRef] = held, weights: set[int] = weights) -> Tensor:
                if tensor.untyped_storage().data_ptr() not in weights:
                    held.append(StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                values = logprobs(policy)
            assert alive(held) > 10 * LAYERS
            if backward:
                values.sum().backward()  # type: ignore[no-untyped-call]
            del values
            assert alive(held) == 0
            policy.zero_grad()
    finally:
        gc.enable()


def test_an_exception_in_the_forward_pass_leaves_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = made("llama")
    last = policy.module.model.layers[-1].mlp.down_proj
    with monkeypatch.context() as broken:
        broken.setattr(last, "forward", lambda _x: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            logprobs(policy)
    assert remaking_module._OFFERS.get() is None
    x = torch.ones(2, requires_grad=True)
    assert (x * x).grad_fn._saved_self is x  # type: ignore[union-attr]
    assert bool(torch.isfinite(logprobs(policy)).all())


def test_an_output_that_was_changed_in_place_is_kept_as_it_is() -> None:
    gate, up, weight = (torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    weight.requires_grad_()
    with remaking():
        output = gated_silu(gate.requires_grad_(), up).detach().mul_(2)
        product = output @ weight
    product.sum().backward()  # type: ignore[no-untyped-call]
    expected = 2 * nn.functional.silu(gate) * up
    torch.testing.assert_close(weight.grad, expected.sum(0)[:, None].expand(4, 4))


def test_memory_that_was_given_to_another_tensor_is_not_taken_for_the_output() -> None:
    x, weight = torch.randn(64, 64, requires_grad=True), torch.ones(64)
    places = set()
    with remaking():
        for number in range(20):
            output = rms_norm(x, weight, 1e-3)
            places.add(output.data_ptr())
            del output
            other = torch.full((64, 64), float(number))
            weight_2 = torch.zeros(64, 64, requires_grad=True)
            (other @ weight_2).sum().backward()  # type: ignore[no-untyped-call]
            assert torch.equal(weight_2.grad, torch.full((64, 64), 64.0 * number))  # type: ignore[arg-type]
    assert len(places) < 20, "memory was used again"


def test_views_of_an_output_are_made_again_as_they_were() -> None:
    x, weight_D, other = torch.randn(3, 4, requires_grad=True), torch.ones(4), torch.randn(2, 3, requires_grad=True)
    with remaking():
        view = rms_norm(x, weight_D, 1e-3)[:, 1:3]
        product = (view.t() * other).sum()
    (found,) = torch.autograd.grad(product, other)
    assert torch.equal(found, view.detach().t())


@pytest.mark.parametrize("which", ["input of the output", "kept tensor"])
def test_a_change_in_place_between_the_passes_is_an_error(which: str) -> None:
    gate, up, weight = torch.ones(2, 2, requires_grad=True) * 1, torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    with remaking():
        product = gated_silu(gate, up) @ weight if which == "input of the output" else up @ weight
    with torch.no_grad():
        up.add_(1)
    with pytest.raises(RuntimeError, match="changed in place after the forward pass"):
        product.sum().backward()  # type: ignore[no-untyped-call]


def test_without_gradients_nothing_is_offered() -> None:
    with torch.no_grad(), remaking():
        assert remaking_module._OFFERS.get() is None


def test_recomputed_layers_are_not_touched() -> None:
    """A layer that is computed again keeps its input alone; what is offered inside does not outlive the layer."""
    found = gradients(made("llama", gradient_checkpointing=True))
    expected = gradients(made("llama"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
