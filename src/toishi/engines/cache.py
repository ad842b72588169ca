"""Keys and values of the rows that are decoded together, in memory that is laid out once.

Decisions:
1. Every row has a place of `capacity` tokens and begins at its first one, whatever its length. A new token is written where its
   row ends, and attention gets a view up to the longest row, with a mask behind each row's end. Nothing is copied per step.
2. A row that enters copies its prompt into a free place; the last row moves into the place of one that left. So rows stay
   side by side, and what a step costs follows the rows that are alive.
3. Places begin as zeros: what a mask hides gets weight 0, and 0 times whatever memory held could be NaN.
4. Laid out as (rows, capacity, heads, head size): one token of one row is one piece of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from toishi.engines.rows import Row


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a batch needs at most: rows and distinct prompts at the same time, tokens of a prompt, tokens of an answer that
    are fed back (all but the last)."""

    rows: int
    prompts: int
    prompt_length: int
    own_length: int


class Step:
    """Which places the next forward pass writes and sees; one object shared by all layers.

    slots_B   row * capacity + position of every row's new token
    longest   tokens that the longest row has, the new one included
    """

    slots_B: Tensor
    longest: int = 0


class RowLayer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """One layer's places. `update` writes one token per row and returns views (rows, heads, longest, head size)."""

    is_sliding = False

    def __init__(self, step: Step, rows: int, capacity: int) -> None:
        super().__init__()
        self.step, self.rows, self.capacity = step, rows, capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Reserve the places; `key_states` and `value_states` (B, heads, L, head size) say how wide they are."""
        places = (self.rows, self.capacity, key_states.shape[1])
        self.keys = key_states.new_zeros(*places, key_states.shape[3])
        self.values = value_states.new_zeros(*places, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new token of each row and give back all that its row may look at, and what lies behind."""
        count = key_states.shape[0]
        for places, states in ((self.keys, key_states), (self.values, value_states)):
            places.view(-1, *places.shape[2:]).index_copy_(0, self.step.slots_B, states[:, :, 0])
        seen = slice(self.step.longest)
        return self.keys[:count, seen].transpose(1, 2), self.values[:count, seen].transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that attention sees, from which position on."""
        return self.step.longest, 0

    def get_seq_length(self) -> int:
        """Tokens of the longest row before the new one."""
        return self.step.longest - 1

    def get_max_length(self) -> int:
        """Tokens that a row has room for."""
        return self.capacity


class RowCache(Cache):  # type: ignore[misc, unused-ignore]
    """The places of all layers.

    like      the cache of some prompt, which says how many layers there are and how wide
    size      what the batch needs at most
    """

    def __init__(self, like: Cache, size: Size) -> None:
        self.step, self.capacity = Step(), size.prompt_length + size.own_length
        super().__init__(layers=[RowLayer(self.step, size.rows, self.capacity) for _ in like.layers])
        for layer, made in zip(self.layers, like.layers, strict=True):
            layer.lazy_initialization(made.keys, made.values)

    def enter(self, places: Sequence[int], prompt_ids: tuple[int, ...], made: Cache, number: int) -> None:
        """Copy one prompt, row `number` of the left-padded `made`, into every one of the places."""
        index, length = torch.tensor(places, device=self.layers[0].keys.device), len(prompt_ids)
        for layer, source in zip(self.layers, made.layers, strict=True):
            layer.keys[index, :length] = source.keys[number, :, -length:].transpose(0, 1)
            layer.values[index, :length] = source.values[number, :, -length:].transpose(0, 1)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """(from, to) for every row that moves."""
        origins, places = torch.tensor(moves, device=self.layers[0].keys.device).T
        for layer in self.layers:
            for held in (layer.keys, layer.values):
                held[places, : self.step.longest] = held[origins, : self.step.longest]

    def settle(self, rows: Sequence[Row]) -> None:
        """The rows that are there have changed: nothing to note, each has all that it needs in its place."""

    def prepare(self, rows: Sequence[Row], lengths_B: Tensor, *, room: int) -> Tensor:
        """Get ready for a forward pass that feeds each row's newest token at position `lengths_B`; its mask (B, 1, 1, K)."""
        device = lengths_B.device
        self.step.longest = max(row.length for row in rows) + 1
        self.step.slots_B = torch.arange(0, len(rows) * self.capacity, self.capacity, device=device) + lengths_B
        allowed_BK = torch.arange(self.step.longest, device=device) <= lengths_B[:, None]
        return allowed_BK[:, None, None]

    def attending(self, module: Any) -> AbstractContextManager[None]:
        """The module attends as it always does."""
        return nullcontext()
