"""Attention of a packed row without work on pairs of tokens that do not see each other. For CPUs.

Decisions:
1. In parts: every prompt and every answer over itself, causal; all answers of a prompt together over the prompt, without a
   mask. The two parts of an answer are merged by log-sum-exp (`ops.attention`), forward and backward: nothing is approximated.
2. Sequences of similar length are one batch. Padding stands at their end, where a causal part shows it to nobody.
3. It comes in through transformers' attention interface, by name, only while a packed row is run. A keyword that it does not
   know leads to `sdpa` with the mask that says the same; none is passed over.
4. A GPU has fused kernels that take the mask; there it is not used, nor with a model that needs `eager` (soft-capped scores).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from toishi.ops.attention import attend, attend_backward, merge
from toishi.policy.capabilities import model_mask
from toishi.policy.layout import Layout

_NAME = "toishi_packed_row"
_DTYPES = frozenset({torch.bfloat16, torch.float32, torch.float64})
_NEUTRAL = frozenset({"position_ids", "use_cache", "cache_position", "layer_idx", "logits_to_keep"})
"""Keywords that say nothing about who sees whom or how."""
_PADDING = 1.25
"""Sequences go into one batch while the longest is at most this much longer than the shortest."""
_FEW_TOKENS = 16


@dataclass(frozen=True, slots=True)
class _Batch:
    """Sequences of similar length that attend to themselves.

    index_BT       where in the row each token stands; any place for padding
    is_padding_BT  None where there is no padding
    real_n         numbers of the other tokens in `index_BT` flattened
    """

    index_BT: Tensor
    is_padding_BT: Tensor | None
    real_n: Tensor

    def take(self, row_LHX: Tensor) -> Tensor:
        """(B, heads, T, X) of a row."""
        taken = row_LHX.index_select(0, self.index_BT.flatten()).view(*self.index_BT.shape, *row_LHX.shape[1:])
        return taken.transpose(1, 2).contiguous()

    def put(self, values_BHTX: Tensor, row_LHX: Tensor) -> None:
        """Write into the row."""
        values, index = values_BHTX.transpose(1, 2).flatten(0, 1), self.index_BT.flatten()
        if self.is_padding_BT is not None:
            values, index = values.index_select(0, self.real_n), index[self.real_n]
        row_LHX.index_copy_(0, index, values)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every layer of a forward pass shares.

    answered  where each prompt that has answers stands, and where they do
    """

    layout: Layout
    batches: tuple[_Batch, ...]
    answered: tuple[tuple[slice, slice], ...]


_CURRENT: ContextVar[_Plan] = ContextVar("packed row in progress")


def attends_in_parts(module: Any) -> bool:
    """Whether a packed row of this model may be attended to in parts; otherwise it takes the layout's mask."""
    usual = module.config._attn_implementation == "sdpa" and not module.training
    return usual and module.device.type == "cpu" and module.dtype in _DTYPES


@contextmanager
def attending(module: Any, layout: Layout | None) -> Iterator[Tensor | None]:
    """Inside, a row of this layout can be run through the module, with the `attention_mask` that is given here.

    None as layout is plain causal attention.
    """
    if layout is None or not attends_in_parts(module):
        yield None if layout is None else model_mask(layout.allowed_LL(module.device)[None, None], module)
        return
    before, token = module.config._attn_implementation, _CURRENT.set(_plan(layout))
    module.config._attn_implementation = _NAME
    try:
        yield None
    finally:
        module.config._attn_implementation = before
        _CURRENT.reset(token)


def _plan(layout: Layout) -> _Plan:
    answered = (
        (slice(span.start, span.prompt_end), slice(span.prompt_end, span.end))
        for span in layout.spans
        if span.prompt_end < span.end
    )
    return _Plan(layout, tuple(_batches(layout)), tuple(answered))


def _batches(layout: Layout) -> Iterator[_Batch]:
    waiting = sorted(layout.sequences, key=lambda sequence: sequence[1])
    while waiting:
        longest = waiting[-1][1]
        chosen = [(start, size) for start, size in waiting if longest <= max(size * _PADDING, size + _FEW_TOKENS)]
        waiting = waiting[: -len(chosen)]
        sizes = torch.tensor([size for _, size in chosen])[:, None]
        offset_T = torch.arange(longest)
        is_padding_BT = offset_T >= sizes
        index_BT = torch.tensor([start for start, _ in chosen])[:, None] + offset_T
        real_n = (~is_padding_BT).flatten().nonzero()[:, 0]
        yield _Batch(index_BT.masked_fill_(is_padding_BT, 0), is_padding_BT if is_padding_BT.any() else None, real_n)


def _grouped(values_BHTX: Tensor, key_heads: int) -> Tensor:
    """Query heads by the key head they read: (B, H, R, T, X)."""
    return values_BHTX.view(len(values_BHTX), key_heads, -1, *values_BHTX.shape[2:])


