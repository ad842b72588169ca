"""Token weights against autograd, through one undivided graph from the model to the loss.

The update differentiates in two hops, and records the first. Here the loss is formed on the log-probs that still hang on the
model, and d loss / d log-prob is taken from that graph.
"""

from __future__ import annotations

import torch

from toishi.algorithms.apply import token_objective
from toishi.observing import SeenRow
from toishi.update import UpdateSettings


@torch.enable_grad()
def autograd_weights(seen: SeenRow, settings: UpdateSettings) -> list[float]:
    """d loss / d log-prob of each token with loss of the row, from the undivided graph. The graph stays usable."""
    row, dtype = seen.row, seen.logprobs_N.dtype
    objective = token_objective(
        settings.algorithm,
        logprobs_N=seen.logprobs_N,
        entropy_N=seen.entropy_N,
        old_logprobs_N=seen.old_logprobs_N,
        advantages_N=row.stream((rollout.advantage_per_token for rollout in row.rollouts), dtype),
        sequence_N=row.sequence_N,
        lengths_B=row.lengths_B,
        num_tokens=seen.counts.num_tokens,
        num_sequences=seen.counts.num_sequences,
        max_length=settings.max_new_tokens,
        ref_logprobs_N=seen.ref_logprobs_N,
        sampled_logprobs_N=row.sampled_logprobs(dtype),
        divergence_N=seen.divergence_N,
    )
    (weights_N,) = torch.autograd.grad(
        objective.loss, [seen.logprobs_N], retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return [float(value) for value in weights_N.tolist()]
