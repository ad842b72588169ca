"""Another program's rollout files as a run folder.

Decisions:
1. A step of the folder is a step of the program: the n-th that the files hold is step n, and `source/step` says which it was.
2. Rewards are summed here from the values that the files hold. Baselines are not formed unless an algorithm is named, and then
   the advantages on record are held against it by `audit` and `explain`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.composing import composed
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.config import Config
from toishi.errors import ConfigError, DataError, nearest
from toishi.interop.answers import Answer, grouped, streams_of
from toishi.interop.formats import FORMATS, Format
from toishi.interop.tokens import Decode
from toishi.record.environment import environment
from toishi.record.source import Source
from toishi.record.writer import RunWriter
from toishi.types import Group, StepReport, Update

__all__ = ["FORMATS", "import_run"]

UNNAMED = Algorithm(name="unknown", baseline="none", surrogate="score_function")


def import_run(
    name: str,
    path: str | Path,
    out: str | Path,
    *,
    algorithm_name: str | None = None,
    weights: Mapping[str, float] | None = None,
    version: str = "unknown",
    decode: Decode | None = None,
) -> int:
    """Reads a file, or a folder of them, of format `name` into a new run folder, and returns the number of steps.

    algorithm_name  the row whose baseline and scale the program used; without it advantages are shown and not checked
    weights         reward -> weight, where the program used others than 1
    version         the program's version, for the record
    decode          token ids -> text, for formats that hold no texts
    Raises ConfigError for an unknown format, algorithm or reward, DataError for files that are not of the format, RecordError
    when `out` holds something already.
    """
    if name not in FORMATS:
        raise ConfigError(f"unknown format '{name}'; {nearest(name, FORMATS)}")
    found, row = FORMATS[name], None if algorithm_name is None else algorithm(algorithm_name)
    answers = sorted(_answers(found, Path(path), decode), key=lambda answer: answer.step)
    if not answers:
        raise DataError(f"{path}: no rows. Expected {found.files}, as {found.program} writes them")
    answers = _weighed(answers, weights or {})
    steps = [list(members) for _, members in itertools.groupby(answers, key=lambda answer: answer.step)]
    with RunWriter.create(Path(out), _run_record(found, answers, row, version)) as writer:
        for number, members in enumerate(steps, start=1):
            writer.write_step(_report(number, members, row))
    return len(steps)


def files_of(found: Format, path: Path) -> list[Path]:
    """The files to read, in order. Raises DataError when there is none."""
    if path.is_file():
        return [path]
    files = sorted(path.glob(found.files)) if path.is_dir() else []
    if not files:
        raise DataError(f"{path}: expected a file or a folder with {found.files}, as {found.program} writes them; found none")
    return files


def _answers(found: Format, path: Path, decode: Decode | None) -> Iterator[Answer]:
    for file in files_of(found, path):
        yield from found.read(file, decode)


def _weighed(answers: Sequence[Answer], weights: Mapping[str, float]) -> list[Answer]:
    names = {name for answer in answers for name, _, _ in answer.scores}
    unknown = [name for name in weights if name not in names]
    if unknown:
        raise ConfigError(f"no reward '{unknown[0]}' in these files; {nearest(unknown[0], names)}")
    return [
        replace(answer, scores=tuple((name, value, weights.get(name, 1.0)) for name, value, _ in answer.scores))
        for answer in answers
    ]


def _report(number: int, answers: Sequence[Answer], row: Algorithm | None) -> StepReport:
    original = answers[0].step
    groups = tuple(composed(group, ()) for group in grouped([replace(answer, step=number) for answer in answers]))
    if row is not None:
        groups = _with_baselines(groups, row)
    streams = streams_of(answers, groups)
    updates = (Update(step=number, index=0, scalars={}, streams=streams),) if streams else ()
    return StepReport(step=number, groups=groups, updates=updates, metrics=_metrics(groups, original), timings_s={})


def _with_baselines(groups: Sequence[Group], row: Algorithm) -> tuple[Group, ...]:
    again = assign_advantages(groups, row, max_new_tokens=1)
    return tuple(replace(group, baseline=other.baseline) for group, other in zip(groups, again, strict=True))


def _metrics(groups: Sequence[Group], original: int) -> dict[str, Any]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    lengths = [rollout.completion.num_tokens for rollout in rollouts]
    found: dict[str, Any] = {
        "source/step": original,
        "reward/mean": sum(rewards) / len(rewards) if rewards else None,
        "answers/count": len(rollouts),
        "answers/unscored": len(rollouts) - len(rewards),
        "groups/count": len(groups),
        "groups/mixed": sum(not group.is_tied for group in groups),
    }
    return found | ({"answers/mean_tokens": sum(lengths) / len(lengths)} if any(lengths) else {})


def _run_record(found: Format, answers: Sequence[Answer], row: Algorithm | None, version: str) -> dict[str, Any]:
    missing = dict(found.missing)
    if not any(answer.token_ids for answer in answers):
        missing.setdefault("tokens", "The files hold no token ids.")
    if row is not None and any(answer.advantage is not None for answer in answers):
        missing.pop("baseline", None)
        missing.pop("advantage", None)
    source = Source(program=found.program, version=version, how="imported", missing=missing, notes=found.notes)
    weights = {name: weight for answer in answers for name, _, weight in answer.scores}
    config = Config(name="imported", description=f"imported from {found.program}").model_dump(mode="json")
    config |= {
        "algorithm": (row or UNNAMED).model_dump(mode="json"),
        "rewards": [{"name": name, "weight": weight} for name, weight in weights.items()],
    }
    return {
        "config": config,
        "config_given": {"imported": found.name},
        "seed": 0,
        "decisions": {"dtype": "float32", "device": "cpu", "threads": 1},
        "model": {"source": "unknown", "fingerprint": "unknown"},
        "prompt": None,
        "heldout_prompt": None,
        "environment": environment(),
        "source": source.as_record(),
    }
