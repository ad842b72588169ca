"""The gradient of any row by formulas, without autograd: what a person can follow with a pencil.

    d loss / d logit_v = Σ_n weight_n · (1[v is token n] - p_v)   (+ the entropy term)

Decisions:
1. Nothing here is differentiable and nothing calls the objective: the two roads to the gradient share no code but the
   ratios, so that their agreement says something.
2. A token's weight (d loss / d its log-prob) is given in its factors: advantage, ratio, held or free, share, KL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.algorithms.rows import Algorithm
from toishi.explanation.toy.model import Tokens

KL_SLOPES: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k2": lambda logprobs_N, ref_N, ratio_N: logprobs_N - ref_N,
    "k3": lambda logprobs_N, ref_N, ratio_N: 1 - (ref_N - logprobs_N).exp(),
    "ratio_k3": lambda logprobs_N, ref_N, ratio_N: ratio_N * (logprobs_N - ref_N),
}
"""d estimate / d logprob of each KL estimator that may stand in a loss."""


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """d loss / d log-prob of each token: policy_N + kl_N."""

    policy_N: Tensor
    kl_N: Tensor

    @property
    def total_N(self) -> Tensor:
        return self.policy_N + self.kl_N


def token_weights(
    row: Algorithm,
    tokens: Tokens,
    *,
    advantages_N: Tensor,
    shares_N: Tensor,
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    ref_logprobs_N: Tensor,
) -> TokenWeights:
    """Each token's d loss / d log-prob.

    shares_N  the row's reduction: how much each token counts in the loss
    """
    gap_N = logprobs_N - old_logprobs_N
    kl_N = torch.zeros_like(logprobs_N)
    if row.kl in KL_SLOPES:
        kl_N = row.kl_coef * shares_N * KL_SLOPES[row.kl](logprobs_N, ref_logprobs_N, gap_N.exp())
    return TokenWeights(_policy(row, tokens, -advantages_N * shares_N, gap_N), kl_N)


def token_gradients(tokens: Tokens, weights_N: Tensor, logits_PV: Tensor) -> Tensor:
    """What each token adds to d loss / d logits: weight · (onehot - p) in the row that predicted it, [N, 2, V]."""
    probs_PV = logits_PV.softmax(-1)
    onehot_NV = torch.nn.functional.one_hot(tokens.target_N, logits_PV.shape[1])
    found_NPV = logits_PV.new_zeros(len(weights_N), *logits_PV.shape)
    found_NPV[torch.arange(len(weights_N)), tokens.position_N] = weights_N[:, None] * (onehot_NV - probs_PV[tokens.position_N])
    return found_NPV


def entropy_gradient(row: Algorithm, tokens: Tokens, logits_PV: Tensor) -> Tensor:
    """The entropy term's part, [2, V]: -coef / N · Σ_n d H / d logits, with d H / d logit_v = -p_v (log p_v + H)."""
    logs_PV = logits_PV.log_softmax(-1)
    probs_PV = logs_PV.exp()
    entropy_P1 = -(probs_PV * logs_PV).sum(-1, keepdim=True)
    counts_P1 = torch.bincount(tokens.position_N, minlength=len(probs_PV)).to(logits_PV).unsqueeze(1)
    return row.entropy_coef * counts_P1 / len(tokens.target_N) * probs_PV * (logs_PV + entropy_P1)


def _policy(row: Algorithm, tokens: Tokens, pull_N: Tensor, gap_N: Tensor) -> Tensor:
    """`pull_N` is -advantage · share: the weight at ratio 1."""
    if not row.policy_term:
        return torch.zeros_like(pull_N)
    if row.surrogate == "score_function":
        return pull_N
    ratio_N = _ratio(row, tokens, gap_N)
    if row.surrogate == "stop_gradient":
        return pull_N * ratio_N.clamp(1 - row.clip_low, 1 + row.clip_high)
    free_N = pull_N * ratio_N * ~_held(row, pull_N, ratio_N)
    if row.ratio_level == "token":
        return free_N
    sums_B = torch.zeros(len(tokens.lengths_B), dtype=pull_N.dtype).index_add(0, tokens.sequence_N, free_N)
    return (sums_B / tokens.lengths_B if row.ratio_level == "sequence_mean" else sums_B)[tokens.sequence_N]


def _ratio(row: Algorithm, tokens: Tokens, gap_N: Tensor) -> Tensor:
    if row.ratio_level == "token":
        return gap_N.exp()
    sums_B = torch.zeros(len(tokens.lengths_B), dtype=gap_N.dtype).index_add(0, tokens.sequence_N, gap_N)
    return (sums_B / tokens.lengths_B if row.ratio_level == "sequence_mean" else sums_B).exp()[tokens.sequence_N]


def _held(row: Algorithm, pull_N: Tensor, ratio_N: Tensor) -> Tensor:
    """Tokens that have moved past the bound in the direction that their advantage asks for."""
    high_N = (pull_N < 0) & (ratio_N > 1 + row.clip_high)
    low_N = (pull_N > 0) & (ratio_N < 1 - row.clip_low)
    dual_N = (pull_N > 0) & (ratio_N > row.dual_clip) if row.surrogate == "dual_clip" else torch.zeros_like(high_N)
    return high_N | low_N | dual_N
