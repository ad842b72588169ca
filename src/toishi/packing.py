"""Groups become the tensors of one optimizer update.

Decisions:
1. No padding and no wasted prompt: a row holds prompts and, behind each, several of its answers. An answer sees its prompt and
   itself (a layout says so) and continues the prompt's positions. Where the architecture does not allow that, a row holds one
   prompt and one answer and needs no layout: the same code, always correct.
2. The last token of an answer predicts nothing that is trained, so it is not fed. The first is predicted by the prompt's
   last token.
3. Rows are filled in the order of the answers. A group goes into the next row before it is split, since a split feeds its
   prompt once more. Several groups share a row only where attention costs nothing for tokens that do not see each other.
4. Only positions that predict a token with loss are kept (`keep_N`); all per-token numbers are flat over those (N).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from toishi.policy.layout import Layout, Span
from toishi.types import Completion, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """One forward pass: one or several prompts, each with some of its answers.

    input_ids_L, position_ids_L  (L,) tokens fed and their logical positions
    layout        who sees whom; None = plain causal
    keep_N        (N,) positions whose logits predict a token with loss; the same position may occur for several answers
    targets_N     (N,) the tokens they predict
    sequence_N    (N,) which of `rollouts` the token belongs to

    In a row that is fed whole (for a model that scores answers) `keep_N` are the positions of the tokens with loss themselves.
    """

    rollouts: tuple[Rollout, ...]
    input_ids_L: Tensor
    position_ids_L: Tensor
    layout: Layout | None
    keep_N: Tensor
    targets_N: Tensor
    sequence_N: Tensor

    @property
    def lengths_B(self) -> Tensor:
        """(B,) tokens with loss of each answer in this row."""
        return torch.bincount(self.sequence_N, minlength=len(self.rollouts))

    def stream(self, values: Iterable[Sequence[float]], dtype: torch.dtype) -> Tensor:
        """Per-token values of each answer as one flat (N,) tensor: positions without loss are left out.

        `values` gives, for each answer of the row, one number per token of its completion.
        """
        picked = [
            value
            for rollout, numbers in zip(self.rollouts, values, strict=True)
            for value, trained in zip(numbers, rollout.completion.loss_mask, strict=True)
            if trained
        ]
        return torch.tensor(picked, dtype=dtype, device=self.input_ids_L.device)

    def spread(self, number: int, values_N: Tensor) -> tuple[float, ...]:
        """Answer `number`'s part of a flat stream, put back at its places among all its tokens; 0 where there is no loss."""
        values = iter(values_N[self.sequence_N == number].tolist())
        return tuple(next(values) if trained else 0.0 for trained in self.rollouts[number].completion.loss_mask)

    def sampled_logprobs(self, dtype: torch.dtype) -> Tensor | None:
        """(N,) log-probs as the sampler saw them; None where an answer was written and not sampled."""
        known = [rollout.completion.sampled_logprobs for rollout in self.rollouts]
        return self.stream(known, dtype) if all(known) else None


