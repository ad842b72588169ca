"""Texts side by side: passes of similar length run through the model together.

Decisions:
1. A batch has one prompt if it can: what all its texts begin with is the same to a causal model, and is computed once.
2. Padding stands at the ends, where a causal model shows it to nobody. So no mask is needed, and nothing is known of an
   architecture but that it is causal and that the texts are the first dimension of what its parts hand on.
3. Passes of one row are added up anyway and need not be told apart; those of other rows have to be.
4. The head sees the predicted positions alone, a few texts at a time: logits are its largest tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.ops.logprobs import logprobs_and_entropy, token_logprobs
from toishi.tracing.influence.factors import Beginning
from toishi.tracing.influence.rows import Pass, Rows

_LONGER, _FEW_TOKENS = 1.25, 16
"""A batch's longest text is at most this much longer than its shortest, or this many tokens."""
_ENOUGH_TOKENS = 256
"""A batch with fewer takes in texts of other prompts."""
_HEAD_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Passes that run together: of one row each, one after the other from `first_row`, or all of `first_row`.

    input_ids_BT  padded at the ends
    """

    passes: tuple[Pass, ...]
    first_row: int
    apart: bool
    input_ids_BT: Tensor
    beginning: Beginning

    @property
    def texts(self) -> int:
        """How many texts have to be told apart."""
        return len(self.passes) if self.apart else 1

    def predicted(self) -> Iterator[Predicted]:
        """What the head is asked, a few texts at a time."""
        longest = max(len(one.places) for one in self.passes)
        count = max(1, _HEAD_TOKENS // longest)
        for first in range(0, len(self.passes), count):
            yield _predicted(self.passes[first : first + count], first, self.input_ids_BT.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predicted tokens of some neighbouring texts of a batch, padded.

    texts      which of the batch's texts
    places_bK  positions that predict; padding repeats a text's first
    real_bK    1 for a token with loss, 0 for padding
    """

    texts: slice
    places_bK: Tensor
    targets_bK: Tensor
    pushes_bK: Tensor
    real_bK: Tensor
    entropy_push: float
    temperature: float

    @property
    def index(self) -> tuple[Tensor, Tensor]:
        """Of the positions among these texts."""
        return torch.arange(len(self.places_bK), device=self.places_bK.device)[:, None].expand_as(
            self.places_bK
        ), self.places_bK

    def value(self, logits_bKV: Tensor) -> Tensor:
        """The number whose gradient is taken: Σ pushes · log-prob + entropy_push · Σ entropy."""
        logits_NV, targets_N = logits_bKV.flatten(0, 1), self.targets_bK.flatten()
        if not self.entropy_push:
            logprobs_N = token_logprobs(logits_NV, targets_N, self.temperature)
            return (self.pushes_bK.flatten().to(logprobs_N.dtype) * logprobs_N).sum()
        logprobs_N, entropy_N = logprobs_and_entropy(logits_NV, targets_N, self.temperature)
        pushed = (self.pushes_bK.flatten().to(logprobs_N.dtype) * logprobs_N).sum()
        return pushed + self.entropy_push * (self.real_bK.flatten().to(entropy_N.dtype) * entropy_N).sum()


def make_batches(rows: Rows, token_budget: int, device: torch.device, *, side_by_side: bool) -> list[Batch]:
    """All passes. A batch holds at most `token_budget` tokens with its padding (a single text may exceed it); without
    `side_by_side` it holds one text."""
    apart = [one for one in rows.passes if one.row != rows.fixed]
    together = [one for one in rows.passes if one.row == rows.fixed]
    return [
        _batch(some, passes is apart, device)
        for passes in (apart, together)
        for some in _filled(passes, token_budget, side_by_side)
    ]


def _filled(passes: Sequence[Pass], token_budget: int, side_by_side: bool) -> Iterator[list[Pass]]:
    some: list[Pass] = []
    for one in passes:
        lengths = [len(each.input_ids) for each in (*some, one)]
        ends = some and one.prompt_ids != some[-1].prompt_ids and sum(lengths[:-1]) >= _ENOUGH_TOKENS
        fits = _fits(min(lengths), max(lengths)) and len(lengths) * max(lengths) <= token_budget
        if some and (ends or not fits or not side_by_side):
            yield some
            some = []
        some.append(one)
    if some:
        yield some


def _fits(shortest: int, longest: int) -> bool:
    return longest <= max(_LONGER * shortest, shortest + _FEW_TOKENS)


def _batch(passes: Sequence[Pass], apart: bool, device: torch.device) -> Batch:
    rows = [one.row for one in passes]
    assert not apart or rows == list(range(rows[0], rows[0] + len(rows))), "rows stand as their texts run"
    longest = max(len(one.input_ids) for one in passes)
    # Padding repeats a text's last token: transformers warns of rows that end in its own padding token.
    filled = [[*one.input_ids, *one.input_ids[-1:] * (longest - len(one.input_ids))] for one in passes]
    return Batch(
        passes=tuple(passes),
        first_row=rows[0],
        apart=apart,
        input_ids_BT=torch.tensor(filled, device=device),
        beginning=Beginning(len(passes), longest, _shared(filled)),
    )


def _shared(texts: Sequence[Sequence[int]]) -> int:
    """How many tokens all of several texts begin with.

    >>> _shared([[5, 6, 7], [5, 6, 8]]), _shared([[5, 6]])
    (2, 0)
    """
    if len(texts) == 1:
        return 0
    return next((place for place, ids in enumerate(zip(*texts, strict=True)) if len(set(ids)) > 1), len(texts[0]))


def _predicted(passes: Sequence[Pass], first: int, device: torch.device) -> Predicted:
    def padded(values: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
        rows = [torch.tensor(row, dtype=dtype) for row in values]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)

    places_bK = padded([one.positions for one in passes], torch.long)
    real_bK = padded([[1.0] * len(one.places) for one in passes], torch.float64)
    targets = [[one.rollout.completion.token_ids[place] for place in one.places] for one in passes]
    return Predicted(
        texts=slice(first, first + len(passes)),
        places_bK=torch.where(real_bK > 0, places_bK, places_bK[:, :1]),
        targets_bK=padded(targets, torch.long),
        pushes_bK=padded([[one.pushes[place] for place in one.places] for one in passes], torch.float64),
        real_bK=real_bK,
        entropy_push=passes[0].entropy_push,
        temperature=passes[0].temperature,
    )
