"""Groups become the tensors of one optimizer update.

Decisions:
1. No padding and no wasted prompt: a row holds one prompt and, behind it, several of its answers. Each answer sees the prompt
   and itself (a mask says so) and continues the prompt's positions. Where the architecture does not allow that, a row holds one
   prompt and one answer and needs no mask: the same code, always correct.
2. The last token of an answer predicts nothing that is trained, so it is not fed. The first is predicted by the prompt's
   last token.
3. Only positions that predict a token with loss are kept (`keep_N`); all per-token numbers are flat over those (N).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """One forward pass: a prompt and some of its answers.

    input_ids_L, position_ids_L  (L,) tokens fed and their logical positions
    mask_LL       (L, L) bool, True where the query (row) sees the key (column); None = plain causal
    keep_N        (N,) positions whose logits predict a token with loss; the same position may occur for several answers
    targets_N     (N,) the tokens they predict
    sequence_N    (N,) which of `rollouts` the token belongs to
    """

    rollouts: tuple[Rollout, ...]
    input_ids_L: Tensor
    position_ids_L: Tensor
    mask_LL: Tensor | None
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


def pack_row(rollouts: Sequence[Rollout], *, device: torch.device | str = "cpu") -> PackedRow:
    """Answers to one prompt, packed behind it.

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
    prompt_ids = rollouts[0].prompt.token_ids
    assert all(rollout.prompt.token_ids == prompt_ids for rollout in rollouts), "a row holds answers to one prompt"
    ids, positions, segments = list(prompt_ids), list(range(len(prompt_ids))), [-1] * len(prompt_ids)
    keep: list[int] = []
    targets: list[int] = []
    sequence: list[int] = []
    for number, rollout in enumerate(rollouts):
        tokens, start = rollout.completion.token_ids, len(ids)
        for offset, (token, trained) in enumerate(zip(tokens, rollout.completion.loss_mask, strict=True)):
            if trained:
                keep.append(len(prompt_ids) - 1 if offset == 0 else start + offset - 1)
                targets.append(token)
                sequence.append(number)
        ids += tokens[:-1]
        positions += range(len(prompt_ids), len(prompt_ids) + len(tokens) - 1)
        segments += [number] * (len(tokens) - 1)
    return PackedRow(
        rollouts=tuple(rollouts),
        input_ids_L=torch.tensor(ids, device=device),
        position_ids_L=torch.tensor(positions, device=device),
        mask_LL=None if len(rollouts) == 1 else _sees(torch.tensor(segments, device=device)),
        keep_N=torch.tensor(keep, device=device),
        targets_N=torch.tensor(targets, device=device),
        sequence_N=torch.tensor(sequence, device=device),
    )


def _sees(segments_L: Tensor) -> Tensor:
    """Causal, and either the key is prompt (-1) or query and key belong to the same answer."""
    order_L = torch.arange(len(segments_L), device=segments_L.device)
    causal_LL = order_L[:, None] >= order_L[None]
    return causal_LL & ((segments_L[None] == -1) | (segments_L[:, None] == segments_L[None]))


def pack(
    rollouts: Sequence[Rollout], *, shared_prompt: bool, token_budget: int, device: torch.device | str = "cpu"
) -> list[PackedRow]:
    """Rows of at most `token_budget` fed tokens (a single answer may exceed it), siblings together.

    The split into rows does not change any result: denominators belong to the whole update.
    """
    rows: list[PackedRow] = []
    waiting: list[Rollout] = []
    for rollout in rollouts:
        joins = shared_prompt and waiting and rollout.id.group == waiting[0].id.group
        if waiting and (not joins or _num_fed([*waiting, rollout]) > token_budget):
            rows.append(pack_row(waiting, device=device))
            waiting = []
        waiting.append(rollout)
    if waiting:
        rows.append(pack_row(waiting, device=device))
    return rows


def _num_fed(rollouts: Sequence[Rollout]) -> int:
    return len(rollouts[0].prompt.token_ids) + sum(rollout.completion.num_tokens - 1 for rollout in rollouts)
