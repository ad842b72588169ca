"""The fast path: all rows of a call through one batch whose places never stand empty while a row waits.

Decisions:
1. Distinct prompts are computed a few at a time, left-padded, just before their rows enter: once for all siblings, and never
   more of them in memory than one pass holds. Rows wait in the order of their prompts' lengths: so there is little padding.
2. A row's first token is drawn from its prompt's logits; only rows that go on get a place.
3. Rows that have finished leave at once, waiting rows take their places (continuous batching). Who is beside a row changes
   nothing but the last bits: each row has its own random numbers, positions and mask.
4. On a CPU a step of the commonest architectures is written out (engines.flat); others decode through the module's forward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toishi.engines.cache import RowCache, Size
from toishi.engines.flat import flat_step
from toishi.engines.packed import Products
from toishi.engines.plain import cache_name
from toishi.engines.rows import Ending, Row, advance
from toishi.engines.shared import SharedCache
from toishi.policy.capabilities import model_mask

_PREFILL_TOKENS = 2048


@dataclass
class _Prompts:
    """Some prompts after their forward pass: number in the batch, next-token logits, keys and values."""

    numbers: dict[tuple[int, ...], int]
    logits_PV: Tensor
    cache: Any


class _Batch:
    """Rows side by side in a cache."""

    def __init__(self, module: Any, rows: Sequence[Row], ending: Ending, products: Products, *, max_rows: int) -> None:
        self.module, self.ending, self.products = module, ending, products
        self.cache_name, self.device = cache_name(module), module.device
        self.waiting = deque(sorted(rows, key=lambda row: (-len(row.prompt_ids), row.prompt_ids)))
        self.alive: list[Row] = []
        distinct = {row.prompt_ids for row in rows}
        self.size = Size(
            rows=min(max_rows, len(rows)), prompts=min(max_rows, len(distinct)),
            prompt_length=max(map(len, distinct)), own_length=ending.sampling.max_new_tokens - 1,
        )  # fmt: skip
        self.prompts = _Prompts({}, torch.empty(0), None)
        self.cache: RowCache | SharedCache | None = None
        self.flat: Callable[[Tensor, Tensor], Tensor] | None = None

    def fill(self) -> None:
        """Let waiting rows enter while there are places."""
        before = len(self.alive)
        while self.waiting and len(self.alive) < self.size.rows:
            entering = self._next_rows(self.size.rows - len(self.alive))
            numbers = [self.prompts.numbers[row.prompt_ids] for row in entering]
            advance(entering, self.prompts.logits_PV[numbers], self.ending)
            for prompt_ids, number in self.prompts.numbers.items():
                self._enter([row for row in entering if row.prompt_ids == prompt_ids and row.finish is None], number)
        if len(self.alive) > before:
            assert self.cache is not None
            self.cache.settle(self.alive)

    def step(self) -> None:
        """One token more for every row; those that end leave."""
        assert self.cache is not None
        fed = [[row.token_ids[-1] for row in self.alive], [row.length for row in self.alive]]
        ids_B, lengths_B = torch.tensor(fed, device=self.device)
        room = self.size.rows if self.waiting else len(self.alive)
        allowed = self.cache.prepare(self.alive, lengths_B, room=room)
        if self.flat is not None:
            logits_BV = self.flat(ids_B, lengths_B)
        else:
            with self.cache.attending(self.module):
                logits_BV = self._forward(ids_B[:, None], lengths_B[:, None], allowed, self.cache).logits[:, -1]
        advance(self.alive, logits_BV, self.ending)
        self._leave()

    def _next_rows(self, room: int) -> list[Row]:
        """The next waiting rows whose prompts are computed; computes the next prompts when there is none."""
        if self.waiting[0].prompt_ids not in self.prompts.numbers:
            self.prompts = self._prefill(_first_prompts(self.waiting, self.size.rows))
        rows: list[Row] = []
        while self.waiting and len(rows) < room and self.waiting[0].prompt_ids in self.prompts.numbers:
            rows.append(self.waiting.popleft())
        return rows

    def _enter(self, rows: list[Row], number: int) -> None:
        if not rows:
            return
        if self.cache is None:
            kind = SharedCache if self.device.type == "cpu" else RowCache
            self.cache = kind(self.prompts.cache, self.size)
            self.flat = flat_step(self.module, self.cache, self.products)
        start = len(self.alive)
        self.alive += rows
        self.cache.enter(range(start, len(self.alive)), rows[0].prompt_ids, self.prompts.cache, number)

    def _leave(self) -> None:
        """Take finished rows out; rows from the end move into their places."""
        stay = sum(row.finish is None for row in self.alive)
        if stay == len(self.alive):
            return
        assert self.cache is not None
        holes = [place for place, row in enumerate(self.alive[:stay]) if row.finish is not None]
        movers = [place for place, row in enumerate(self.alive) if place >= stay and row.finish is None]
        moves = list(zip(movers, holes, strict=True))
        for origin, place in moves:
            self.alive[place] = self.alive[origin]
        del self.alive[stay:]
        if moves:
            self.cache.move(moves)
        self.cache.settle(self.alive)

    def _prefill(self, prompts: list[tuple[int, ...]]) -> _Prompts:
        """The prompts in one forward pass, left-padded to the longest; a padding position looks at itself only."""
        from transformers import DynamicCache

        lengths = [len(prompt) for prompt in prompts]
        longest = max(lengths)
        ids_PL = torch.tensor([(0,) * (longest - len(prompt)) + prompt for prompt in prompts], device=self.device)
        index_L = torch.arange(longest, device=self.device)
        padding_P1 = longest - torch.tensor(lengths, device=self.device)[:, None]
        allowed = None
        if min(lengths) < longest:
            is_real_P1L = (index_L >= padding_P1)[:, None]
            causal_LL = index_L[:, None] >= index_L
            allowed = ((causal_LL & is_real_P1L) | torch.eye(longest, dtype=torch.bool, device=self.device))[:, None]
        positions_PL = (index_L - padding_P1).clamp_min(0)
        output = self._forward(ids_PL, positions_PL, allowed, DynamicCache())
        numbers = {prompt: number for number, prompt in enumerate(prompts)}
        return _Prompts(numbers, output.logits[:, -1], getattr(output, self.cache_name))

    def _forward(self, ids_BL: Tensor, positions_BL: Tensor, allowed: Tensor | None, cache: Any) -> Any:
        mask = None if allowed is None else model_mask(allowed, self.module)
        # The last position by its index: it arrives at the head as one piece of memory. The view that the number 1 would give
        # makes torch expand the head's weight to one copy per row.
        last = torch.tensor([ids_BL.shape[1] - 1], device=self.device)
        return self.module(
            input_ids=ids_BL, position_ids=positions_BL, attention_mask=mask, use_cache=True, logits_to_keep=last,
            **{self.cache_name: cache},
        )  # fmt: skip


def decode_fast(module: Any, rows: Sequence[Row], ending: Ending, products: Products, *, max_rows: int) -> None:
    """Finish all rows, at most `max_rows` at the same time."""
    batch = _Batch(module, rows, ending, products, max_rows=max_rows)
    while batch.waiting or batch.alive:
        batch.fill()
        if batch.alive:
            batch.step()


def _first_prompts(waiting: Sequence[Row], most: int) -> list[tuple[int, ...]]:
    """The next distinct prompts, as many as one pass takes with padding, but not more than `most`; at least one."""
    prompts = list(dict.fromkeys(row.prompt_ids for row in waiting))
    return prompts[: min(most, max(1, _PREFILL_TOKENS // len(prompts[0])))]
