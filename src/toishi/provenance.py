"""What a run is made from, by content: its prompts and the source of its own rewards, so that a resume knows them again.

Decisions:
1. Prompts are named by everything that a model or a reward sees of them: id, text or messages, right answer, columns. All
   held-out prompts count, and the first 2000 training prompts (100 of an endless task).
2. Other prompts make another run: a resume refuses them. A reward may have been repaired on purpose: a resume says so.
3. Where a source cannot be seen (a compiled function, a line typed in), nothing is claimed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from toishi.config import Config
from toishi.errors import DataError
from toishi.machine import Machine
from toishi.policy.chat import Renderer
from toishi.policy.loading import LoadedModel
from toishi.policy.teacher import Teacher
from toishi.preflight import some_rows
from toishi.record.environment import environment
from toishi.rewards import FunctionReward, Reward
from toishi.tasks import Task
from toishi.types import Prompt


def run_record(
    config: Config,
    machine: Machine,
    loaded: LoadedModel,
    renderer: Renderer,
    task: Task,
    rewards: Sequence[Reward],
    *,
    teacher: Teacher | None = None,
) -> dict[str, Any]:
    """What run.json says: enough to do any step again."""
    heldout = task.heldout_prompts()
    counts = {"num_train": task.num_train, "num_heldout": len(heldout)}
    return {
        "config": config.model_dump(mode="json"),
        "config_given": config.model_dump(mode="json", exclude_unset=True),
        "seed": config.seed,
        "decisions": asdict(machine),
        "model": {
            "source": loaded.source,
            "fingerprint": loaded.fingerprint,
            "parameters": sum(weight.numel() for weight in loaded.module.parameters()),
            "trained": sum(weight.numel() for weight in loaded.module.parameters() if weight.requires_grad),
            "architecture": type(loaded.module).__name__,
        },
        "teacher": None if teacher is None else teacher.describe(),
        "task": {"name": task.name, **counts, "fingerprints": data_fingerprints(task)},
        "rewards": reward_sources(rewards),
        "prompt": renderer.describe(renderer.render(task.train_prompt(0))),
        "heldout_prompt": renderer.describe(renderer.render(heldout[0])) if heldout else None,
        "environment": environment() | {"omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "")},
    }


def data_fingerprints(task: Task) -> dict[str, str]:
    """sha256 of the training and of the held-out prompts."""
    heldout = task.heldout_prompts()
    return {"train": _prompts_sha256(some_rows(task)[len(heldout) :]), "heldout": _prompts_sha256(heldout)}


def require_same_data(run: Mapping[str, Any], task: Task) -> None:
    """Raises DataError when the prompts are not those that the run was started with."""
    recorded = run.get("task") or {}
    then, now = recorded.get("fingerprints"), data_fingerprints(task)
    if then is None:
        return
    numbers = {"train": ("num_train", task.num_train), "heldout": ("num_heldout", len(task.heldout_prompts()))}
    changed = [
        f"the {'training' if part == 'train' else 'held-out'} prompts ({recorded.get(key)} then, {count} now)"
        for part, (key, count) in numbers.items()
        if then.get(part) != now[part] or recorded.get(key) != count
    ]
    if changed:
        raise DataError(
            f"the data of task '{task.name}' changed since this run was started: {' and '.join(changed)} are not the same. Its "
            "later steps would train on other rows than its record says. Put the rows back, or start a new run with "
            "these"
        )


def reward_sources(rewards: Sequence[Reward]) -> dict[str, str | None]:
    """Reward name -> sha256 of its source, for rewards that are not toishi's own; None where the source cannot be seen."""
    return {reward.name: _source_sha256(reward) for reward in rewards if _is_users(reward)}


def changed_rewards(run: Mapping[str, Any], rewards: Sequence[Reward]) -> list[str]:
    """Names of the rewards whose source is not the one that the run was started with."""
    recorded, now = run.get("rewards") or {}, reward_sources(rewards)
    return [name for name, source in now.items() if None not in (source, recorded.get(name)) and source != recorded[name]]


def _is_users(reward: Reward) -> bool:
    return isinstance(reward, FunctionReward) or not type(reward).__module__.startswith("toishi.")


def _source_sha256(reward: Reward) -> str | None:
    """Of a function named by its file, the whole file (it may call its neighbours); of a Python object, its own lines."""
    is_named = isinstance(reward, FunctionReward) and isinstance(reward.function, str)
    seen: Any = inspect.unwrap(reward.called) if isinstance(reward, FunctionReward) else type(reward)
    seen = seen.func if isinstance(seen, partial) else seen
    seen = seen if inspect.isroutine(seen) or inspect.isclass(seen) else type(seen)
    try:
        content = Path(inspect.getsourcefile(seen) or "").read_bytes() if is_named else inspect.getsource(seen).encode()
    except (OSError, TypeError, ValueError):
        return None
    return hashlib.sha256(content).hexdigest()


def _prompts_sha256(prompts: Iterable[Prompt]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        seen = [prompt.id, prompt.text, prompt.messages, prompt.gold, prompt.columns]
        digest.update(json.dumps(_stable(seen), ensure_ascii=True, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _stable(value: Any) -> Any:
    """Plain JSON values that are the same in every process: of an object that is none of them, only its type is named."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _stable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_stable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_stable(item) for item in value), key=str)
    if hasattr(value, "tolist"):
        return _stable(value.tolist())
    if isinstance(value, date | time | Decimal | bytes):
        return str(value)
    return type(value).__qualname__
