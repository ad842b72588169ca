"""The seam between toishi and whatever judges an answer.

A reward sees one group: the prompt and its sampled siblings together, so that rankings and pairwise judges need no
special path. It returns, for each completion, one or more `Judgement`s. It never computes advantages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from toishi.types import Completion, Prompt, ScoreStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a reward says of one completion; `scoring` adds name and weight to make it a `Score`.

    value   a finite number, or None with status "abstained" or "failed"
    span    token range of the completion that it is about; None = the whole completion
    readable  whether an answer in the asked-for form could be read; None where the reward does not look for one
    """

    value: float | None
    reason: str = ""
    status: ScoreStatus = "ok"
    span: tuple[int, int] | None = None
    readable: bool | None = None


@runtime_checkable
class Reward(Protocol):
    """Scores the completions of one prompt.

    name      unique in a run; metrics are called rewards/<name>/mean
    columns   data columns it must have; missing ones are found before the model loads
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        """One non-empty tuple of judgements for each completion, in order."""
        ...
