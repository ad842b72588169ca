"""The default engine: samples in process, from the very weights that are trained.

Two paths with the same draws: `engines.fast` (all prompts of a call in one batch, for architectures that the capability table
knows) and `engines.plain` (any causal model, one prompt at a time). `engines.rows` draws the tokens for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from toishi.engines.base import Finished, Request, Sampling
from toishi.engines.fast import decode_fast
from toishi.engines.packed import packed_weights
from toishi.engines.plain import decode_plainly
from toishi.engines.rows import Ending, Row
from toishi.types import Completion


class TorchEngine:
    """Samples with a transformers causal LM.

    stop_ids          an answer ends with any of them (it stays in the token ids: it was sampled)
    decode            token ids -> text, cut before the first stop id
    batched_prompts   whether different prompts may be decoded in one batch (policy.capabilities): the fast path
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

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion for each request, in order. Raises EngineError when the model gives NaN."""
        return self.generate_telling(requests, sampling, lambda index, completion: None)

    @torch.inference_mode()
    def generate_telling(self, requests: Sequence[Request], sampling: Sampling, on_finished: Finished) -> list[Completion]:
        """As `generate`; each answer is told when it ends (`toishi.engines.base.TellsFinished`)."""
        completions: dict[int, Completion] = {}

        def ended(row: Row) -> None:
            completions[row.index] = ending.completion(row)
            on_finished(row.index, completions[row.index])

        ending = Ending(self.stop_ids, self.decode, sampling, ended)
        rows = [Row.of(index, request, sampling) for index, request in enumerate(requests)]
        if rows:
            with packed_weights(self.module, steps=sampling.max_new_tokens) as products:
                if self.batched_prompts:
                    decode_fast(self.module, rows, ending, products, max_rows=self.max_rows)
                else:
                    decode_plainly(self.module, rows, ending, max_rows=self.max_rows)
        return [completions[row.index] for row in rows]
