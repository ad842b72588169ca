"""Which groups and which answers teach.

Decisions:
1. A filter sees rewards as they were judged, before reward map, length penalty and KL: "all right" stays all right
   although one answer is long. Only answers inside the effective mask are seen.
2. A dropped group is kept in the record with the reason in words, and all its advantages are 0.
3. A filter also says which answers belong to the data that the loss averages over: RAFT averages over kept answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from toishi.ops.advantages import tied

PerToken = tuple[float, ...]
Advantage = float | PerToken


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kept` is False for a dropped group, with the reason; `advantages` has one entry for each member."""

    advantages: tuple[Advantage, ...]
    kept: bool = True
    why: str = ""


def keep_all(advantages: Sequence[Advantage], rewards: Sequence[float | None]) -> Verdict:
    """No filter. `rewards` are the judged ones, None outside the effective mask."""
    return Verdict(tuple(advantages))


def drop_tied(advantages: Sequence[Advantage], rewards: Sequence[float | None]) -> Verdict:
    """DAPO's dynamic sampling: a group without differences is left out.

    >>> drop_tied([0.0, 0.0], [1.0, 1.0]).why
    'tied: all 2 answers that count got reward 1'
    """
    counting = [reward for reward in rewards if reward is not None]
    if len(counting) < 2:
        return _dropped(advantages, f"fewer than two answers count ({len(counting)} of {len(rewards)})")
    values = torch.tensor([counting], dtype=torch.float64)
    if tied(values, torch.ones_like(values, dtype=torch.bool)).item():
        return _dropped(advantages, f"tied: all {len(counting)} answers that count got reward {counting[0]:g}")
    return Verdict(tuple(advantages))


def drop_all_wrong(advantages: Sequence[Advantage], rewards: Sequence[float | None]) -> Verdict:
    """A group in which nothing was rewarded is left out.

    >>> drop_all_wrong([0.0, 0.0], [0.0, None]).why
    'no answer has a reward above 0'
    """
    if any(reward is not None and reward > 0 for reward in rewards):
        return Verdict(tuple(advantages))
    return _dropped(advantages, "no answer has a reward above 0")


def keep_best(advantages: Sequence[Advantage], rewards: Sequence[float | None]) -> Verdict:
    """RAFT (arXiv 2304.06767): the best answers get advantage 1, if their reward is above 0; the others 0.

    >>> keep_best([0.0, 0.0, 0.0], [1.0, 0.0, 1.0]).advantages
    (1.0, 0.0, 1.0)
    """
    best = max((reward for reward in rewards if reward is not None), default=0.0)
    if best <= 0:
        return _dropped(advantages, "no answer has a reward above 0")
    return Verdict(tuple(1.0 if reward == best else 0.0 for reward in rewards))


def keep_positive(advantages: Sequence[Advantage], rewards: Sequence[float | None]) -> Verdict:
    """Only answers (or tokens) better than their baseline teach.

    >>> keep_positive([0.5, -0.5, (1.0, -1.0)], [1.0, 0.0, 1.0]).advantages
    (0.5, 0.0, (1.0, 0.0))
    """
    return Verdict(
        tuple(
            tuple(max(token, 0.0) for token in advantage) if isinstance(advantage, tuple) else max(advantage, 0.0)
            for advantage in advantages
        )
    )


def _dropped(advantages: Sequence[Advantage], why: str) -> Verdict:
    return Verdict((0.0,) * len(advantages), kept=False, why=why)


FILTERS: Mapping[str, Callable[[Sequence[Advantage], Sequence[float | None]], Verdict]] = {
    "none": keep_all,
    "drop_tied": drop_tied,
    "drop_all_wrong": drop_all_wrong,
    "keep_best": keep_best,
    "keep_positive": keep_positive,
}
