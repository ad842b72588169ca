"""Masters and compute weights, the reference model, gradients in the master's precision."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch

from tests.tiny import tiny_model
from toishi.errors import NumericsError
from toishi.policy import policy as policy_module
from toishi.policy.policy import Policy


def policy(dtype: torch.dtype = torch.float32) -> Policy:
    return Policy(tiny_model("llama"), compute_dtype=dtype)


def loss(made: Policy, ids: list[int]) -> torch.Tensor:
    ids_L = torch.tensor(ids)
    logits_NV = made.logits(ids_L, torch.arange(len(ids)), torch.tensor([len(ids) - 1]))
    return torch.logsumexp(logits_NV[0].float(), 0) - logits_NV[0, 7].float()


def test_masters_are_the_weights_themselves_when_precisions_agree() -> None:
    made = policy()
    weights = dict(made.module.named_parameters())
    assert all(made.masters[name] is weights[name] for name in made.masters)
    assert not made.has_separate_masters
    assert made.num_trained == made.num_parameters


def test_bf16_computes_on_a_copy_and_publishes_the_masters() -> None:
    made = policy(torch.bfloat16)
    weights = dict(made.module.named_parameters())
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    start = tiny_model("llama").state_dict()
    for name, master in made.masters.items():
        assert torch.equal(master, start[name]), "the master keeps every bit of the loaded fp32 weight"
        master.add_(0.25)
    made.publish()
    for name, master in made.masters.items():
        assert torch.equal(weights[name], master.to(torch.bfloat16))


def test_gradients_of_two_backward_passes_add_up_in_fp32() -> None:
    separate = []
    for ids in ([5, 6, 7], [8, 9]):
        made = policy(torch.bfloat16)
        loss(made, ids).backward()  # type: ignore[no-untyped-call]
        separate.append({name: master.grad for name, master in made.masters.items()})
    made = policy(torch.bfloat16)
    for ids in ([5, 6, 7], [8, 9]):
        loss(made, ids).backward()  # type: ignore[no-untyped-call]
    for name, master in made.masters.items():
        assert master.grad is not None
        assert master.grad.dtype == torch.float32
        one, other = separate[0][name], separate[1][name]
        assert one is not None
        assert other is not None
        assert torch.equal(master.grad, one + other)
    assert all(weight.grad is None for weight in made.module.parameters())


def test_reference_comes_back_and_goes_away_again() -> None:
    made = policy()
    made.keep_reference()
    before = loss(made, [5, 6]).item()
    with torch.no_grad():
        for master in made.masters.values():
            master.mul_(1.5)
    made.publish()
    moved = loss(made, [5, 6]).item()
    assert moved != before
    with made.as_reference():
        assert loss(made, [5, 6]).item() == before
    assert loss(made, [5, 6]).item() == moved


def test_the_reference_is_left_even_after_an_error() -> None:
    made = policy()
    made.keep_reference()
    weight = next(iter(made.masters.values()))
    with torch.no_grad():
        weight.add_(1.0)
    with pytest.raises(RuntimeError, match="inside"), made.as_reference():
        raise RuntimeError("inside")
    assert torch.equal(next(made.module.parameters()), weight)


def test_grad_norm_by_hand_and_not_finite() -> None:
    made = policy()
    assert made.grad_norm() == 0.0
    first, second, *_ = made.masters.values()
    first.grad = torch.zeros_like(first)
    first.grad.view(-1)[0] = 3.0
    second.grad = torch.zeros_like(second)
    second.grad.view(-1)[0] = 4.0
    assert made.grad_norm() == pytest.approx(5.0, abs=1e-6)
    second.grad.view(-1)[1] = float("inf")
    with pytest.raises(NumericsError, match="no weight was changed"):
        made.grad_norm()


def test_load_masters_restores_bits() -> None:
    made = policy(torch.bfloat16)
    saved = {name: master.clone() for name, master in made.masters.items()}
    for master in made.masters.values():
        master.mul_(1.1)
    made.load_masters(saved)
    weights = dict(made.module.named_parameters())
    for name, master in made.masters.items():
        assert torch.equal(master, saved[name])
        assert torch.equal(weights[name], saved[name].to(torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_policy_that_nobody_holds_is_freed(dtype: torch.dtype) -> None:
    """Else every run of a notebook would keep its model until the process ends."""
    made = policy(dtype)
    loss(made, [1, 2, 3]).backward()  # type: ignore[no-untyped-call]
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


def test_a_gradient_is_added_some_rows_at_a_time_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for numbers in (1 << 18, 100):  # whole weights, and three rows of 32 numbers
        monkeypatch.setattr(policy_module, "_ADDED_AT_ONCE", numbers)
        made = policy(torch.bfloat16)
        for first in (5, 15):
            made.module(input_ids=torch.arange(first, first + 9)[None]).logits.float().logsumexp(-1).sum().backward()
        found.append({name: master.grad for name, master in made.masters.items() if master.grad is not None})
    assert found[0].keys() == found[1].keys() == made.masters.keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    total, more = torch.tensor(1.0), torch.tensor(2.0, dtype=torch.bfloat16)
    policy_module._add(total, more)
    assert total.item() == 3.0


@pytest.mark.parametrize("head", ["fast", "plain"])
def test_threads_do_not_race_for_the_gradient_of_a_shared_position(head: str) -> None:
    """All kept positions are one: the order in which their gradients are added shows in the bits."""
    made, threads = policy(), torch.get_num_threads()
    if head == "plain":
        made.head = replace(made.head, fast=None)
    ids_L, keep_N = torch.tensor([5, 6, 7]), torch.full((4096,), 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pushes_NV = torch.randn(4096, 8)
    found = []
    torch.set_num_threads(2)
    try:
        for _ in range(8):
            made.zero_grad()
            logits_NV = made.predict(ids_L, torch.arange(3), keep_N).logits(torch.arange(4096))
            logits_NV[:, :8].backward(pushes_NV)  # type: ignore[no-untyped-call]
            found.append([master.grad.clone() for master in made.masters.values() if master.grad is not None])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for each in found for one, other in zip(found[0], each, strict=True))
