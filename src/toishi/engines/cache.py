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
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


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
        self.keys, self.values = (
            states.new_zeros(self.rows, self.capacity, states.shape[1], states.shape[3]) for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new token of each row and give back all that its row may look at, and what lies behind."""
        count = key_states.shape[0]
        for places, states in ((self.keys, key_states), (self.values, value_states)):
            places.view(-1, *places.shape[2:]).index_copy_(0, self.step.slots_B, states[:, :, 0])
        return tuple(places[:count, : self.step.longest].transpose(1, 2) for places in (self.keys, self.values))

    def enter(self, places: Tensor, keys_HLD: Tensor, values_HLD: Tensor) -> None:
        """The prompt of new rows."""
        length = keys_HLD.shape[1]
        self.keys[places, :length] = keys_HLD.transpose(0, 1)
        self.values[places, :length] = values_HLD.transpose(0, 1)

    def move(self, origins: Tensor, places: Tensor, length: int) -> None:
        """Rows from one place to another."""
        for held in (self.keys, self.values):
            held[places, :length] = held[origins, :length]

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
    rows      places
    capacity  tokens in one place
    """

    def __init__(self, like: Cache, *, rows: int, capacity: int) -> None:
        self.step, self.capacity = Step(), capacity
        super().__init__(layers=[RowLayer(self.step, rows, capacity) for _ in like.layers])
        for layer, made in zip(self.layers, like.layers, strict=True):
            layer.lazy_initialization(made.keys, made.values)

    def prepare(self, lengths_B: Tensor, longest: int) -> None:
        """The next forward pass writes the rows' tokens at positions `lengths_B`; `longest` is their maximum plus 1."""
        first_B = torch.arange(0, len(lengths_B) * self.capacity, self.capacity, device=lengths_B.device)
        self.step.slots_B, self.step.longest = first_B + lengths_B, longest

    def enter(self, places: Sequence[int], prompts: Cache, number: int, length: int) -> None:
        """Copy one prompt, the last `length` tokens of row `number` of `prompts`, into every one of the places."""
        index = torch.tensor(places, device=self.layers[0].keys.device)
        for layer, made in zip(self.layers, prompts.layers, strict=True):
            layer.enter(index, made.keys[number, :, -length:], made.values[number, :, -length:])

    def move(self, moves: Sequence[tuple[int, int]], length: int) -> None:
        """(from, to) for every row that moves; of each row the first `length` tokens go with it."""
        origins, places = torch.tensor(moves, device=self.layers[0].keys.device).T
        for layer in self.layers:
            layer.move(origins, places, length)
