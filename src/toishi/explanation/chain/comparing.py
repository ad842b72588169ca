"""How a check is made: numbers are held against their recomputation, and the worst comparison is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from toishi.explanation.chain.model import Check, LinkName

SUMS = 1e-9
"""Float64 sums done again: rewards, baselines, advantages."""
WEIGHTS = 1e-6
"""Token weights, relative to the largest term of the update: they are float32 numbers."""
NORMS = 1e-5
"""Norms and cosines taken together again, relative: each was rounded when it was taken."""
WHOLE_NORM = 1e-3
"""The gradient norm that cutting used against the trace's: one is summed in float32, the other block by block."""
NATS = {"float64": 1e-9, "float32": 2e-3}
NATS_OTHERWISE = 0.5
"""Log-probs by two passes over differently packed rows, by compute precision; bfloat16 carries three digits."""


@dataclass(slots=True)
class Comparing:
    """Collects comparisons of one link."""

    name: LinkName
    compared: int = 0
    _worst: tuple[float, str, float | None, float | None, float | None, float] = field(
        default=(-1.0, "", None, None, None, SUMS)
    )

    def number(self, where: str, recorded: float | None, recomputed: float | None, bound: float = SUMS) -> None:
        """Holds one number against another; `bound` is absolute."""
        self.compared += 1
        if recorded is None or recomputed is None:
            difference, excess = None, 0.0 if recorded is recomputed else math.inf
        elif recorded == recomputed or (math.isnan(recorded) and math.isnan(recomputed)):
            difference, excess = 0.0, 0.0
        else:
            difference = abs(recorded - recomputed)
            excess = difference / bound if bound > 0 else math.inf
            excess = math.inf if math.isnan(excess) else excess
        if excess > self._worst[0]:
            self._worst = (excess, where, recorded, recomputed, difference, bound)

    def numbers(self, where: str, recorded: Sequence[float], recomputed: Sequence[float], bound: float = SUMS) -> None:
        """Holds lists against one another, one number for each token."""
        self.number(f"{where}, length", len(recorded), len(recomputed), 0.0)
        for place, (one, other) in enumerate(zip(recorded, recomputed, strict=False)):
            self.number(f"{where}, token {place}", one, other, bound)

    def relative(self, where: str, recorded: float | None, recomputed: float | None, bound: float = NORMS) -> None:
        """Holds one number against another, within a share of the recomputed one."""
        self.number(where, recorded, recomputed, bound * abs(recomputed) if recomputed is not None else bound)

    def fact(self, where: str, holds: bool) -> None:
        """Something that is so or not: 1 was expected."""
        self.number(where, float(holds), 1.0, 0.0)

    def check(self, how: str) -> Check:
        """The check that comes of it."""
        excess, where, recorded, recomputed, difference, bound = self._worst
        return Check(
            name=self.name,
            how=how,
            where=where,
            recorded=recorded,
            recomputed=recomputed,
            difference=difference,
            bound=bound,
            compared=self.compared,
            ok=excess <= 1.0,
        )
