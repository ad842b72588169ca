"""Gradient checkpointing: the same bits from less memory, in eval mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.making import settings, two_groups
from tests.tiny import tiny_model
from toishi.algorithms.apply import assign_advantages
from toishi.engines.plain import cache_name
from toishi.errors import ConfigError
from toishi.policy import attention
from toishi.policy import policy as policy_module
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.recomputing import recompute_layers
from toishi.update import update_policy

FAMILIES = ("llama", "qwen3", "gemma", "gpt2", "mistral", "mixtral")


def made(family: str, *, checkpointing: bool, dtype: torch.dtype = torch.float32, **options: Any) -> Policy:
    return Policy(tiny_model(family, **options), compute_dtype=dtype, gradient_checkpointing=checkpointing)


def gradients(policy: Policy) -> dict[str, Tensor]:
    """Of one update on two groups, packed behind their prompts."""
    chosen = settings("grpo", lr=0.1)
    groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
    update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
    return {name: master.grad for name, master in policy.masters.items() if master.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_gradients_are_equal_bit_for_bit(family: str, attention: str) -> None:
    """Also where the row's attention comes in from outside the layers, which has to surround the second computation."""
    plain, again = (gradients(made(family, checkpointing=flag, attn_implementation=attention)) for flag in (False, True))
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_bfloat16_too() -> None:
    plain, again = (gradients(made("llama", checkpointing=flag, dtype=torch.bfloat16)) for flag in (False, True))
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def saved_numbers(policy: Policy) -> int:
    """Numbers that a forward pass keeps for its backward pass, weights left out."""
    kept: dict[int, int] = {}
    weights = {weight.data_ptr() for weight in policy.module.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    ids = torch.arange(5, 55)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        found = policy.predict(ids, torch.arange(50), torch.arange(49))
        values = found.logprobs_and_entropy(ids[1:], 1.0)
    assert values[0].requires_grad
    return sum(kept.values())


def test_a_layer_keeps_its_input_alone() -> None:
    """What more layers add: one hidden state each, and not their inside."""
    more = {
        flag: saved_numbers(made("llama", checkpointing=flag, num_hidden_layers=6))
        - saved_numbers(made("llama", checkpointing=flag, num_hidden_layers=2))
        for flag in (False, True)
    }
    assert more[True] <= 4 * 50 * 32
    assert more[False] > 5 * more[True]


def test_the_module_stays_in_eval_mode_and_samples_with_its_cache() -> None:
    policy = made("llama", checkpointing=True)
    assert not any(part.training for part in policy.module.modules())
    ids, name = torch.tensor([[5, 6, 7]]), cache_name(policy.module)
    with torch.no_grad():
        first = policy.module(input_ids=ids, use_cache=True)
        then = policy.module(input_ids=torch.tensor([[8]]), use_cache=True, **{name: getattr(first, name)}).logits
        whole = policy.module(input_ids=torch.tensor([[5, 6, 7, 8]]), use_cache=False).logits[:, -1:]
    torch.testing.assert_close(then, whole, rtol=0, atol=1e-5)


def test_surroundings_are_entered_again_for_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []
    real = attention.attending

    @contextmanager
    def counting(module: Any, layout: Any) -> Iterator[Any]:
        entered.append(layout)
        with real(module, layout) as mask:
            yield mask

    monkeypatch.setattr(policy_module, "attending", counting)
    policy = made("llama", checkpointing=True)
    ids = torch.arange(5, 10)
    logprobs, _ = policy.predict(ids, torch.arange(5), torch.arange(4)).logprobs_and_entropy(ids[1:], 1.0)
    assert len(entered) == 1
    logprobs.sum().backward()  # type: ignore[no-untyped-call]
    assert len(entered) == 3, "two layers were computed again"


def test_several_updates_with_checkpointing_end_in_the_same_weights() -> None:
    chosen = replace(settings("grpo", lr=0.5, inner_epochs=2), temperature=1.0)
    ends = []
    for flag in (False, True):
        policy = made("llama", checkpointing=flag)
        groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
        update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
        ends.append({name: master.detach().clone() for name, master in policy.masters.items()})
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_model_without_marked_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.gradient_checkpointing: Linear has no layers"):
        recompute_layers(nn.Linear(2, 2))
