"""The seam between toishi and the data it trains on.

A task is an endless, indexable stream of training prompts and a fixed list of held-out prompts. Prompt number `index` is a
function of (task seed, index) alone: no shared random stream, so resume needs only the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from toishi.types import Prompt


@runtime_checkable
class Task(Protocol):
    """A source of prompts.

    name         as in the recipe
    columns      names of the columns each prompt carries
    gold_column  the column with the right answer, or None
    num_train    distinct training prompts, or None when they do not run out
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> frozenset[str]: ...

    @property
    def gold_column(self) -> str | None: ...

    @property
    def num_train(self) -> int | None: ...

    def train_prompt(self, index: int) -> Prompt:
        """Training prompt number `index` >= 0. A finite task starts over after `num_train`, in a new order each time."""
        ...

    def heldout_prompts(self) -> Sequence[Prompt]:
        """Held-out prompts, disjoint from every training prompt. May be empty."""
        ...
