"""What training keeps for a model by each method: bytes of a weight, and what one method saves over another.

Decisions:
1. The model at hand and the recipe's optimizer and precision, with nothing changed but the method; so the figures are this
   run's, and they come from the same sums as the estimate.
2. A teacher and a reward model are taken to be as large as the policy. A reward model in training has a head of one number in
   place of the vocabulary's, which is left aside.
3. Prompts, answers and what a forward pass keeps are the same with every method, or nearly, and stand in the estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config import Config
from toishi.memory.shape import ModelShape
from toishi.memory.tensors import Part, total, training_tensors

LORA_RANK = 16
_KL: Mapping[str, Any] = {"kl_coef": 0.05}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method by name: its row with some choices changed, and the models beside the policy."""

    name: str
    row: str
    choices: Mapping[str, Any] | None = None
    separate_critic: bool = False
    teacher: bool = False
    reward_model: bool = False
    lora: bool = False

    @property
    def algorithm(self) -> Algorithm:
        return Algorithm.model_validate(algorithm(self.row).model_dump() | dict(self.choices or {}))


METHODS = (
    Method(name="SFT", row="sft"),
    Method(name="reward model", row="reward_model"),
    Method(name="DPO", row="dpo"),
    Method(name="GRPO", row="grpo"),
    Method(name="GRPO with KL", row="grpo", choices={"kl": "k3", "kl_coef": 0.04}),
    Method(name="A2C, shared trunk", row="a2c"),
    Method(name="PPO with KL, shared trunk", row="ppo", choices=_KL),
    Method(name="PPO with KL, critic of its own", row="ppo", choices=_KL, separate_critic=True),
    Method(name="the same, and a reward model", row="ppo", choices=_KL, separate_critic=True, reward_model=True),
    Method(name="GKD, a teacher as large", row="gkd", teacher=True),
    Method(name="GRPO with LoRA", row="grpo", lora=True),
)
LEAST, MOST = "GRPO", "PPO with KL, critic of its own"
"""The two whose difference is told: comparing answers with one another, and with a critic's guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodMemory:
    """What is kept by a method.

    weights  of the policy: what `num_bytes` is divided by
    """

    method: str
    parts: tuple[Part, ...]
    weights: int

    @property
    def num_bytes(self) -> int:
        return total(self.parts)

    @property
    def per_weight(self) -> float:
        """Bytes of a weight of the policy."""
        return self.num_bytes / self.weights

    def as_record(self) -> dict[str, Any]:
        """In plain values."""
        parts = {part.name: part.num_bytes for part in self.parts}
        return {"method": self.method, "num_bytes": self.num_bytes, "per_weight": self.per_weight, "parts": parts}


def this_recipe(config: Config, shape: ModelShape) -> MethodMemory:
    """What the recipe itself keeps."""
    return MethodMemory(method="this recipe", parts=training_tensors(config, shape), weights=_base(config, shape).parameters)


def by_method(config: Config, shape: ModelShape) -> tuple[MethodMemory, ...]:
    """What each method of `METHODS` would keep for the recipe's model, by the recipe's optimizer and precision."""
    base = _base(config, shape)
    return tuple(_kept(method, config, base) for method in METHODS)


def saving(methods: tuple[MethodMemory, ...]) -> str:
    """What a comparison within the group saves over a critic of its own, in one sentence; both keep a policy.

    >>> def kept(method: str, num_bytes: int) -> MethodMemory:
    ...     return MethodMemory(method=method, parts=(Part("weights", num_bytes, ""),), weights=10**8)
    >>> saving((kept("GRPO", 1_600_000_000), kept("PPO with KL, critic of its own", 3_600_000_000)))
    'GRPO keeps 16.0 bytes a weight where PPO with KL, critic of its own keeps 36.0: 2.00 GB less (56%)'
    """
    known = {found.method: found for found in methods}
    least, most = known[LEAST], known[MOST]
    saved = most.num_bytes - least.num_bytes
    return (
        f"{LEAST} keeps {least.per_weight:.1f} bytes a weight where {MOST} keeps {most.per_weight:.1f}: "
        f"{saved / 1e9:.2f} GB less ({saved / most.num_bytes:.0%})"
    )


def _base(config: Config, shape: ModelShape) -> ModelShape:
    """The model with all of its own weights trained, and nothing beside it."""
    adapters = shape.trained if config.model.lora is not None or config.model.adapter is not None else 0
    own = shape.parameters - adapters
    return replace(shape, parameters=own, trained=own, teacher_bytes=0, reward_bytes=0)


def _kept(method: Method, config: Config, base: ModelShape) -> MethodMemory:
    as_large = base.compute_bytes * base.parameters
    shape = adapted(base) if method.lora else base
    shape = replace(shape, teacher_bytes=as_large * method.teacher, reward_bytes=as_large * method.reward_model)
    critic = config.critic.model_copy(update={"kind": "separate" if method.separate_critic else "shared"})
    changed = config.model_copy(update={"algorithm": method.algorithm, "critic": critic})
    return MethodMemory(method=method.name, parts=training_tensors(changed, shape), weights=base.parameters)


def adapted(base: ModelShape) -> ModelShape:
    """The model with adapters of rank 16 beside its linear layers; their size is guessed for a decoder of the usual shape."""
    adapters = LORA_RANK * base.layers * (4 * base.hidden + 3 * (base.hidden + base.widest))
    return replace(base, trained=adapters, parameters=base.parameters + adapters)
