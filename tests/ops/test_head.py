"""The head without logits, against the logits written out."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from toishi.ops import head as module
from toishi.ops.head import Head, head_logits, head_logprobs_and_entropy
from toishi.ops.logprobs import logprobs_and_entropy

HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 2.0},
    "all": {"bias": True, "scale": 1.7, "softcap": 3.0},
}


@pytest.fixture(autouse=True)
def narrow_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three words in a slice, so that a vocabulary of 11 has three full slices and a short one."""
    monkeypatch.setattr(module, "MIN_SLICE", 3)
    monkeypatch.setattr(module, "SLICE_NUMBERS", 1)


def numbers(n: int = 5, v: int = 11, d: int = 4, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape, generator=source, dtype=torch.float64) for shape in ((n, d), (v, d), (v,)))
    targets = torch.arange(n) * 3 % v  # the first word of a slice, and of the last and short one
    return hidden.to(dtype), weight.to(dtype), bias.to(dtype), targets


def head_of(weight: Tensor, bias_values: Tensor, *, bias: bool = False, **options: Any) -> Head:
    return Head(weight_VD=weight, bias_V=bias_values if bias else None, **options)


def written_out(hidden: Tensor, head: Head) -> Tensor:
    product = hidden @ head.weight_VD.T + (0.0 if head.bias_V is None else head.bias_V)
    scaled = head.scale * product
    return scaled if head.softcap is None else head.softcap * torch.tanh(scaled / head.softcap)


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_values_and_gradients_are_those_of_the_logits(options: dict[str, Any], temperature: float) -> None:
    hidden, weight, bias, targets = numbers()
    leaves = [hidden.requires_grad_(), weight.requires_grad_(), *([bias.requires_grad_()] if options.get("bias") else [])]
    head = head_of(weight, bias, **options)
    torch.testing.assert_close(head_logits(hidden, head), written_out(hidden, head), rtol=0, atol=1e-13)
    found = head_logprobs_and_entropy(hidden, head, targets, temperature)
    wanted = logprobs_and_entropy(written_out(hidden, head), targets, temperature)
    by = torch.linspace(-1, 2, 5, dtype=torch.float64), torch.linspace(3, -1, 5, dtype=torch.float64)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    for outputs in ([0], [1], [0, 1]):
        gradients = [
            torch.autograd.grad([pair[at] for at in outputs], leaves, [by[at] for at in outputs], retain_graph=True)
            for pair in (found, wanted)
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("n", [1, 5])
def test_gradient_is_that_of_finite_differences(options: dict[str, Any], n: int) -> None:
    hidden, weight, bias, targets = numbers(n)

    def function(*values: Tensor) -> tuple[Tensor, Tensor]:
        return head_logprobs_and_entropy(values[0], head_of(values[1], values[2], **options), targets, 0.7)

    leaves = [value.requires_grad_() for value in (hidden, weight)]
    assert torch.autograd.gradcheck(function, (*leaves, bias.requires_grad_(bool(options.get("bias")))))


def test_an_entropy_gradient_of_zeros_changes_nothing() -> None:
    hidden, weight, bias, targets = numbers()
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]
    found = head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, 0.7)
    ones = torch.ones(5, dtype=torch.float64)
    alone = torch.autograd.grad(found[0], leaves, ones, retain_graph=True)
    both = torch.autograd.grad(found, leaves, [ones, torch.zeros_like(ones)])
    assert all(torch.equal(one, other) for one, other in zip(alone, both, strict=True))


def test_the_gradient_of_a_tied_weight_is_the_sum_of_both_uses() -> None:
    _, weight, bias, targets = numbers()
    weight.requires_grad_()
    ids = torch.tensor([0, 3, 3, 9, 10])
    gradients: list[Tensor] = []
    for use in (head_logprobs_and_entropy, lambda h, head, t, temp: logprobs_and_entropy(written_out(h, head), t, temp)):
        logprobs, entropy = use(torch.nn.functional.embedding(ids, weight).tanh(), head_of(weight, bias), targets, 0.7)
        gradients += torch.autograd.grad(logprobs.sum() - 0.3 * entropy.sum(), [weight])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-12)


def test_a_frozen_weight_has_no_gradient_and_the_hidden_states_the_same() -> None:
    hidden, weight, bias, targets = numbers()
    hidden.requires_grad_()
    frozen = head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, 0.7)[0]
    frozen.sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is None
    assert hidden.grad is not None
    (wanted,) = torch.autograd.grad(logprobs_and_entropy(hidden @ weight.T, targets, 0.7)[0].sum(), hidden)
    torch.testing.assert_close(hidden.grad, wanted, rtol=0, atol=1e-12)