def pack_row(rollouts: Sequence[Rollout], *, whole: bool = False, device: torch.device | str = "cpu") -> PackedRow:
    """Answers packed behind their prompts: neighbours with the same prompt share it.

    whole  feed the last token of an answer too, and keep the tokens with loss themselves instead of what predicts them

    With prompt tokens (7, 8) and answers (1, 2) and (3,):

        fed        7 8 1          the 2 and the 3 end their answers: nothing after them is predicted
        position   0 1 2
        keep       1 2 1          8 predicts 1, 1 predicts 2, 8 predicts 3
        targets    1 2 3
        sequence   0 0 1

    >>> from toishi.types import Completion, Prompt, RolloutId
    >>> def answer(member, *ids):
    ...     completion = Completion(token_ids=ids, loss_mask=(1,) * len(ids), sampled_logprobs=(0.0,) * len(ids),
    ...                             entropies=(0.0,) * len(ids), text="", finish_reason="stop")
    ...     return Rollout(id=RolloutId(1, 0, member), prompt=Prompt(id="p", text="x", token_ids=(7, 8)), completion=completion)
    >>> row = pack_row([answer(0, 1, 2), answer(1, 3)])
    >>> row.input_ids_L.tolist(), row.keep_N.tolist(), row.targets_N.tolist(), row.sequence_N.tolist()
    ([7, 8, 1], [1, 2, 1], [1, 2, 3], [0, 0, 1])
    """
    ids: list[int] = []
    positions: list[int] = []
    spans: list[Span] = []
    kept: list[tuple[int, int]] = []
    for siblings in _by_prompt(rollouts):
        prompt_ids, start = siblings[0].prompt.token_ids, len(ids)
        answer_lengths = tuple(_num_own(rollout, whole) for rollout in siblings)
        spans.append(Span(start=start, prompt_length=len(prompt_ids), answer_lengths=answer_lengths))
        ids += prompt_ids
        positions += range(len(prompt_ids))
        last = len(ids) - 1
        for rollout, length in zip(siblings, answer_lengths, strict=True):
            if whole:
                kept += _kept_themselves(rollout.completion, len(ids))
            else:
                kept += _kept(rollout.completion, last, len(ids))
            ids += rollout.completion.token_ids[:length]
            positions += range(len(prompt_ids), len(prompt_ids) + length)
    lengths = [sum(rollout.completion.loss_mask) for rollout in rollouts]
    return PackedRow(
        rollouts=tuple(rollouts),
        input_ids_L=torch.tensor(ids, device=device),
        position_ids_L=torch.tensor(positions, device=device),
        layout=None if len(rollouts) == 1 else Layout(tuple(spans)),
        keep_N=torch.tensor([position for position, _ in kept], dtype=torch.int64, device=device),
        targets_N=torch.tensor([token for _, token in kept], dtype=torch.int64, device=device),
        sequence_N=torch.repeat_interleave(torch.tensor(lengths, device=device)),
    )


def _kept(completion: Completion, last: int, start: int) -> Iterator[tuple[int, int]]:
    """(position, token it predicts) of each token with loss; the answer is fed from `start`, its prompt ends at `last`."""
    for offset, (token, trained) in enumerate(zip(completion.token_ids, completion.loss_mask, strict=True)):
        if trained:
            yield (last if offset == 0 else start + offset - 1), token


def _kept_themselves(completion: Completion, start: int) -> Iterator[tuple[int, int]]:
    """(position, token) of each token with loss; the answer is fed from `start`."""
    for offset, (token, trained) in enumerate(zip(completion.token_ids, completion.loss_mask, strict=True)):
        if trained:
            yield start + offset, token


def pack(
    rollouts: Sequence[Rollout],
    *,
    shared_prompt: bool,
    token_budget: int,
    mix_groups: bool = False,
    whole: bool = False,
    device: torch.device | str = "cpu",
) -> list[PackedRow]:
    """Rows of at most `token_budget` fed tokens (a single answer may exceed it), siblings together.

    mix_groups  whether a row may hold answers to several prompts; only with `shared_prompt`
    whole       as in `pack_row`
    The split into rows does not change any result: denominators belong to the whole update.
    """
    rows: list[list[Rollout]] = []
    for siblings in _by_prompt(rollouts) if shared_prompt else [[rollout] for rollout in rollouts]:
        together = _num_fed(siblings, whole)
        if not (rows and shared_prompt and mix_groups) or _num_fed(rows[-1], whole) + together > token_budget:
            rows.append([])
        for rollout in siblings:
            if rows[-1] and _num_fed([*rows[-1], rollout], whole) > token_budget:
                rows.append([])
            rows[-1].append(rollout)
    return [pack_row(row, whole=whole, device=device) for row in rows]


def _by_prompt(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """Neighbours with the same prompt, together."""
    return [list(siblings) for _, siblings in groupby(rollouts, key=lambda rollout: rollout.prompt.token_ids)]


def _num_fed(rollouts: Sequence[Rollout], whole: bool) -> int:
    prompts = sum(len(siblings[0].prompt.token_ids) for siblings in _by_prompt(rollouts))
    return prompts + sum(_num_own(rollout, whole) for rollout in rollouts)


def _num_own(rollout: Rollout, whole: bool) -> int:
    return rollout.completion.num_tokens - (not whole)
