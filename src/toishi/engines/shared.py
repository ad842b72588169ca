"""Keys and values with every prompt held once for all its rows, and the attention that reads them so. For CPUs.

Decisions:
1. A row's keys are its prompt's, shared with its siblings, and its own: the tokens of its answer. Scores of both stand side by
   side under one softmax, so nothing is approximated. The queries of siblings meet their prompt in one matrix product.
2. Scores, softmax and sums are at least fp32, and so are the kept keys and values: products of bf16 numbers are exact there. A
   prompt once instead of once per row saves more memory than that costs, unless answers are much longer than prompts.
3. Keys and values lie as (heads, tokens, head size): a new token is one piece of memory for each head. The other way round it
   touches as many cache lines as a key has numbers, which cost more than the product gained.
4. Room for own tokens doubles when it is used up, for the rows that are left: of many rows few may be long.
5. It comes in through transformers' attention interface, by name, only while a batch is decoded. A GPU has fused kernels for
   one row each; there `engines.cache` is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from toishi.engines.cache import Size
from toishi.engines.rows import Row

_NAME = "toishi_shared_prompt"
_FIRST_TOKENS = 64


class _Step:
    """What one forward pass writes and sees, for all layers: rows (B) of prompts (P) with up to G siblings.

    own_B       where every row's new token goes: the place in its own part
    same        that place when it is the same one for all rows, as it is until waiting rows enter
    row_PG      row number of each sibling (any row where there is no such sibling), flat; None when the rows stand like that
    sibling_B   number of each row in `row_PG`
    hidden_B1K  0 where a row may look, -inf elsewhere; prompt columns, then own columns; None when it may look everywhere
    """

    own_B: Tensor
    same: int | None
    row_PG: Tensor | None
    sibling_B: Tensor | None
    hidden_B1K: Tensor | None
    prompts: int = 0
    prompt_length: int = 0
    own_length: int = 0

    def __init__(self) -> None:
        self._slots: dict[int, Tensor] = {}

    def place(self, own_B: Tensor, tokens: int) -> None:
        """New tokens go to `own_B`, in parts with room for so many tokens."""
        self.own_B, self._tokens, self._slots = own_B, tokens, {}
        first = int(own_B[0])
        self.same = first if bool((own_B == first).all()) else None

    def slots(self, heads: int) -> Tensor:
        """The place of every new token (B * heads) in memory (rows, heads, tokens); the same for all layers."""
        if heads not in self._slots:
            starts = torch.arange(0, len(self.own_B) * heads * self._tokens, self._tokens).view(-1, heads)
            self._slots[heads] = (starts + self.own_B[:, None]).flatten()
        return self._slots[heads]


_CURRENT: ContextVar[SharedCache] = ContextVar("shared cache in use")


class SharedLayer(CacheLayerMixin):  # type: ignore[misc, unused-ignore]
    """One layer: keys and values of prompts (P, heads, tokens, head size) and of rows (B, heads, tokens, head size)."""

    is_sliding = False

    def __init__(self, step: _Step, made: Any, *, prompts: int, prompt_length: int) -> None:
        super().__init__()
        self.step = step
        dtype = torch.promote_types(made.keys.dtype, torch.float32)
        heads, key_size, value_size = made.keys.shape[1], made.keys.shape[3], made.values.shape[3]
        self.prompt_keys = made.keys.new_zeros(prompts, heads, prompt_length, key_size, dtype=dtype)
        self.prompt_values = made.keys.new_zeros(prompts, heads, prompt_length, value_size, dtype=dtype)
        self.keys = self.prompt_keys.new_zeros(0, heads, 0, key_size)
        self.values = self.prompt_keys.new_zeros(0, heads, 0, value_size)
        self.is_initialized = True

    def grow(self, rows: int, tokens: int) -> None:
        """Room for so many rows with so many own tokens; what stands in it stays."""
        kept, length = min(rows, len(self.keys)), self.keys.shape[2]
        before = (self.keys, self.values)
        self.keys, self.values = (held.new_zeros(rows, held.shape[1], tokens, held.shape[3]) for held in before)
        self.keys[:kept, :, :length], self.values[:kept, :, :length] = before[0][:kept], before[1][:kept]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: made with its memory."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write each row's new token (B, heads, 1, head size). Attention finds the rest in this layer itself."""
        self.write(key_states[:, :, 0], value_states[:, :, 0])
        return key_states, value_states

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Put each row's new token (B, heads, head size) behind its own part."""
        if self.step.same is not None:
            self.keys[: len(keys), :, self.step.same] = keys
            self.values[: len(values), :, self.step.same] = values
            return
        slots = self.step.slots(keys.shape[1])
        for held, new in ((self.keys, keys), (self.values, values)):
            held.view(-1, held.shape[3]).index_copy_(0, slots, new.reshape(-1, held.shape[3]).to(held.dtype))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that attention sees, from which position on."""
        return self.step.prompt_length + self.step.own_length, 0

    def get_seq_length(self) -> int:
        """Tokens before the new one, in the longest row at most."""
        return self.step.prompt_length + self.step.own_length - 1

    def get_max_length(self) -> int:
        """Tokens that a row has room for."""
        return int(self.prompt_keys.shape[2] + self.keys.shape[2])

    def attend(self, queries_BHD: Tensor, softcap: float | None) -> Tensor:
        """Attention (B, heads, head size) of one scaled query per row."""
        step, rows = self.step, len(queries_BHD)
        heads = self.keys.shape[1]
        queries = queries_BHD.to(self.keys.dtype).view(rows, heads, -1, queries_BHD.shape[-1])
        own_keys, own_values = self.keys[:rows, :, : step.own_length], self.values[:rows, :, : step.own_length]
        keys, values = (held[: step.prompts, :, : step.prompt_length] for held in (self.prompt_keys, self.prompt_values))
        to_prompt = self._with_prompts(queries, keys.transpose(2, 3))
        scores = torch.cat([to_prompt, _product(queries, own_keys.transpose(2, 3))], dim=-1)
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        if step.hidden_B1K is not None:
            scores.add_(step.hidden_B1K[:, None])
        probs = scores.softmax(dim=-1)
        from_prompt, from_own = probs[..., : step.prompt_length], probs[..., step.prompt_length :]
        return _product(from_own, own_values).add_(self._with_prompts(from_prompt, values)).flatten(1, 2)

    def _with_prompts(self, left: Tensor, right: Tensor) -> Tensor:
        """Each row's `left` (B, heads, R, X) times its prompt's `right` (P, heads, X, Y), siblings together."""
        step, (_, heads, repeats, inner) = self.step, left.shape
        grouped = left if step.row_PG is None else left.index_select(0, step.row_PG)
        grouped = grouped.view(step.prompts, -1, heads, repeats, inner).transpose(1, 2)
        product = _product(grouped.reshape(step.prompts, heads, -1, inner), right)
        spread = product.view(step.prompts, heads, -1, repeats, right.shape[-1]).transpose(1, 2).flatten(0, 1)
        return spread if step.sibling_B is None else spread.index_select(0, step.sibling_B)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix products over the last two dimensions, the first two flattened."""
    return torch.bmm(left.reshape(-1, *left.shape[2:]), right.flatten(0, 1)).view(*left.shape[:3], right.shape[-1])


