"""An allocation that fails all the same, said with what to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from toishi.errors import OutOfMemoryError
from toishi.memory.planning import MemoryPlan, remedies_in_words

_SAYINGS = ("not enough memory", "can't allocate memory", "out of memory", "alloc_cpu")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's own, CUDA's, or torch's on a CPU, which only its text tells.

    >>> is_out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"))
    True
    >>> is_out_of_memory(RuntimeError("shapes do not match"))
    False
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error).lower() for saying in _SAYINGS)


@contextmanager
def telling_what_to_change(step: int, plan: MemoryPlan | None) -> Iterator[None]:
    """Inside, an allocation that fails becomes an OutOfMemoryError with the plan's remedies.

    step  the step that is being done
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        remedies = "" if plan is None else f". A new run may need less. {remedies_in_words(plan.remedies)}"
        first = str(error).strip().partition("\n")[0]
        raise OutOfMemoryError(
            f"memory ran out in step {step}, which is not on record ({first}). Where more is free, `toishi resume` goes on "
            f"from the last checkpoint{remedies}"
        ) from error
