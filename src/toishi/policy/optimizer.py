"""The optimizer over a policy's or a critic's masters, and its learning rate at each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from toishi.config import OptimizerConfig


class Trained(Protocol):
    """What has weights to step on."""

    @property
    def masters(self) -> Mapping[str, Tensor]: ...

    @property
    def device(self) -> torch.device: ...


def make_optimizer(trained: Trained, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer over the masters, by the configuration.

    On a CPU and on CUDA a step is one kernel over each weight, without temporaries; the same gradients give the same bits.
    """
    fused = trained.device.type in ("cpu", "cuda")
    weights = list(trained.masters.values())
    if config.name == "sgd":
        return torch.optim.SGD(weights, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=fused)
    return torch.optim.AdamW(
        weights, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay, fused=fused
    )


def learning_rate(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """Learning rate of step 1, 2, ...: linear warm-up, then constant, linear or cosine decay to 0 after the last step.

    >>> config = OptimizerConfig(lr=1.0, warmup_steps=2, decay="linear")
    >>> [learning_rate(config, step, 6) for step in (1, 2, 3, 6)]
    [0.5, 1.0, 1.0, 0.25]
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    left = 1 - (step - 1 - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    left = min(1.0, max(0.0, left))
    if config.decay == "linear":
        return config.lr * left
    if config.decay == "cosine":
        return config.lr * 0.5 * (1 - float(torch.cos(torch.tensor(torch.pi * left, dtype=torch.float64))))
    return config.lr
