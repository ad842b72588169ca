"""What a tracker is given of one step, read from the record, and what it has to be able to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from toishi.record.lines import RECORD_KEYS, restored

ANSWER_COLUMNS = ("step", "group", "member", "prompt", "completion", "status", "reward", "advantage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A step as it stands on record.

    numbers  the step's metrics under their own names, and its evaluations as evaluation/<mode>/<field>; NaN stays NaN
    alarms   the lines of health rules that spoke after it
    columns, answers  a table: a row for each answer, with what every reward gave it as score/<name>
    """

    step: int
    numbers: Mapping[str, float]
    alarms: tuple[Mapping[str, Any], ...] = ()
    columns: tuple[str, ...] = ()
    answers: tuple[tuple[Any, ...], ...] = ()


class Tracker(Protocol):
    """Shows steps elsewhere. Whatever it raises ends the tracking, never the run.

    rewinds  whether steps after the last one sent may be sent again after a resume, in place of what was there
    """

    rewinds: bool

    def start(self, folder: Path, run: Mapping[str, Any], *, id: str, after: int) -> None:
        """Begins, or goes on after step `after` (-1: from the start) with what `id` names. `run` is run.json."""
        ...

    def send(self, seen: Seen) -> None:
        """One whole step; steps come in order, each once."""
        ...

    def close(self) -> None:
        """Everything was sent."""
        ...


def seen_of(
    step: int,
    metrics: Mapping[str, Any] | None,
    evaluations: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
) -> Seen:
    """A step out of its lines and its rows of `rollouts/`; step 0 has evaluations only.

    >>> evaluation = {"step": 1, "mode": "greedy", "value": 1.0, "interval": None}
    >>> seen_of(1, {"step": 1, "reward/mean": 0.5}, [evaluation], [], []).numbers
    {'reward/mean': 0.5, 'evaluation/greedy/value': 1.0}
    """
    numbers = _numbers(restored(metrics or {}))
    for line in evaluations:
        measured = {key: value for key, value in restored(line).items() if key != "mode"}
        measured |= measured.pop("details", None) or {}
        for key in ("interval", "change_interval"):
            ends = measured.pop(key, None)
            measured |= {} if ends is None else {f"{key}_low": ends[0], f"{key}_high": ends[1]}
        numbers |= {f"evaluation/{line['mode']}/{key}": value for key, value in _numbers(measured).items()}
    names = tuple(dict.fromkeys(score["reward"] for row in rows for score in row["scores"] or ()))
    return Seen(
        step=step,
        numbers=numbers,
        alarms=tuple(event for event in events if event["kind"] == "health"),
        columns=(*ANSWER_COLUMNS, *(f"score/{name}" for name in names)) if rows else (),
        answers=tuple((*(row[column] for column in ANSWER_COLUMNS), *(_value(row, name) for name in names)) for row in rows),
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: value
        for key, value in values.items()
        if key not in RECORD_KEYS and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _value(row: Mapping[str, Any], reward: str) -> float | None:
    """The sum of a reward's parts; None where it gave none."""
    values = [score["value"] for score in row["scores"] or () if score["reward"] == reward and score["value"] is not None]
    return math.fsum(values) if values else None
