"""Attention of one block against float64 autograd of the definition, and merging against attention over all keys."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from toishi.ops.attention import attend, attend_backward, merge


def by_definition(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    scores = (q @ k[:, :, None].mT) * scale
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -torch.inf)
    return scores.softmax(-1) @ v[:, :, None]


def block(*, repeats: int, queries: int, keys: int, dtype: torch.dtype, sequences: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(0)
    q = torch.randn(sequences, 2, repeats, queries, 6, generator=made, dtype=torch.float64)
    k = torch.randn(sequences, 2, keys, 6, generator=made, dtype=torch.float64)
    v = torch.randn(sequences, 2, keys, 5, generator=made, dtype=torch.float64)
    return q.to(dtype), k.to(dtype), v.to(dtype)


BOUNDS = {torch.float64: 1e-13, torch.float32: 3e-6, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(1, 1, True), (7, 7, True), (300, 300, True), (5, 9, False), (1, 4, False)]
)
def test_output_and_gradients_follow_the_definition(
    queries: int, keys: int, causal: bool, repeats: int, dtype: torch.dtype
) -> None:
    """300 causal queries are three blocks."""
    q, k, v = block(repeats=repeats, queries=queries, keys=keys, dtype=dtype)
    exact = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    wanted = by_definition(exact[0], exact[1], exact[2], 0.4, causal)
    grad = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    output, lse = attend(q, k, v, scale=0.4, causal=causal)
    delta = (output.to(lse.dtype) * grad).sum(-1)
    found = attend_backward(grad, q, k, v, lse, delta, scale=0.4, causal=causal)
    wanted_gradients = torch.autograd.grad(wanted, exact, grad.double())
    assert output.dtype == dtype
    assert {tensor.dtype for tensor in (lse, *found)} == {torch.promote_types(dtype, torch.float32)}
    for one, other in zip((output, *found), (wanted, *wanted_gradients), strict=True):
        assert (one.double() - other).norm() <= BOUNDS[dtype] * max(1.0, float(other.detach().norm()))


def test_blocks_of_queries_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = block(repeats=2, queries=200, keys=30, dtype=torch.float64)
    whole = attend(q, k, v, scale=1.0, causal=False)
    monkeypatch.setattr("toishi.ops.attention._SCORES_PER_BLOCK", 1)
    for one, other in zip(attend(q, k, v, scale=1.0, causal=False), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


def test_merged_parts_are_attention_over_all_keys_forward_and_backward() -> None:
    q, k, v = block(repeats=2, queries=4, keys=9, dtype=torch.float64)
    k[:, :, :3] *= 40  # one part far larger than the other for some queries
    whole, whole_lse = attend(q, k, v, scale=1.0, causal=False)
    parts = [(k[:, :, :3], v[:, :, :3]), (k[:, :, 3:], v[:, :, 3:])]
    (one, one_lse), (other, other_lse) = (attend(q, *part, scale=1.0, causal=False) for part in parts)
    merged, lse = merge(one, one_lse, other, other_lse)
    torch.testing.assert_close(merged, whole, rtol=0, atol=1e-13)
    torch.testing.assert_close(lse, whole_lse, rtol=0, atol=1e-13)
    grad = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    delta = (whole * grad).sum(-1)
    wanted = attend_backward(grad, q, k, v, lse, delta, scale=1.0, causal=False)
    found = [attend_backward(grad, q, *part, lse, delta, scale=1.0, causal=False) for part in parts]
    torch.testing.assert_close(found[0][0] + found[1][0], wanted[0], rtol=0, atol=1e-12)
    for number in (1, 2):
        joined = torch.cat([part[number] for part in found], dim=2)
        torch.testing.assert_close(joined, wanted[number], rtol=0, atol=1e-12)


def test_a_query_that_takes_no_part_adds_nothing() -> None:
    q, k, v = block(repeats=1, queries=4, keys=4, dtype=torch.float32)
    output, lse = attend(q, k, v, scale=1.0, causal=True)
    lse[..., 2:] = torch.inf
    dq, dk, dv = attend_backward(torch.ones_like(output), q, k, v, lse, output.sum(-1), scale=1.0, causal=True)
    assert not dq[..., 2:, :].any()
    assert not dk[:, :, 2:].any()
    assert not dv[:, :, 2:].any()
    assert dv[:, :, :2].any()
