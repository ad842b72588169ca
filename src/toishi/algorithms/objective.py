"""The loss of one micro-batch, from the choices of a row.

Decisions:
1. Everything is a weighted sum over tokens, with denominators of the whole optimizer update: micro-batch losses add up.
2. The KL term is reduced like the policy term (as TRL does); the entropy term is always a mean over tokens.
3. `ratio_k3` uses the token's own ratio at every ratio level: that is the form whose value and gradient are exact.
4. An off-policy correction multiplies the policy term alone.
5. The divergence from a teacher is reduced like the policy term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.algorithms.rows import Algorithm
from toishi.ops import kl, offpolicy
from toishi.ops.reduce import token_weights
from toishi.ops.surrogates import SURROGATES, importance_ratio

OFF_POLICY: Mapping[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "truncated_importance": offpolicy.truncated_importance,
    "mask": offpolicy.mask,
}
LOSS_KL: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k2": lambda logprobs_N, ref_N, ratio_N: kl.k2(logprobs_N, ref_N),
    "k3": lambda logprobs_N, ref_N, ratio_N: kl.k3(logprobs_N, ref_N),
    "ratio_k3": kl.ratio_k3,
}
"""KL estimators that may stand in a loss; k1 may not, its gradient is 0 in expectation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The loss and what each token had to do with it. All but `loss` are detached.

    loss           scalar, differentiable in the log-probs, the entropy and the divergence it was made from
    policy_loss_N  surrogate of each token, off-policy correction included, before `weights_N`
    ratio_N        importance ratio at the row's level
    clip_N         int8 codes: 0 free, 1 held low, 2 held high, 3 held by the dual clip
    kl_N           the row's estimate of KL(policy ‖ reference); k1 for `k1_in_reward`; None without reference log-probs
    weights_N      share of each token: loss = Σ weights_N · (policy_loss_N + kl_coef · kl_N + divergence_coef · divergence_N)
                   - entropy_coef · mean entropy
    correction_N   off-policy weight of each token; None without a correction
    """

    loss: Tensor
    policy_loss_N: Tensor
    ratio_N: Tensor
    clip_N: Tensor
    kl_N: Tensor | None
    weights_N: Tensor
    correction_N: Tensor | None


def token_objective(
    row: Algorithm,
    *,
    logprobs_N: Tensor,
    entropy_N: Tensor,
    old_logprobs_N: Tensor,
    advantages_N: Tensor,
    sequence_N: Tensor,
    lengths_B: Tensor,
    num_tokens: int,
    num_sequences: int,
    max_length: int,
    ref_logprobs_N: Tensor | None = None,
    sampled_logprobs_N: Tensor | None = None,
    divergence_N: Tensor | None = None,
) -> Objective:
    """Policy term + kl_coef · KL + divergence_coef · divergence from the teacher - entropy_coef · mean token entropy.

    [N] tensors hold the tokens with loss of the sequences at hand, whole sequences only; sequence_N indexes lengths_B.
    num_tokens, num_sequences  of the whole optimizer update (see `counted` in `apply`); max_length: the token limit
    ref_logprobs_N      needed when the row has a KL term in the loss
    sampled_logprobs_N  needed when the row corrects for off-policy sampling
    divergence_N        of the teacher's and the policy's next-token distributions, needed when the row has such a term
    Raises ValueError when one that is needed is missing.

    One answer of two tokens, first update (ratio 1), GRPO: the loss is minus the advantage, each token pulls with half of it.

    >>> from toishi.algorithms.rows import algorithm
    >>> logprobs = torch.tensor([-1.0, -0.5], requires_grad=True)
    >>> objective = token_objective(algorithm("grpo"), logprobs_N=logprobs, entropy_N=torch.zeros(2),
    ...     old_logprobs_N=logprobs.detach(), advantages_N=torch.full((2,), 1.5), sequence_N=torch.zeros(2, dtype=torch.long),
    ...     lengths_B=torch.tensor([2]), num_tokens=2, num_sequences=1, max_length=8)
    >>> objective.loss.backward()
    >>> objective.loss.item(), logprobs.grad.tolist()
    (-1.5, [-0.75, -0.75])
    """
    weights_N = token_weights(
        sequence_N,
        lengths_B,
        row.reduction,
        num_tokens=num_tokens,
        num_sequences=num_sequences,
        max_length=max_length,
        dtype=logprobs_N.dtype,
    )
    ratio_N = importance_ratio(logprobs_N, old_logprobs_N, sequence_N, len(lengths_B), row.ratio_level)
    correction_N = _correction(row, old_logprobs_N, sampled_logprobs_N)
    policy_loss_N, clip_N = _policy_term(row, logprobs_N, ratio_N, advantages_N.to(logprobs_N.dtype), correction_N)
    token_ratio_N = importance_ratio(logprobs_N, old_logprobs_N, sequence_N, len(lengths_B), "token")
    kl_N = _kl(row, logprobs_N, ref_logprobs_N, token_ratio_N)
    loss = (weights_N * policy_loss_N).sum()
    if row.kl in LOSS_KL and row.needs_reference and kl_N is not None:
        loss = loss + row.kl_coef * (weights_N * kl_N).sum()
    if row.divergence_coef > 0:
        if divergence_N is None:
            raise ValueError(f"divergence_coef={row.divergence_coef} needs divergence_N (a teacher), got None")
        loss = loss + row.divergence_coef * (weights_N * divergence_N).sum()
    if row.entropy_coef != 0:
        loss = loss - row.entropy_coef * entropy_N.sum() / num_tokens
    return Objective(
        loss=loss,
        policy_loss_N=policy_loss_N.detach(),
        ratio_N=ratio_N.detach(),
        clip_N=clip_N,
        kl_N=None if kl_N is None else kl_N.detach(),
        weights_N=weights_N,
        correction_N=correction_N,
    )


def _policy_term(
    row: Algorithm, logprobs_N: Tensor, ratio_N: Tensor, advantages_N: Tensor, correction_N: Tensor | None
) -> tuple[Tensor, Tensor]:
    if not row.policy_term:
        return torch.zeros_like(logprobs_N), torch.zeros_like(logprobs_N, dtype=torch.int8)
    surrogate = SURROGATES[row.surrogate]
    loss_N, clip_N = surrogate(logprobs_N, ratio_N, advantages_N, row.clip_low, row.clip_high, row.dual_clip)
    return (loss_N if correction_N is None else loss_N * correction_N), clip_N


def _correction(row: Algorithm, old_logprobs_N: Tensor, sampled_logprobs_N: Tensor | None) -> Tensor | None:
    if row.off_policy == "none":
        return None
    if sampled_logprobs_N is None:
        raise ValueError(f"off_policy '{row.off_policy}' needs sampled_logprobs_N, the log-probs as the engine saw them")
    return OFF_POLICY[row.off_policy](old_logprobs_N, sampled_logprobs_N, row.off_policy_cap)


def _kl(row: Algorithm, logprobs_N: Tensor, ref_logprobs_N: Tensor | None, token_ratio_N: Tensor) -> Tensor | None:
    if ref_logprobs_N is None:
        if row.needs_reference and row.kl in LOSS_KL:
            raise ValueError(f"kl '{row.kl}' with kl_coef={row.kl_coef} needs ref_logprobs_N (reference model), got None")
        return None
    if row.kl not in LOSS_KL:
        return kl.k1(logprobs_N, ref_logprobs_N)
    return LOSS_KL[row.kl](logprobs_N, ref_logprobs_N, token_ratio_N)
