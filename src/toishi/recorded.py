"""What run.json says, as the values that a run is made of; what cannot be used here is an error with file, key and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toishi.config import Config, load_config
from toishi.errors import ConfigError, ModelError, RecordError
from toishi.policy.precision import choose_device
from toishi.record.files import seal_of
from toishi.record.reader import Run
from toishi.record.source import require_own

if TYPE_CHECKING:
    from toishi.policy.loading import LoadedModel
    from toishi.policy.teacher import Teacher


def require_unchanged(run: Run) -> None:
    """Raises RecordError when run.json is not what was written: a run goes on as it was started."""
    if run.run.get("seal") != seal_of(run.run):
        raise RecordError(
            f"{run.folder / 'run.json'} was changed after it was written (its seal does not hold), so going on would be "
            "another run under the same name. Restore it from a copy; for other settings start a new run"
        )


def recorded_config(run: Run) -> Config:
    """The configuration that the run was started with. Raises RecordError when this toishi cannot read it."""
    require_own(run.run, run.folder)
    try:
        return load_config(run.run["config"])
    except (ConfigError, TypeError, ValueError, AttributeError) as error:
        version = run.run["environment"].get("toishi", "unknown")
        raise RecordError(
            f"{run.folder / 'run.json'}, config: {error}. It was written by toishi {version}: restore the file from a copy, or "
            "use that version"
        ) from None


def require_device(run: Run) -> None:
    """Raises RecordError when the device that the run was made on is not here: elsewhere its bits would differ."""
    device = run.run["decisions"]["device"]
    try:
        choose_device(device)
    except ConfigError as error:
        raise RecordError(
            f"{run.folder / 'run.json'}, decisions.device: the run was made on {device} ({error}). Resume it on a machine that "
            "has this device, or start a new run here"
        ) from None


def step_fault(run: Run, checkpoint: Path, step: int) -> str | None:
    """Why a run cannot go on from its checkpoint of `step`: a step up to it that is not on record would be missing for ever."""
    before = [number for number in run.steps if number <= step]
    if before == list(range(1, step + 1)):
        return None
    missing = sorted(set(range(1, step + 1)) - set(before))
    what = f"lacks step {missing[0]}" if missing else "repeats or disorders steps"
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{checkpoint} stands after step {step}, but metrics.jsonl {what}{more}"


def require_same_teacher(teacher: Teacher, run: Mapping[str, Any]) -> None:
    """Raises ModelError when the teacher is not the one that the run started with."""
    recorded = (run.get("teacher") or {}).get("fingerprint")
    found = str(teacher.describe()["fingerprint"])
    if found != recorded:
        raise ModelError(
            "the teacher is not the model that this run started with: its weights have the fingerprint "
            f"{found[:60]}, run.json says {str(recorded)[:60]}. Put that model back (same name and revision)"
        )


def require_same_base(loaded: LoadedModel, run: Mapping[str, Any]) -> None:
    """Raises ModelError when a base model is not the one that the run started from."""
    recorded = run["model"]["fingerprint"]
    if loaded.fingerprint != recorded:
        raise ModelError(
            f"{loaded.source} is not the model that this run started from: its weights have the fingerprint "
            f"{loaded.fingerprint[:12]}, run.json says {recorded[:12]} ({run['model']['source']}). Put that model back (same "
            "name and revision)"
        )
