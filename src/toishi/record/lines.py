"""A step's numbers as one flat JSON line, in both directions.

Decisions:
1. The line is flat, so that a table reader gives one column a number: `reward/mean`, `time/rollout_s`, `updates/0/loss`.
2. A step's timings are metrics named time/<part>_s. Each update's own scalars are update/<name> in code and
   updates/<index>/<name> here; update/<name> in a line is the step's.
3. Numbers that JSON cannot hold become null and are named in the line's `non_finite`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toishi.errors import RecordError
from toishi.record.files import plain
from toishi.types import Group, StepReport

Line = Mapping[str, Any]
RECORD_KEYS = frozenset({"step", "time", "num_updates", "non_finite", "rollouts_sha256", "tokens_sha256", "previous", "seal"})
_UPDATES = "updates/"
_UPDATE = "update/"


def now() -> str:
    """
    >>> len(now())
    24
    """
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def metrics_line(report: StepReport) -> dict[str, Any]:
    """The step's numbers as one flat JSON object, without the shards' sums."""
    named = {"step": report.step, "time": now(), "num_updates": len(report.updates)}
    scalars = {
        **report.metrics,
        **{timing_key(part): value for part, value in report.timings_s.items()},
        **{update_key(update.index, name): value for update in report.updates for name, value in update.scalars.items()},
    }
    numbers, non_finite = finite(scalars)
    return named | numbers | non_finite


def finite(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Values with non-finite numbers replaced by None, and which they were.

    >>> finite({"loss": float("nan"), "lr": 0.1})
    ({'loss': None, 'lr': 0.1}, {'non_finite': {'loss': 'nan'}})
    """
    values = {key: value.item() if hasattr(value, "item") else value for key, value in values.items()}
    broken = {key: str(float(value)) for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    numbers = {key: None if key in broken else plain(value) for key, value in values.items()}
    return numbers, {"non_finite": broken} if broken else {}


def timing_key(part: str) -> str:
    """The name of a timing in a metrics line."""
    return f"time/{part}_s"


def update_key(index: int, name: str) -> str:
    """
    >>> update_key(0, "update/loss")
    'updates/0/loss'
    """
    if not name.startswith(_UPDATE):
        raise RecordError(f"update scalar '{name}': expected a name that starts with '{_UPDATE}'")
    return f"{_UPDATES}{index}/{name.removeprefix(_UPDATE)}"


def step_metrics(line: Line) -> dict[str, float | int | str | None]:
    """The step's own scalars out of its line; non-finite ones come back as nan and inf."""
    return {key: value for key, value in restored(line).items() if key not in RECORD_KEYS and not key.startswith(_UPDATES)}


def timings_s(line: Line) -> dict[str, float]:
    """
    >>> timings_s({"step": 1, "time": "2030-01-01T00:00:00Z", "time/rollout_s": 0.5})
    {'rollout': 0.5}
    """
    named = {key: value for key, value in restored(line).items() if key.startswith("time/") and key.endswith("_s")}
    return {key.removeprefix("time/").removesuffix("_s"): value for key, value in named.items()}


def update_scalars(line: Line) -> list[dict[str, float]]:
    """The scalars of each optimizer update, by its index.

    >>> update_scalars({"step": 1, "num_updates": 1, "updates/0/loss": 0.5})
    [{'update/loss': 0.5}]
    """
    scalars: list[dict[str, float]] = [{} for _ in range(line["num_updates"])]
    for key, value in restored(line).items():
        if key.startswith(_UPDATES):
            _, index, name = key.split("/", 2)
            scalars[int(index)][f"{_UPDATE}{name}"] = value
    return scalars


def restored(line: Line) -> dict[str, Any]:
    """A line with nan and inf where its `non_finite` names them.

    >>> restored({"loss": None, "non_finite": {"loss": "inf"}})["loss"]
    inf
    """
    return {**line, **{key: float(text) for key, text in line.get("non_finite", {}).items()}}


def check_report(report: StepReport, *, after: int) -> None:
    """A report that contradicts itself, or comes out of turn, must not become a record."""
    if report.step <= after:
        raise RecordError(f"step {report.step} comes after step {after}: take later steps back first (RunWriter.undo_after)")
    taken = [name for name in report.metrics if name in RECORD_KEYS or name.startswith(_UPDATES)]
    if taken:
        raise RecordError(f"metric '{taken[0]}': this name is taken by the record itself; give the metric another one")
    if [update.index for update in report.updates] != list(range(len(report.updates))):
        raise RecordError(f"step {report.step}: updates must be numbered 0, 1, ..., got {[u.index for u in report.updates]}")
    ids = [rollout.id for rollout in report.rollouts]
    if len(set(ids)) != len(ids):
        raise RecordError(f"step {report.step}: a rollout id appears twice")
    for group in report.groups:
        _check_group(report.step, group)


def _check_group(step: int, group: Group) -> None:
    if not group.rollouts:
        raise RecordError(f"step {step}: the group of prompt {group.prompt.id} has no rollouts; leave it out of the report")
    for rollout in group.rollouts:
        if (rollout.id.step, rollout.id.group) != (step, group.rollouts[0].id.group) or rollout.prompt.id != group.prompt.id:
            raise RecordError(
                f"step {step}: rollout {rollout.id} (prompt {rollout.prompt.id}) stands with those of prompt {group.prompt.id}"
            )
