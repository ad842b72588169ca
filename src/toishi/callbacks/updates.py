"""TRL's optimizer updates, token by token: log-probs, and d loss / d log-prob as TRL's own backward pass made it.

Decision: the weight of a token is read off the gradient that arrives at TRL's log-probs. The row's own numbers (ratio, clip
branch, KL) are computed beside it, and the largest distance between both weights is on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from toishi.callbacks.settings import Mapped
from toishi.explanation.audit_updates import recompute
from toishi.types import Group, Rollout, RolloutId, TokenStreams, Update

ROW = "toishi_row"
"""Key of the tensor that travels with TRL's batches and says which answer of the step a row is."""


@dataclass(slots=True)
class MicroBatch:
    """One forward and backward pass of TRL. [B, T] tensors are padded on the right."""

    inputs: Mapping[str, Any]
    loss: float = 0.0
    logprobs_BT: Tensor | None = None
    entropy_BT: Tensor | None = None
    weight_BT: Tensor | None = None

    @property
    def rows(self) -> list[int]:
        """Of each sequence, its number in the step."""
        return [int(row) for row in self.inputs[ROW].tolist()]

    def watch(self, logprobs_BT: Tensor, entropy_BT: Tensor | None) -> None:
        """Keeps the log-probs, and their gradient when it comes."""
        self.logprobs_BT = logprobs_BT.detach()
        self.entropy_BT = None if entropy_BT is None else entropy_BT.detach()
        if logprobs_BT.requires_grad:
            logprobs_BT.register_hook(self._arrived)  # type: ignore[no-untyped-call]

    def _arrived(self, gradient_BT: Tensor) -> None:
        self.weight_BT = gradient_BT.detach().clone()


@dataclass(slots=True)
class OpenUpdate:
    """An optimizer update that is being made."""

    batches: list[MicroBatch] = field(default_factory=list)
    grad_norm: float = float("nan")
    clipped_norm: float = float("nan")
    lr: float = float("nan")


def finished(opened: OpenUpdate, step: int, index: int, groups: Sequence[Group], found: Mapped) -> tuple[Update, float | None]:
    """The update with its streams, and the largest distance between TRL's token weights and the row's (None: no row)."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    streams: dict[RolloutId, TokenStreams] = {}
    for batch in opened.batches:
        for place, row in enumerate(batch.rows):
            stream = _stream(batch, place, rollouts[row])
            earlier = streams.get(stream.rollout)
            streams[stream.rollout] = stream if earlier is None else _together(earlier, stream)
    taking_part = [rollout.completion for rollout in rollouts if rollout.id in streams]
    scalars = {
        "update/loss": sum(batch.loss for batch in opened.batches),
        "update/grad_norm": opened.grad_norm,
        "update/grad_norm_clipped": opened.clipped_norm,
        "update/lr": opened.lr,
        "update/skipped": 0.0,
        "update/tokens": float(sum(sum(completion.loss_mask) for completion in taking_part)),
        "update/rollouts": float(len(taking_part)),
    }
    update = Update(step=step, index=index, scalars=scalars, streams=tuple(streams[key] for key in sorted(streams)))
    if "weights" in found.missing:
        return update, None
    return _with_row(update, {rollout.id: rollout for rollout in rollouts}, found)


def _stream(batch: MicroBatch, place: int, rollout: Rollout) -> TokenStreams:
    count, mask = rollout.completion.num_tokens, rollout.completion.loss_mask
    if not any(mask):
        return TokenStreams(rollout=rollout.id, computed=False, advantage=rollout.advantage_per_token)
    if batch.logprobs_BT is None or batch.weight_BT is None:
        raise RuntimeError(f"rollout {rollout.id}: no gradient arrived at TRL's log-probs")

    def cut(values_BT: Tensor | None) -> tuple[float, ...]:
        return () if values_BT is None else tuple(values_BT[place, :count].to(torch.float64).tolist())

    old = batch.inputs.get("old_per_token_logps")
    weights = (weight if trained else 0.0 for weight, trained in zip(cut(batch.weight_BT), mask, strict=True))
    return TokenStreams(
        rollout=rollout.id,
        computed=True,
        advantage=rollout.advantage_per_token,
        old_logprob=cut(batch.logprobs_BT if old is None else old),
        logprob=cut(batch.logprobs_BT),
        ref_logprob=rollout.ref_logprobs or (),
        entropy=cut(batch.entropy_BT),
        token_weight=tuple(weights),
    )


def _together(one: TokenStreams, other: TokenStreams) -> TokenStreams:
    """An answer that an update uses twice: its pushes add up."""
    return replace(one, token_weight=tuple(a + b for a, b in zip(one.token_weight, other.token_weight, strict=True)))


def _with_row(update: Update, rollouts: Mapping[RolloutId, Rollout], found: Mapped) -> tuple[Update, float]:
    computed = [stream for stream in update.streams if stream.computed]
    if not computed:
        return update, 0.0
    _, columns = recompute(update, computed, rollouts, found.row, max_new_tokens=found.max_new_tokens)
    values = {name: iter(values_N.tolist()) for name, values_N in columns.items()}
    streams, gap = [], 0.0
    for stream in update.streams:
        if not stream.computed:
            streams.append(stream)
            continue
        mask = rollouts[stream.rollout].completion.loss_mask
        own: dict[str, Any] = {
            name: tuple(next(numbers) if trained else 0 for trained in mask) for name, numbers in values.items()
        }
        pairs = zip(stream.token_weight, own.pop("token_weight"), strict=True)
        gap = max([gap, *(abs(left - right) for left, right in pairs)])
        streams.append(replace(stream, **own))
    return replace(update, streams=tuple(streams)), gap