class SharedCache(Cache):  # type: ignore[misc, unused-ignore]
    """All layers of a batch.

    like           the cache of some prompts, which says how many layers there are and how wide
    size           what the batch needs at most
    """

    def __init__(self, like: Cache, size: Size) -> None:
        self.step, self.most_own = _Step(), size.own_length
        sizes = {"prompts": size.prompts, "prompt_length": size.prompt_length}
        super().__init__(layers=[SharedLayer(self.step, made, **sizes) for made in like.layers])
        self.prompts: list[tuple[int, ...]] = []

    @property
    def dtype(self) -> torch.dtype:
        """What attention computes in."""
        dtype: torch.dtype = self.layers[0].keys.dtype
        return dtype

    def enter(self, places: Sequence[int], prompt_ids: tuple[int, ...], made: Cache, number: int) -> None:
        """Copy one prompt, row `number` of the left-padded `made`, unless siblings of the new rows brought it along."""
        if prompt_ids in self.prompts:
            return
        slot, length = len(self.prompts), len(prompt_ids)
        self.prompts.append(prompt_ids)
        for layer, source in zip(self.layers, made.layers, strict=True):
            layer.prompt_keys[slot, :, :length] = source.keys[number, :, -length:]
            layer.prompt_values[slot, :, :length] = source.values[number, :, -length:]

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """(from, to) for every row that moves, with its own part."""
        origins, places = torch.tensor(moves).T
        length = self.step.own_length
        for layer in self.layers:
            layer.keys[places, :, :length] = layer.keys[origins, :, :length]
            layer.values[places, :, :length] = layer.values[origins, :, :length]

    def settle(self, rows: Sequence[Row]) -> None:
        """The rows that are there have changed: forget prompts without rows, and note who is whose sibling."""
        needed = {row.prompt_ids for row in rows}
        for slot in reversed(range(len(self.prompts))):
            if self.prompts[slot] not in needed:
                last = self.prompts.pop()
                if slot < len(self.prompts):
                    self.prompts[slot] = last
                    for layer in self.layers:
                        layer.prompt_keys[slot] = layer.prompt_keys[len(self.prompts)]
                        layer.prompt_values[slot] = layer.prompt_values[len(self.prompts)]
        members: list[list[int]] = [[] for _ in self.prompts]
        slots = {prompt: slot for slot, prompt in enumerate(self.prompts)}
        for place, row in enumerate(rows):
            members[slots[row.prompt_ids]].append(place)
        most = max(map(len, members), default=0)
        siblings = {place: slot * most + at for slot, found in enumerate(members) for at, place in enumerate(found)}
        by_sibling = [place for found in members for place in found + [0] * (most - len(found))]
        is_sorted = by_sibling == list(range(len(rows)))
        self.step.row_PG = None if is_sorted else torch.tensor(by_sibling)
        self.step.sibling_B = None if is_sorted else torch.tensor([siblings[place] for place in range(len(rows))])
        self.step.prompts, self.step.prompt_length = len(self.prompts), max(map(len, self.prompts), default=0)

    def prepare(self, rows: Sequence[Row], lengths_B: Tensor, *, room: int) -> Tensor:
        """Get ready for a forward pass that feeds each row's newest token; a mask (B, 1, 1, K) for the model to carry along.

        room: rows that there may be before the next call.
        """
        step = self.step
        prompt_B = torch.tensor([len(row.prompt_ids) for row in rows])
        step.own_length = max(len(row.token_ids) for row in rows)
        places, _, tokens, _ = self.layers[0].keys.shape
        if step.own_length > tokens or len(rows) > places:
            tokens = tokens if step.own_length <= tokens else min(max(_FIRST_TOKENS, 2 * tokens), self.most_own)
            for layer in self.layers:
                layer.grow(room, tokens)
        step.place(lengths_B - prompt_B, tokens)
        columns = torch.arange(max(step.prompt_length, step.own_length))
        prompt_BK = columns[: step.prompt_length] < prompt_B[:, None]
        own_BK = columns[: step.own_length] <= step.own_B[:, None]
        allowed_BK = torch.cat([prompt_BK, own_BK], dim=1)
        hidden_B1K = torch.zeros(allowed_BK.shape, dtype=self.dtype).masked_fill_(~allowed_BK, -torch.inf)[:, None]
        step.hidden_B1K = None if bool(allowed_BK.all()) else hidden_B1K
        return allowed_BK[:, None, None]

    @contextmanager
    def attending(self, module: Any) -> Iterator[None]:
        """Inside, the module's layers attend through this cache."""
        before, token = module.config._attn_implementation, _CURRENT.set(self)
        module.config._attn_implementation = _NAME
        try:
            yield
        finally:
            module.config._attn_implementation = before
            _CURRENT.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, softcap: float | None = None, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """transformers' attention for queries (B, heads, 1, head size)."""
    layer = _CURRENT.get().layers[module.layer_idx]
    queries_BHD = query[:, :, 0] * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    return layer.attend(queries_BHD, softcap).to(query.dtype)[:, None], None


AttentionInterface.register(_NAME, _attention)
