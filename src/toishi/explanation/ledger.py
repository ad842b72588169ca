"""The audit's book: what was compared, what did not come out, and how near is near enough.

Decisions:
1. Tolerances are stated here and printed with the report: rewards and advantages are float64 sums done again (1e-9);
   token weights are done again in the precision they were recorded in (1e-6 relative, against the update's largest).
2. A list with several wrong entries is one finding that names the first and counts the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|got - expected| <= absolute + relative · |expected|`."""

    relative: float
    absolute: float

    def allows(self, got: Any, expected: Any) -> bool:
        """
        >>> Tolerance(1e-9, 1e-9).allows(1.0 + 1e-10, 1.0), Tolerance(1e-9, 1e-9).allows(None, 0.0)
        (True, False)
        """
        if got is None or expected is None:
            return got is expected
        if math.isnan(got) and math.isnan(expected):
            return True
        return bool(got == expected or abs(got - expected) <= self.absolute + self.relative * abs(expected))


EXACT_SUMS = Tolerance(relative=1e-9, absolute=1e-9)
"""For rewards, baselines and advantages."""


def weight_tolerance(expected: Sequence[float]) -> Tolerance:
    """For token weights and what leads to them: rounding of the largest number of the update is allowed everywhere in it."""
    largest = max((abs(value) for value in expected if math.isfinite(value)), default=0.0)
    return Tolerance(relative=1e-6, absolute=1e-7 * largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be: where, what, got, expected."""

    file: str
    row: str
    what: str
    got: str
    expected: str


@dataclass(slots=True)
class Ledger:
    """Collects findings while checks run. `compared` counts the numbers that were held against another."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0

    def found(self, file: str, row: str, what: str, got: object, expected: object) -> None:
        self.findings.append(Finding(file=file, row=row, what=what, got=shown(got), expected=shown(expected)))

    def equal(self, file: str, row: str, what: str, got: object, expected: object) -> None:
        self.compared += 1
        if got != expected:
            self.found(file, row, what, got, expected)

    def close(self, file: str, row: str, what: str, got: Any, expected: Any, tolerance: Tolerance = EXACT_SUMS) -> None:
        self.compared += 1
        if not tolerance.allows(got, expected):
            self.found(file, row, what, got, expected)

    def each_close(
        self, file: str, row: str, what: str, got: Sequence[float], expected: Sequence[float], tolerance: Tolerance = EXACT_SUMS
    ) -> None:
        """Per-token numbers, of which a finding names the first that is off."""
        if len(got) != len(expected):
            self.found(file, row, f"numbers in {what}", len(got), len(expected))
            return
        self.compared += len(got)
        off = [place for place, pair in enumerate(zip(got, expected, strict=True)) if not tolerance.allows(*pair)]
        if off:
            more = f" (and {len(off) - 1} more tokens)" if len(off) > 1 else ""
            self.found(file, row, f"{what} of token {off[0]}{more}", got[off[0]], expected[off[0]])


def shown(value: object) -> str:
    """
    >>> shown(0.1 + 0.2), shown(None), shown("a b")
    ('0.3000000000', 'nothing', 'a b')
    """
    if value is None:
        return "nothing"
    if isinstance(value, float):
        return f"{value:#.10g}"
    return str(value)
