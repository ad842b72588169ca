"""A step's numbers about its critic: how far its values are from what came, and how its own updates went."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from toishi.ops.variance import explained_variance
from toishi.types import Group, Update

CRITIC_CHECKSUM = "critic/weights_checksum"

CRITIC_METRICS: Mapping[str, tuple[str, str, str]] = {
    "critic/value_loss": (
        "reward²", "half the mean squared distance of values to returns, clipped if the row clips; mean over updates", "falls",
    ),
    "critic/explained_variance": (
        "share",
        "1 - Var(return - value) / Var(return) over the tokens trained on, values before the step; null: all returns equal",
        "0 or below after its warm-up: it only adds noise; change critic.optimizer.lr, raise critic.warmup_steps",
    ),
    "critic/value_clip_share": ("share", "tokens whose value was held, having moved by value_clip", "0 in a first update"),
    "critic/mean_value": ("reward", "mean value before the step, over the tokens trained on", "follows critic/mean_return"),
    "critic/mean_return": ("reward", "mean return over the tokens trained on", "with gamma 1 near the mean reward"),
    "critic/grad_norm": (
        "norm", "gradient norm of the critic's own weights (only its head where it shares the policy's), mean over updates", "",
    ),
    "critic/grad_norm_clipped": ("norm", "the same after clipping", ""),
    "critic/lr": ("1", "learning rate of the critic's own weights", ""),
    CRITIC_CHECKSUM: (
        "text", "checksum over every bit of the critic's own weights after the step", "`toishi replay` must find it again",
    ),
}  # fmt: skip
"""Name -> unit, meaning, what to look for. All are null where the row has no critic."""
_OF_UPDATES = {
    "critic/value_loss": "update/value_loss",
    "critic/value_clip_share": "update/value_clip_share",
    "critic/grad_norm": "update/critic_grad_norm",
    "critic/grad_norm_clipped": "update/critic_grad_norm_clipped",
    "critic/lr": "update/critic_lr",
}
"""Metric of a step -> scalar of its updates that it is the mean of."""


def critic_metrics(groups: Sequence[Group], updates: Sequence[Update]) -> dict[str, float | None]:
    """The numbers of `CRITIC_METRICS` of a step; null without a critic."""
    taught = {stream.rollout for update in updates for stream in update.streams}
    values: list[float] = []
    returns: list[float] = []
    for group in groups:
        for rollout in group.rollouts:
            if rollout.id in taught and rollout.values is not None and rollout.returns is not None:
                mask = rollout.completion.loss_mask
                values += [number for number, trained in zip(rollout.values, mask, strict=True) if trained]
                returns += [number for number, trained in zip(rollout.returns, mask, strict=True) if trained]
    means = {
        name: _mean(update.scalars[scalar] for update in updates if scalar in update.scalars)
        for name, scalar in _OF_UPDATES.items()
    }
    return dict.fromkeys(CRITIC_METRICS) | means | {
        "critic/explained_variance": explained_variance(values, returns) if values else None,
        "critic/mean_value": _mean(values),
        "critic/mean_return": _mean(returns),
    }  # fmt: skip


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return math.fsum(found) / len(found) if found else None
