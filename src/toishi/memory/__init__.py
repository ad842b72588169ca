"""How much memory a run needs at its highest, how large a micro-batch fits, and what to change when none does."""

from toishi.memory.estimate import MemoryEstimate, Part, Phase, estimate_memory
from toishi.memory.failing import telling_what_to_change
from toishi.memory.free import free_memory, held_memory, reachable_memory
from toishi.memory.planning import MemoryPlan, Remedy, fixed_budget, plan_memory
from toishi.memory.shape import ModelShape

__all__ = [
    "MemoryEstimate",
    "MemoryPlan",
    "ModelShape",
    "Part",
    "Phase",
    "Remedy",
    "estimate_memory",
    "fixed_budget",
    "free_memory",
    "held_memory",
    "plan_memory",
    "reachable_memory",
    "telling_what_to_change",
]
