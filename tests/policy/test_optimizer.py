"""The optimizer's step on the masters, and the memory that their gradients live in."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from tests.tiny import tiny_model
from toishi.config import OptimizerConfig
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy


def policy(dtype: torch.dtype) -> Policy:
    return Policy(tiny_model("llama", dtype=torch.float64 if dtype == torch.float64 else torch.float32), compute_dtype=dtype)


def random_gradients(made: Policy, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gradients = [torch.randn(master.shape, generator=generator, dtype=master.dtype) for master in made.masters.values()]
    for master, gradient in zip(made.masters.values(), gradients, strict=True):
        master.grad = gradient.clone()
    return gradients


def test_adamw_is_the_published_rule_in_float64() -> None:
    """Loshchilov and Hutter 2019, algorithm 2, two steps."""
    made = policy(torch.float64)
    config = OptimizerConfig(name="adamw", lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    optimizer = make_optimizer(made, config)
    wanted = [master.detach().clone() for master in made.masters.values()]
    first, second = [torch.zeros_like(one) for one in wanted], [torch.zeros_like(one) for one in wanted]
    for step in (1, 2):
        for place, gradient in enumerate(random_gradients(made, step)):
            first[place] = 0.8 * first[place] + 0.2 * gradient
            second[place] = 0.9 * second[place] + 0.1 * gradient**2
            ratio = first[place] / (1 - 0.8**step) / ((second[place] / (1 - 0.9**step)).sqrt() + 1e-6)
            wanted[place] = wanted[place] - 0.01 * 0.1 * wanted[place] - 0.01 * ratio
        optimizer.step()
    for master, expected in zip(made.masters.values(), wanted, strict=True):
        torch.testing.assert_close(master.detach(), expected, rtol=1e-12, atol=1e-14)


def test_sgd_with_momentum_is_the_published_rule_in_float64() -> None:
    made = policy(torch.float64)
    optimizer = make_optimizer(made, OptimizerConfig(name="sgd", lr=0.1, momentum=0.5, weight_decay=0.2))
    wanted = [master.detach().clone() for master in made.masters.values()]
    velocity = [torch.zeros_like(one) for one in wanted]
    for step in (1, 2):
        for place, gradient in enumerate(random_gradients(made, step)):
            velocity[place] = 0.5 * velocity[place] + gradient + 0.2 * wanted[place]
            wanted[place] = wanted[place] - 0.1 * velocity[place]
        optimizer.step()
    for master, expected in zip(made.masters.values(), wanted, strict=True):
        torch.testing.assert_close(master.detach(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_gradients_give_equal_bits_also_from_a_saved_state(name: str, dtype: torch.dtype) -> None:
    config = OptimizerConfig(name=name, lr=0.01)  # type: ignore[arg-type]
    through, stopped = policy(dtype), policy(dtype)
    whole, half = make_optimizer(through, config), make_optimizer(stopped, config)
    for optimizer, made in ((whole, through), (half, stopped)):
        random_gradients(made, 1)
        optimizer.step()
    resumed = make_optimizer(stopped, config)
    resumed.load_state_dict(copy.deepcopy(half.state_dict()))
    for optimizer, made in ((whole, through), (resumed, stopped)):
        random_gradients(made, 2)
        optimizer.step()
    for mine, other in zip(through.masters.values(), stopped.masters.values(), strict=True):
        assert torch.equal(mine, other)


def test_gradients_of_the_next_update_are_written_into_the_same_memory() -> None:
    """And hold nothing of the update before."""
    made, fresh = policy(torch.bfloat16), policy(torch.bfloat16)

    def backward(policy: Policy, ids: list[int]) -> dict[str, Tensor]:
        logits_NV = policy.logits(torch.tensor(ids), torch.arange(len(ids)), torch.tensor([len(ids) - 1]))
        torch.logsumexp(logits_NV[0].float(), 0).backward()  # type: ignore[no-untyped-call]
        return {name: master.grad for name, master in policy.masters.items() if master.grad is not None}

    first = {name: gradient.data_ptr() for name, gradient in backward(made, [5, 6, 7]).items()}
    made.zero_grad()
    assert all(master.grad is None for master in made.masters.values())
    second = backward(made, [8, 9])
    assert {name: gradient.data_ptr() for name, gradient in second.items()} == first
    for name, gradient in backward(fresh, [8, 9]).items():
        assert torch.equal(second[name], gradient)
