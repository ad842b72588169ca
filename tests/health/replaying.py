"""A made-up run played to the rules step by step, as the loop does."""

from __future__ import annotations

from tests.health.histories import MadeRun
from toishi.config import Config
from toishi.health import Alarm, examine


def replay(run: MadeRun, config: Config | None = None, *, dtype: str = "float32") -> list[Alarm]:
    """Everything said from the first step to the last."""
    spoken: list[Alarm] = []
    for count, row in enumerate(run.rows, start=1):
        evaluations = [found for found in run.evaluations if found.step <= row["step"]]
        said = {alarm.rule for alarm in spoken}
        spoken += examine(run.rows[:count], evaluations, config or Config(), said, dtype=dtype)
    return spoken


def alarms(run: MadeRun, config: Config | None = None) -> list[Alarm]:
    """Warnings and stops, without notes."""
    return [alarm for alarm in replay(run, config) if alarm.action != "note"]
