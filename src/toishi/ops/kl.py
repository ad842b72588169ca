"""Estimators of KL(policy ‖ reference) from the log-probs of sampled tokens (Schulman, joschu.net/blog/kl-approx).

With d = logprob_ref - logprob and tokens drawn from the policy (∇ is the expected gradient when the estimator is a
loss term; `ratio` is policy / sampling policy with its gradient kept):

| name     | value of one token      | unbiased for KL(π‖ref)      | expected gradient as a loss term        |
|----------|-------------------------|-----------------------------|------------------------------------------|
| k1       | -d                      | yes                         | 0: use it inside the reward, never here  |
| k2       | d² / 2                  | no (close for small d)      | ∇ KL(π‖ref), exactly                     |
| k3       | e^d - d - 1  (>= 0)     | yes                         | ∇ KL(ref‖π): the *other* direction       |
| ratio_k3 | ratio · (e^d - d - 1)   | yes, off-policy tokens too  | ∇ KL(π‖ref), exactly                     |

Decision: every function returns one number per token and keeps the gradient; reducing them is the caller's business.
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(logprobs_N: Tensor, ref_logprobs_N: Tensor) -> Tensor:
    """`logprob - logprob_ref`, [N]. Unbiased, may be negative, no gradient in expectation.

    >>> k1(torch.tensor([-1.0]), torch.tensor([-1.5])).tolist()
    [0.5]
    """
    return logprobs_N - ref_logprobs_N


def k2(logprobs_N: Tensor, ref_logprobs_N: Tensor) -> Tensor:
    """`(logprob_ref - logprob)² / 2`, [N]. Biased value, exact gradient of KL(policy ‖ reference).

    >>> k2(torch.tensor([-1.0]), torch.tensor([-1.5])).tolist()
    [0.125]
    """
    return (ref_logprobs_N - logprobs_N).square() / 2


def k3(logprobs_N: Tensor, ref_logprobs_N: Tensor) -> Tensor:
    """`e^d - d - 1` with d = logprob_ref - logprob, [N]. Never negative; its gradient is that of KL(reference ‖ policy).

    >>> round(k3(torch.tensor([-1.0]), torch.tensor([-1.5])).item(), 6)
    0.106531
    """
    log_ratio_N = ref_logprobs_N - logprobs_N
    return torch.expm1(log_ratio_N) - log_ratio_N


def ratio_k3(logprobs_N: Tensor, ref_logprobs_N: Tensor, ratio_N: Tensor) -> Tensor:
    """k3 weighted by the importance ratio, [N] (DeepSeek-V3.2, arXiv 2512.02556). Exact in value and gradient.

    `ratio_N` is `exp(logprob - logprob_old)` *with* its gradient; a detached ratio gives k3's wrong direction again.

    >>> round(ratio_k3(torch.tensor([-1.0]), torch.tensor([-1.5]), torch.tensor([2.0])).item(), 6)
    0.213061
    """
    return ratio_N * k3(logprobs_N, ref_logprobs_N)
