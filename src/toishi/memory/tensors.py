"""The weights that a run keeps, and what training keeps for each: gradients, optimizer, frozen models, a critic.

Decisions:
1. Counted are numbers that there is one of for a weight: what grows with the model alone, not with prompts, answers or texts.
   Left out are an optimizer's step counters (one number a matrix) and a model's constants (tables of positions).
2. What trains in 16 bits keeps fp32 masters, and gradients and optimizer in the masters' precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toishi.config import Config, OptimizerConfig
from toishi.memory.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the estimate."""

    name: str
    num_bytes: int
    formula: str


def total(parts: Sequence[Part]) -> int:
    """Bytes of all parts together."""
    return sum(part.num_bytes for part in parts)


def training_tensors(config: Config, shape: ModelShape) -> tuple[Part, ...]:
    """Weights, gradients, optimizer, frozen models and critic, those that there are.

    For N trained fp32 weights under AdamW: 4 N + 4 N + 8 N = 16 N bytes, a reference model 4 N more, a critic of its own 16 N.
    """
    trained, frozen, size = shape.trained, shape.parameters - shape.trained, shape.compute_bytes
    master, states = max(4, size), optimizer_states(config.optimizer)
    masters = f"{master} bytes a trained weight (masters)" + (f", {size} a frozen one" if frozen else "")
    parts = [
        Part("weights", master * trained + size * frozen, masters),
        Part("gradients", master * trained, f"{master} bytes a trained weight, kept between updates"),
        Part("compute copy", size * trained if size < 4 else 0, f"{size} bytes a trained weight"),
        Part("optimizer", master * states * trained, f"{master * states} bytes a trained weight ({config.optimizer.name})"),
        Part("teacher", shape.teacher_bytes, "its weights, frozen"),
        Part("reward models", shape.reward_bytes, "their weights, frozen"),
    ]
    if config.algorithm.needs_step_0:
        parts.append(Part("reference model", size * trained, f"{size} bytes a trained weight (step 0)"))
    if config.algorithm.needs_critic:
        parts.append(_critic(config, shape))
    return tuple(part for part in parts if part.num_bytes)


def optimizer_states(optimizer: OptimizerConfig) -> int:
    """Numbers that an optimizer keeps for a weight."""
    return 2 if optimizer.name == "adamw" else int(optimizer.momentum > 0)


def _critic(config: Config, shape: ModelShape) -> Part:
    """Weights, gradients and optimizer of the critic's own: a head, and with it a second model where it shares none."""
    master, size, head = max(4, shape.compute_bytes), shape.compute_bytes, shape.hidden + 1
    each = master * (2 + optimizer_states(config.critic.optimizer))
    if config.critic.kind == "shared":
        return Part("critic", each * head, f"a head of {head:,} numbers, {each} bytes each (weights, gradients, optimizer)")
    whole = each + (size if size < 4 else 0)
    trained = shape.trained - (shape.own_head if shape.trained == shape.parameters else 0)  # its output layer learns nothing
    frozen = shape.parameters - trained
    words = f"{whole} bytes a trained weight of a second model (weights, gradients, optimizer)"
    words += f", {size} a frozen one" if frozen else ""
    return Part("critic", whole * trained + each * head + size * frozen, words)
