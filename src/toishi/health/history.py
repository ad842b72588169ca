"""The run so far, as the rules read it: windows of steps with means that skip what was not measured.

Decisions:
1. A missing number (None, or no such key) is unknown: it is left out of a mean, and a rule without numbers is silent.
2. A number that is not finite is left out too; one rule looks for those alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toishi.config import Config
from toishi.evaluate import Evaluation


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive steps of a run: one mapping of metric name to number per step.

    >>> window = Window([{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}, {"step": 3, "loss": 1.5}])
    >>> window.mean("loss"), window.total("loss"), window.last(2).values("loss"), str(window)
    (1.0, 2.0, [1.5], 'steps 1-3')
    """

    rows: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        first, last = self.rows[0]["step"], self.rows[-1]["step"]
        return f"step {last}" if first == last else f"steps {first}-{last}"

    def first(self, count: int) -> Window:
        return Window(self.rows[:count])

    def last(self, count: int) -> Window:
        return Window(self.rows[-count:])

    def before_last(self, count: int) -> Window:
        return Window(self.rows[:-count])

    def after_first(self, count: int) -> Window:
        return Window(self.rows[count:])

    def between(self, after_step: int, up_to_step: int) -> Window:
        """Steps s with after_step < s <= up_to_step."""
        return Window([row for row in self.rows if after_step < row["step"] <= up_to_step])

    def blocks(self, size: int) -> Iterator[Window]:
        """The full windows of `size` steps that follow one another from the start."""
        return (Window(self.rows[start : start + size]) for start in range(0, len(self.rows) - size + 1, size))

    def values(self, name: str) -> list[float]:
        """The finite numbers of that name, in order."""
        found = (row.get(name) for row in self.rows)
        return [float(value) for value in found if value is not None and math.isfinite(value)]

    def mean(self, name: str) -> float | None:
        values = self.values(name)
        return statistics.fmean(values) if values else None

    def total(self, name: str) -> float:
        return math.fsum(self.values(name))

    def share(self, part: str, whole: str) -> float | None:
        """Sum of one count over the sum of another; None when there is nothing to divide by."""
        whole_total = self.total(whole)
        return self.total(part) / whole_total if whole_total > 0 else None

    def always(self, name: str, value: float) -> bool:
        """Measured at every step, and always that value."""
        values = self.values(name)
        return len(values) == len(self.rows) > 0 and all(found == value for found in values)


@dataclass(frozen=True, slots=True)
class History:
    """All finished steps and evaluations of a run. `dtype` is the compute precision ('float32', 'bfloat16', 'auto', ...)."""

    steps: Window
    evaluations: Sequence[Evaluation]
    config: Config
    dtype: str

    @property
    def step(self) -> int:
        return int(self.steps.rows[-1]["step"])

    @property
    def latest(self) -> Window:
        return self.steps.last(1)

    @property
    def reward_rose(self) -> bool:
        """The last five steps' rewards lie above the first five's by two standard errors."""
        change = change_of(self.steps.first(5), self.steps.last(5), "reward/mean")
        return change is not None and change.is_beyond(2)

    @property
    def reward_is_at_best(self) -> bool:
        """The last ten steps' mean lies in the top quarter of what single steps have reached so far.

        With partial credit, equal rewards above 0 may be half marks for ever: only this tells success from being stuck.
        """
        seen, now = self.steps.values("reward/mean"), self.steps.last(10).mean("reward/mean")
        return now is not None and now > min(seen) and now >= max(seen) - 0.25 * (max(seen) - min(seen))


@dataclass(frozen=True, slots=True)
class Change:
    """From one window's mean to another's, with the standard error of the difference.

    >>> change = change_of(Window([{"r": 0.1}, {"r": 0.3}]), Window([{"r": 0.8}, {"r": 1.0}]), "r")
    >>> round(change.difference, 2), round(change.standard_error, 3), change.is_beyond(4)
    (0.7, 0.141, True)
    """

    before: float
    after: float
    standard_error: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    def is_beyond(self, errors: float) -> bool:
        """The mean rose by more than that many standard errors (fell, for a negative number)."""
        sign = math.copysign(1.0, errors)
        return sign * self.difference > abs(errors) * self.standard_error


def change_of(before: Window, after: Window, name: str) -> Change | None:
    """None unless both windows hold at least two values."""
    first, second = before.values(name), after.values(name)
    if len(first) < 2 or len(second) < 2:
        return None
    squared_error = statistics.variance(first) / len(first) + statistics.variance(second) / len(second)
    return Change(statistics.fmean(first), statistics.fmean(second), math.sqrt(squared_error))
