"""The default engine: samples in process, from the very weights that are trained.

Decisions:
1. A prompt is computed once, not once per sibling: its keys and values are copied into the rows of its group.
2. Rows that have finished leave the batch at once; the batch is decoded until none is left.
3. Every token's uniform number comes from (seed, step, group, member, position) alone, so an answer does not depend on
   what else was in the batch. The draw inverts the cumulative distribution in two levels, without sorting the vocabulary.
4. Different prompts share one left-padded batch only where the architecture allows it (policy.capabilities); elsewhere each
   group is decoded by itself, without any padding, through whatever cache the model makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from toishi.engines.base import Request, Sampling
from toishi.errors import EngineError
from toishi.ops.random import uniforms
from toishi.ops.sampling import choose, filtered
from toishi.policy.capabilities import model_mask
from toishi.types import Completion, FinishReason


@dataclass
class _Row:
    """One answer while it grows."""

    index: int
    draws: Sequence[float]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: FinishReason | None = None


class TorchEngine:
    """Samples with a transformers causal LM.

    stop_ids          an answer ends with any of them (it stays in the token ids: it was sampled)
    decode            token ids -> text, cut before the first stop id
    batched_prompts   whether different prompts may share a left-padded batch
    max_rows          answers decoded at the same time
    """

    name = "torch"

    def __init__(
        self,
        module: Any,
        *,
        stop_ids: Sequence[int],
        decode: Callable[[Sequence[int]], str],
        batched_prompts: bool,
        max_rows: int = 64,
    ) -> None:
        self.module = module
        self.stop_ids = frozenset(stop_ids)
        self.decode = decode
        self.batched_prompts = batched_prompts
        self.max_rows = max_rows
        inner = module.get_base_model() if hasattr(module, "get_base_model") else module
        parameters = inspect.signature(inner.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion for each request, in order. Raises EngineError when the model gives NaN."""
        done: dict[int, Completion] = {}
        for batch in self._batches(requests):
            rows = [_Row(index, uniforms(requests[index].key, sampling.max_new_tokens).tolist()) for index in batch]
            self._decode_batch([requests[index].prompt_ids for index in batch], rows, sampling)
            done |= {row.index: self._completion(row, sampling) for row in rows}
        return [done[index] for index in range(len(requests))]

    def _batches(self, requests: Sequence[Request]) -> list[list[int]]:
        """Request numbers decoded together: siblings side by side; one prompt only where padding is not safe."""
        by_prompt: dict[tuple[int, ...], list[int]] = {}
        for index, request in enumerate(requests):
            by_prompt.setdefault(request.prompt_ids, []).append(index)
        lists = [[i for group in by_prompt.values() for i in group]] if self.batched_prompts else list(by_prompt.values())
        return [whole[at : at + self.max_rows] for whole in lists for at in range(0, len(whole), self.max_rows)]

    def _decode_batch(self, prompts: list[tuple[int, ...]], rows: list[_Row], sampling: Sampling) -> None:
        logits_BV, cache, mask_BK, lengths_B = self._prefill(prompts)
        while True:
            keep = self._advance(rows, logits_BV, sampling)
            if not keep:
                return
            if len(keep) < len(rows):
                index = torch.tensor(keep, device=mask_BK.device)
                cache.batch_select_indices(index)
                mask_BK, lengths_B = mask_BK[index], lengths_B[index]
                rows = [rows[i] for i in keep]
            mask_BK = torch.cat([mask_BK, mask_BK.new_ones(len(rows), 1)], dim=1)
            tokens_B1 = torch.tensor([[row.token_ids[-1]] for row in rows], device=mask_BK.device)
            output = self._forward(tokens_B1, lengths_B[:, None], mask_BK, cache)
            logits_BV, lengths_B = output.logits[:, -1], lengths_B + 1

    def _prefill(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Any, Tensor, Tensor]:
        """Each distinct prompt once, its cache spread over its rows: next-token logits, cache, key mask, lengths."""
        device = next(self.module.parameters()).device
        distinct = list(dict.fromkeys(prompts))
        lengths_B = torch.tensor([len(prompt) for prompt in prompts], device=device)
        outputs = {}
        for prompt in distinct:
            ids_1L = torch.tensor([prompt], device=device)
            positions_1L = torch.arange(len(prompt), device=device)[None]
            outputs[prompt] = self._forward(ids_1L, positions_1L, None, None)
        logits_BV = torch.cat([outputs[prompt].logits[:, -1] for prompt in prompts])
        caches = {prompt: getattr(output, self._cache_name) for prompt, output in outputs.items()}
        if len(distinct) == 1:
            cache = caches[distinct[0]]
            cache.batch_repeat_interleave(len(prompts))
            return logits_BV, cache, torch.ones(len(prompts), len(distinct[0]), dtype=torch.bool, device=device), lengths_B
        longest = int(lengths_B.max())
        cache = _merged([caches[prompt] for prompt in prompts], longest)
        mask_BK = torch.arange(longest, device=device)[None] >= (longest - lengths_B)[:, None]
        return logits_BV, cache, mask_BK, lengths_B

    def _forward(self, ids_BL: Tensor, positions_BL: Tensor, mask_BK: Tensor | None, cache: Any) -> Any:
        mask = None if mask_BK is None or not self.batched_prompts else model_mask(mask_BK[:, None, None, :], self.module)
        return self.module(
            input_ids=ids_BL, position_ids=positions_BL, attention_mask=mask, use_cache=True, logits_to_keep=1,
            **{self._cache_name: cache},
        )  # fmt: skip

    def _advance(self, rows: list[_Row], logits_BV: Tensor, sampling: Sampling) -> list[int]:
        """Draw one token for every row; the positions of the rows that go on."""
        logits_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32)) / sampling.temperature
        full_BV = torch.log_softmax(logits_BV, dim=-1)
        if not bool(torch.isfinite(full_BV.amax(dim=-1)).all()):
            raise EngineError(
                "the model returned NaN or infinity instead of probabilities while sampling; its weights are damaged. "
                "Go back to an earlier checkpoint (toishi resume), or load the model with model.dtype=float32"
            )
        logprobs_BV = filtered(full_BV, top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
        probs_BV = logprobs_BV.exp()
        draws_B = [row.draws[len(row.token_ids)] for row in rows]
        chosen_B = full_BV.argmax(dim=-1) if sampling.greedy else choose(probs_BV, draws_B)
        logprobs_B = logprobs_BV.gather(1, chosen_B[:, None])[:, 0]
        entropies_B = -(probs_BV * logprobs_BV.clamp_min(torch.finfo(logprobs_BV.dtype).min)).sum(dim=-1)
        keep = []
        columns = zip(rows, chosen_B.tolist(), logprobs_B.tolist(), entropies_B.tolist(), strict=True)
        for position, (row, token, logprob, entropy) in enumerate(columns):
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            row.entropies.append(entropy)
            row.finish = self._finish(row, sampling)
            if row.finish is None:
                keep.append(position)
        return keep

    def _finish(self, row: _Row, sampling: Sampling) -> FinishReason | None:
        if row.token_ids[-1] in self.stop_ids:
            return "stop"
        if sampling.stop and any(mark in self.decode(row.token_ids) for mark in sampling.stop):
            return "stop"
        return "length" if len(row.token_ids) >= sampling.max_new_tokens else None

    def _completion(self, row: _Row, sampling: Sampling) -> Completion:
        text = self.decode(row.token_ids)
        for mark in sampling.stop:
            text = text.split(mark, 1)[0]
        assert row.finish is not None
        return Completion(
            token_ids=tuple(row.token_ids),
            loss_mask=(1,) * len(row.token_ids),
            sampled_logprobs=tuple(row.logprobs),
            entropies=tuple(row.entropies),
            text=text,
            finish_reason=row.finish,
        )


def _merged(caches: Sequence[Any], longest: int) -> Any:
    """One left-padded cache from single-row caches of different lengths."""
    from transformers import DynamicCache

    merged = DynamicCache()
    for layer in range(len(caches[0].layers)):
        keys, values = [], []
        for cache in caches:
            key, value = cache.layers[layer].keys, cache.layers[layer].values
            pad = (0, 0, longest - key.shape[-2], 0)
            keys.append(nn.functional.pad(key, pad))
            values.append(nn.functional.pad(value, pad))
        merged.update(torch.cat(keys), torch.cat(values), layer)
    return merged