def _cut(row_LHX: Tensor, part: slice) -> Tensor:
    """(1, heads, T, X) of a row."""
    return row_LHX[part].transpose(0, 1)[None].contiguous()


class _Parts(torch.autograd.Function):
    """Attention of one row: queries (L, H, D), keys (L, Hk, D) and values (L, Hk, E) to (L, H, E)."""

    @staticmethod
    def forward(ctx: Any, q_LHD: Tensor, k_LHD: Tensor, v_LHE: Tensor, scale: float, plan: _Plan) -> Tensor:
        heads, work = k_LHD.shape[1], torch.promote_types(q_LHD.dtype, torch.float32)
        output_LHE = q_LHD.new_empty(*q_LHD.shape[:2], v_LHE.shape[2], dtype=work)
        lse_LH1 = q_LHD.new_empty(*q_LHD.shape[:2], 1, dtype=work)
        for batch in plan.batches:
            q, k, v = batch.take(q_LHD), batch.take(k_LHD), batch.take(v_LHE)
            output, lse = attend(_grouped(q, heads), k, v, scale=scale, causal=True)
            batch.put(output.flatten(1, 2).to(work), output_LHE)
            batch.put(lse.flatten(1, 2)[..., None], lse_LH1)
        for prompt, answers in plan.answered:
            q, k, v = _cut(q_LHD, answers), _cut(k_LHD, prompt), _cut(v_LHE, prompt)
            more, more_lse = attend(_grouped(q, heads), k, v, scale=scale, causal=False)
            more, more_lse = (both.flatten(0, 2).transpose(0, 1) for both in (more, more_lse))
            merged, lse = merge(output_LHE[answers], lse_LH1[answers, :, 0], more, more_lse)
            output_LHE[answers], lse_LH1[answers, :, 0] = merged, lse
        result = output_LHE.to(v_LHE.dtype)
        ctx.save_for_backward(q_LHD, k_LHD, v_LHE, result, lse_LH1)
        ctx.scale, ctx.plan = scale, plan
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_LHE: Tensor) -> tuple[Tensor | None, ...]:
        q_LHD, k_LHD, v_LHE, output_LHE, lse_LH1 = ctx.saved_tensors
        heads, work, plan, scale = k_LHD.shape[1], lse_LH1.dtype, ctx.plan, ctx.scale
        delta_LH1 = (output_LHE.to(work) * grad_LHE).sum(dim=-1, keepdim=True)
        dq_LHD, dk_LHD, dv_LHE = (torch.empty_like(tensor, dtype=work) for tensor in (q_LHD, k_LHD, v_LHE))
        for batch in plan.batches:
            grad, q, lse, delta = (_grouped(batch.take(row), heads) for row in (grad_LHE, q_LHD, lse_LH1, delta_LH1))
            if batch.is_padding_BT is not None:
                lse.masked_fill_(batch.is_padding_BT[:, None, None, :, None], torch.inf)
            k, v = batch.take(k_LHD), batch.take(v_LHE)
            dq, dk, dv = attend_backward(grad, q, k, v, lse[..., 0], delta[..., 0], scale=scale, causal=True)
            batch.put(dq.flatten(1, 2), dq_LHD)
            batch.put(dk, dk_LHD)
            batch.put(dv, dv_LHE)
        for prompt, answers in plan.answered:
            grad, q, lse, delta = (_grouped(_cut(row, answers), heads) for row in (grad_LHE, q_LHD, lse_LH1, delta_LH1))
            k, v = _cut(k_LHD, prompt), _cut(v_LHE, prompt)
            dq, dk, dv = attend_backward(grad, q, k, v, lse[..., 0], delta[..., 0], scale=scale, causal=False)
            dq_LHD[answers] += dq.flatten(0, 2).transpose(0, 1)
            dk_LHD[prompt] += dk[0].transpose(0, 1)
            dv_LHE[prompt] += dv[0].transpose(0, 1)
        return dq_LHD.to(q_LHD.dtype), dk_LHD.to(q_LHD.dtype), dv_LHE.to(q_LHD.dtype), None, None


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    dropout: float = 0.0, scaling: float | None = None, sliding_window: int | None = None, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """transformers' attention for one row (1, heads, L, head size); output (1, L, heads, value size)."""
    plan = _CURRENT.get()
    assert sliding_window is None or sliding_window >= plan.layout.longest, "capabilities() lets no such row be packed"
    unknown = [name for name, given in kwargs.items() if name not in _NEUTRAL and given is not None and given is not False]
    if dropout or unknown or attention_mask is not None:
        mask = plan.layout.allowed_LL(query.device)[None, None]
        return sdpa_attention_forward(module, query, key, value, mask, dropout=dropout, scaling=scaling, **kwargs)  # type: ignore[no-any-return, unused-ignore]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q_LHD, k_LHD, v_LHE = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    output_LHE: Tensor = _Parts.apply(q_LHD, k_LHD, v_LHE, scale, plan)  # type: ignore[no-untyped-call]
    return output_LHE[None], None


AttentionInterface.register(_NAME, _attention)
