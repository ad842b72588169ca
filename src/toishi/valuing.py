"""The critic's part of an update: value losses become a gradient by each value, and the critic's own weights are stepped.

Decisions:
1. Like the policy's, the loss is differentiated in two hops: d loss / d value of every token is recorded, and then goes on into
   the graph. With a shared trunk that is the graph of the policy's own pass, which is gone through once for both.
2. The mean is over the tokens of the whole update, so any split into rows gives the same gradient.
3. Norms of both models are taken before either is stepped: a gradient that is not finite changes neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from toishi.config import CriticConfig
from toishi.errors import NumericsError
from toishi.ops.values import value_loss
from toishi.packing import PackedRow
from toishi.passes import UpdateSettings
from toishi.policy.head import Predictions
from toishi.policy.optimizer import learning_rate

if TYPE_CHECKING:
    from toishi.policy.critic import Critic


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuedRow:
    """A row's values, which hang on the trunk's graph, and what they had to do with the loss.

    weights_N  d (value_coef · value loss) / d value
    loss, held  the row's share of the mean value loss, and of the share of tokens that were held
    """

    values_N: Tensor
    weights_N: Tensor
    loss: float
    held: float


def value_row(critic: Critic, predicted: Predictions, row: PackedRow, settings: UpdateSettings, num_tokens: int) -> ValuedRow:
    """The critic on a pass through its trunk. Raises NumericsError when the loss is not finite."""
    values_N = critic.values(predicted)
    leaf_N = values_N.detach().requires_grad_()
    old_N = row.stream((one.values or () for one in row.rollouts), leaf_N.dtype)
    returns_N = row.stream((one.returns or () for one in row.rollouts), leaf_N.dtype)
    algorithm = settings.algorithm
    with torch.enable_grad():
        loss_N, clip_N = value_loss(leaf_N, old_N, returns_N, algorithm.value_clip)
        loss = loss_N.sum() / num_tokens
    if not math.isfinite(float(loss.detach())):
        named = ", ".join(str(one.id) for one in row.rollouts)
        raise NumericsError(
            f"the value loss is {float(loss.detach())} in the rows of rollouts (step/group/member) {named}; no weight was "
            "changed by this update. Check the rewards for huge values, or lower critic.optimizer.lr"
        )
    (weights_N,) = torch.autograd.grad(algorithm.value_coef * loss, [leaf_N])
    return ValuedRow(
        values_N=values_N,
        weights_N=weights_N,
        loss=float(loss.detach()),
        held=float((clip_N != 0).sum()) / num_tokens,
    )


def prepare_step(critic: Critic, config: CriticConfig, step: int, total_steps: int) -> Mapping[str, float]:
    """Learning rate set and gradient clipped, so that only `critic.step()` is left to do. Raises NumericsError."""
    lr, limit = learning_rate(config.optimizer, step, total_steps), config.optimizer.max_grad_norm
    for parameter_group in critic.optimizer.param_groups:
        parameter_group["lr"] = lr
    norm = critic.grad_norm()
    factor = 1.0 if limit is None or norm <= limit else limit / norm
    if factor < 1.0:
        for master in critic.masters.values():
            if master.grad is not None:
                master.grad.mul_(factor)
    return {"update/critic_grad_norm": norm, "update/critic_grad_norm_clipped": norm * factor, "update/critic_lr": lr}