def test_a_confident_token_keeps_the_digits_of_its_gradient() -> None:
    """p = 1 - 1e-6 in float32, against float64 and, by the definition d log p / dz = onehot - p, by hand."""
    hidden, weight, _, targets = numbers(n=1, dtype=torch.float32)
    hidden /= hidden.norm()
    weight[targets] += 20.0 * hidden
    scores = hidden.double() @ weight.double().T
    odds = scores[0, targets[0]] - torch.cat([scores[0, : targets[0]], scores[0, targets[0] + 1 :]]).logsumexp(0)
    weight[targets] += (math.log(1e6) - odds).float() * hidden
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaves = [value.detach().to(dtype).requires_grad_() for value in (hidden, weight)]
        logprobs, _ = head_logprobs_and_entropy(leaves[0], head_of(leaves[1], leaves[1]), targets, 1.0)
        gradients.append(torch.autograd.grad(logprobs.sum(), leaves))
    assert logprobs.item() == pytest.approx(-1e-6, rel=1e-3)
    scores = hidden.double() @ weight.double().T
    others = torch.softmax(scores.index_fill(1, targets, -math.inf), -1) * -torch.expm1(logprobs.detach())
    by_hand = (-others).index_fill(1, targets, others.sum().item())
    torch.testing.assert_close(gradients[1][1], by_hand.T @ hidden.double(), rtol=1e-9, atol=0)
    for one, other in zip(*gradients, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-5


@pytest.mark.parametrize("word", [0, 5, 10])
def test_words_that_a_bias_forbids_add_nothing(word: int) -> None:
    """Also a whole slice of them, the first included."""
    hidden, weight, bias, _ = numbers()
    forbidden = sorted({word, *((0, 1, 2) if word == 0 else ())})
    bias[forbidden] = -math.inf
    left = [at for at in range(11) if at not in forbidden]
    targets = torch.full((5,), left[3])
    hidden.requires_grad_()
    found = head_logprobs_and_entropy(hidden, head_of(weight, bias, bias=True), targets, 0.7)
    wanted = logprobs_and_entropy(hidden @ weight[left].T + bias[left], torch.full((5,), 3), 0.7)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            torch.autograd.grad(one.sum(), hidden, retain_graph=True)[0],
            torch.autograd.grad(other.sum(), hidden, retain_graph=True)[0],
            rtol=0,
            atol=1e-12,
        )


def test_large_logits_do_not_overflow() -> None:
    hidden, weight, bias, targets = numbers(dtype=torch.float32)
    found = head_logprobs_and_entropy(hidden * 300, head_of(weight, bias), targets, 0.7)
    wanted = logprobs_and_entropy((hidden * 300).double() @ weight.double().T, targets, 0.7)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-5, atol=1e-4)


def test_bfloat16_reduces_in_float32_and_keeps_the_precision_of_the_weight() -> None:
    hidden, weight, bias, targets = numbers(dtype=torch.bfloat16)
    hidden.requires_grad_(), weight.requires_grad_()
    found = head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, 0.7)
    wanted = logprobs_and_entropy(torch.nn.functional.linear(hidden, weight), targets, 0.7)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0, atol=2e-6)
    found[0].sum().backward()  # type: ignore[no-untyped-call]
    exact_h, exact_w = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    logprobs_and_entropy(exact_h @ exact_w.T, targets, 0.7)[0].sum().backward()  # type: ignore[no-untyped-call]
    for leaf, exact in ((hidden, exact_h), (weight, exact_w)):
        assert leaf.grad is not None
        assert exact.grad is not None
        assert leaf.grad.dtype == torch.bfloat16
        assert (leaf.grad.double() - exact.grad).norm() < 0.02 * exact.grad.norm()


def test_what_is_not_a_number_stays_so() -> None:
    hidden, weight, bias, targets = numbers()
    hidden[2, 0] = math.nan
    logprobs, entropy = head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, 0.7)
    assert logprobs.isnan().tolist() == entropy.isnan().tolist() == [False, False, True, False, False]
    outside, _ = head_logprobs_and_entropy(hidden[:1], head_of(weight, bias), torch.tensor([11]), 0.7)
    assert outside.isnan().all(), "a target outside the vocabulary has no log-prob"


def test_the_width_of_a_slice_changes_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, targets = numbers()
    narrow = head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, 0.7)
    monkeypatch.setattr(module, "MIN_SLICE", 256)
    whole = head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, 0.7)
    for one, other in zip(narrow, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


def test_no_tokens() -> None:
    hidden, weight, bias, targets = numbers()
    found = head_logprobs_and_entropy(hidden[:0], head_of(weight, bias), targets[:0], 1.0)
    assert [len(value) for value in found] == [0, 0]


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_temperature_must_be_positive(temperature: float) -> None:
    hidden, weight, bias, targets = numbers()
    with pytest.raises(ValueError, match="temperature must be above 0"):
        head_logprobs_and_entropy(hidden, head_of(weight, bias), targets, temperature)


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_slices_of_the_weights_gradient_are_handed_over_instead_of_kept(options: dict[str, Any]) -> None:
    hidden, weight, bias, targets = numbers()
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]
    head = head_of(weight, bias, **options)
    wanted = torch.autograd.grad(torch.cat(head_logprobs_and_entropy(hidden, head, targets, 0.7)).sum(), leaves)
    taken: list[tuple[slice, Tensor]] = []
    head = dataclasses.replace(head, take=lambda part, gradient: taken.append((part, gradient)))
    total = torch.cat(head_logprobs_and_entropy(hidden, head, targets, 0.7)).sum()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    assert torch.equal(found[0], wanted[0])
    assert list(map(torch.is_tensor, found)) == [True, False]
    assert [part.stop - part.start for part, _ in taken] == [3, 3, 3, 2]
    torch.testing.assert_close(torch.cat([gradient for _, gradient in taken]), wanted[1], rtol=0, atol=1e-14)
