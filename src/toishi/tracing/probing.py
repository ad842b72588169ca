"""Log-probs of answers, and next-token probabilities at chosen positions, under the policy's weights of the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from toishi.passes import UpdateSettings, packed_rows, predict
from toishi.policy.policy import Policy
from toishi.types import Rollout, RolloutId

Place = tuple[RolloutId, int]
"""An answer and a position in it."""


@dataclass(frozen=True)
class Probe:
    """What a forward pass over some answers gave.

    logprobs  one number per token at the sampling temperature, 0 at positions without loss
    probs     for each asked-for place, the probability of every token of the vocabulary (V,)
    """

    logprobs: dict[RolloutId, tuple[float, ...]] = field(default_factory=dict)
    probs: dict[Place, Tensor] = field(default_factory=dict)


@torch.no_grad()
def probe(
    policy: Policy,
    rollouts: Sequence[Rollout],
    settings: UpdateSettings,
    wanted: Mapping[RolloutId, Sequence[int]] | None = None,
) -> Probe:
    """One forward pass over the answers, packed as an update packs them. `wanted` names positions with loss."""
    found = Probe()
    for row in packed_rows(policy, rollouts, settings):
        predicted = predict(policy, row)
        logprobs_N, _ = predicted.logprobs_and_entropy(row.targets_N, settings.temperature)
        for number, rollout in enumerate(row.rollouts):
            found.logprobs[rollout.id] = row.spread(number, logprobs_N)
            mine_n = (row.sequence_N == number).nonzero()[:, 0]
            places = [token for token, trained in enumerate(rollout.completion.loss_mask) if trained]
            for token in (wanted or {}).get(rollout.id, ()):
                place = places.index(token)
                logits_V = predicted.logits(mine_n[place : place + 1])[0]
                found.probs[rollout.id, token] = next_token_probabilities(logits_V, settings.temperature)
    return found


def next_token_probabilities(logits_V: Tensor, temperature: float) -> Tensor:
    """Softmax at the sampling temperature, in float32 or better."""
    precise = logits_V if logits_V.dtype == torch.float64 else logits_V.float()
    return torch.softmax(precise / temperature, dim=-1)
