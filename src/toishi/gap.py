"""The gap between sampler and trainer: whether both mean the same model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from toishi.engines.base import Sampling
from toishi.ops.sampling import filtered
from toishi.policy.policy import Policy
from toishi.types import Group
from toishi.update import UpdateSettings, packed_rows, predict

_GAP_POSITIONS = 64
"""Positions whose whole distribution exists at a time while the gap is measured."""


@torch.no_grad()
def measure_gap(
    policy: Policy, groups: Sequence[Group], settings: UpdateSettings, sampling: Sampling
) -> tuple[float, float] | None:
    """(mean, max) |log-prob as sampled - log-prob by the trainer| over the first group, before the weights move.

    None where no sampler drew the answers, or none of their tokens has a log-prob.

    The trainer's distribution is cut by top-p, top-k and min-p as the sampler's was, so that like is compared with like. A
    token on the edge of the cut, which rounding puts outside, has no log-prob and is left out.
    """
    if not all(rollout.completion.sampled_logprobs for rollout in groups[0].rollouts):
        return None
    gaps: list[float] = []
    for row in packed_rows(policy, groups[0].rollouts, settings):
        predicted, places_N = predict(policy, row), torch.arange(len(row.targets_N), device=policy.device)
        sampled_N = row.stream((r.completion.sampled_logprobs for r in row.rollouts), torch.float64)
        for places_n in torch.split(places_N, _GAP_POSITIONS):
            logits_nV = predicted.logits(places_n)
            trained_Cn = _cut_logprobs(logits_nV, row.targets_N[places_n], settings.temperature, sampling)
            gap_n = (sampled_N[places_n] - trained_Cn).abs().amin(0)
            gaps += gap_n[torch.isfinite(gap_n)].tolist()
    return (sum(gaps) / len(gaps), max(gaps)) if gaps else None


def _cut_logprobs(logits_nV: Tensor, targets_n: Tensor, temperature: float, sampling: Sampling) -> Tensor:
    """(3, n) log-probs under the cut as it is, a little wider and a little narrower: a token that lies on the edge of the cut
    to within rounding is on one side for the sampler and perhaps on the other here, and changes the share of all others."""
    full_nV = torch.log_softmax(logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32)) / temperature, -1)
    rounding = 1e-5 if logits_nV.dtype.itemsize >= 4 else 0.03
    cuts = [
        filtered(full_nV, top_p=min(1.0, sampling.top_p * factor), top_k=sampling.top_k, min_p=sampling.min_p / factor)
        for factor in (1.0, 1 + rounding, 1 - rounding)
    ]
    return torch.stack([cut_nV.gather(1, targets_n[:, None])[:, 0] for cut_nV in cuts]).double()
