"""The reward curve in characters, for terminals, logs and pipes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from toishi.explanation.render import signless

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MAX_COLUMNS_PER_STEP = 3


def reward_curve(metrics: Sequence[Mapping[str, Any]], width: int, *, key: str = "reward/mean", height: int = 6) -> str:
    """A metric over the steps as a bar chart of at most `width` columns, with its lowest and highest value and the steps named.

    More steps than columns are averaged in bins; a step without a value stays blank. A metric that never changes fills the
    chart, with its one value named once. Empty without any value.

    >>> lines = [{"step": 1, "reward/mean": 0.0}, {"step": 2, "reward/mean": 0.5}, {"step": 3, "reward/mean": 1.0}]
    >>> print(reward_curve(lines, 40, height=2).replace(" ", "."))
    reward/mean
    1.00.┤......███
    0.00.┤▁▁▁██████
    .....└─────────
    ......1.......3..step
    """
    values = [line.get(key) for line in metrics]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    digits = 2 if high - low >= 0.05 or high == low else 4
    labels = [signless(high, f".{digits}f"), signless(low, f".{digits}f") if high > low else ""]
    margin = max(map(len, labels))
    columns = _columns(values, max(1, width - margin - 2))
    rows = [_row(columns, low, high, line, height) for line in reversed(range(height))]
    lowest = f"{labels[1]:>{margin}} {'┤' if labels[1] else '│'}"
    lefts = [f"{labels[0]:>{margin}} ┤", *[" " * margin + " │"] * (height - 2), lowest]
    first, last = str(metrics[0].get("step", 1)), str(metrics[-1].get("step", len(metrics)))
    gap = max(1, len(columns) - len(first) - len(last))
    named = first if len(metrics) == 1 else f"{first}{' ' * gap}{last}"
    below = [" " * margin + " └" + "─" * len(columns), " " * margin + f"  {named}  step"]
    return "\n".join([key, *(left + row.rstrip() for left, row in zip(lefts, rows, strict=True)), *below])


def sparkline(values: Sequence[float | None]) -> str:
    """One character a value.

    >>> sparkline([0.0, 0.5, None, 1.0])
    '▁▅ █'
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(" " if value is None else _EIGHTHS[1 + round(7 * _share(value, low, high))] for value in values)


def _columns(values: Sequence[float | None], room: int) -> list[float | None]:
    """One value a column: bins when there are too many steps, several columns a step when there are few."""
    if len(values) <= room:
        repeat = min(_MAX_COLUMNS_PER_STEP, room // len(values))
        return [value for value in values for _ in range(repeat)]
    edges = [round(column * len(values) / room) for column in range(room + 1)]
    return [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _row(columns: Sequence[float | None], low: float, high: float, line: int, height: int) -> str:
    """The characters of one text line; line 0 is the lowest. The lowest value still shows as a sliver."""
    cells = []
    for value in columns:
        eighths = 0 if value is None else max(1, round(8 * height * (_share(value, low, high) if high > low else 1)))
        cells.append(_EIGHTHS[min(8, max(0, eighths - 8 * line))])
    return "".join(cells)


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5
