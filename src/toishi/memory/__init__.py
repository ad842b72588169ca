"""How much memory a run needs at its highest, how large a micro-batch fits, and what to change when none does."""

from toishi.memory.estimate import MemoryEstimate, Phase, estimate_memory
from toishi.memory.failing import telling_what_to_change
from toishi.memory.free import free_memory, held_memory, reachable_memory
from toishi.memory.methods import METHODS, Method, MethodMemory, by_method, saving, this_recipe
from toishi.memory.planning import MemoryPlan, Remedy, fixed_budget, plan_memory
from toishi.memory.shape import ModelShape
from toishi.memory.tensors import Part, training_tensors

__all__ = [
    "METHODS",
    "MemoryEstimate",
    "MemoryPlan",
    "Method",
    "MethodMemory",
    "ModelShape",
    "Part",
    "Phase",
    "Remedy",
    "by_method",
    "estimate_memory",
    "fixed_budget",
    "free_memory",
    "held_memory",
    "plan_memory",
    "reachable_memory",
    "saving",
    "telling_what_to_change",
    "this_recipe",
    "training_tensors",
]
