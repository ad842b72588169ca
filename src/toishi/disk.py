"""How much disk the checkpoints of a run take, by arithmetic, and how much is free.

Decisions:
1. Counted is what lies there at the fullest moment: a new checkpoint is whole before an old one is removed.
2. The best checkpoint is counted as one more, although it may turn out to be one that is kept anyway.
3. The record itself (answers and token streams) is not counted: it is small beside a checkpoint.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toishi.config import Config, OptimizerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskEstimate:
    """What the checkpoints of a run take, in bytes; `free` is None where it cannot be known.

    first  bytes of the checkpoint of step 0, which has no optimizer state
    later  bytes of each later one
    kept   how many later ones are kept in the end, at most
    extra  1 if one more lies there while it takes another's place, else 0
    """

    first: int
    later: int
    kept: int
    extra: int
    free: int | None

    @property
    def needed(self) -> int:
        """Bytes at the fullest moment."""
        return self.first + (self.kept + self.extra) * self.later

    @property
    def fits(self) -> bool | None:
        """None when what is free is unknown."""
        return None if self.free is None else self.needed <= self.free

    @property
    def words(self) -> str:
        """
        >>> DiskEstimate(first=540_000_000, later=1_620_000_000, kept=2, extra=1, free=9_000_000_000).words
        'up to 5.4 GB: the first with 0.54 GB, 2 later with 1.62 GB each and one being written; 9.0 GB are free'
        """
        later = f", {self.kept} later with {_gigabytes(self.later)} each" if self.kept else ""
        writing = " and one being written" if self.extra else ""
        free = "free space is unknown" if self.free is None else f"{self.free / 1e9:.1f} GB are free"
        return f"up to {_gigabytes(self.needed)}: the first with {_gigabytes(self.first)}{later}{writing}; {free}"


def _gigabytes(num_bytes: int) -> str:
    """
    >>> _gigabytes(5_400_000_000), _gigabytes(81_000)
    ('5.4 GB', '0.000081 GB')
    """
    return f"{float(f'{num_bytes / 1e9:.3g}'):.12f}".rstrip("0").rstrip(".") + " GB"


def estimate_disk(
    config: Config, *, trained: int, weight_bytes: int, tokenizer: Any, folder: Path | str | None = None
) -> DiskEstimate:
    """What the checkpoints of this recipe take in `folder` (by default where its runs are made), with a critic of its own
    and a reference that is renewed (counted in the master's precision, which is the most that it takes).

    trained       how many weights are trained, which are those that are saved
    weight_bytes  bytes of one of them in its master copy
    """
    second = config.algorithm.needs_critic and config.critic.kind == "separate"
    critic = trained * weight_bytes if second else 0  # a critic's head is nothing beside a model
    renewed = trained * weight_bytes if config.algorithm.reference_every else 0
    model = trained * weight_bytes + critic + renewed + _tokenizer_bytes(tokenizer)
    kept, extra = kept_checkpoints(config)
    return DiskEstimate(
        first=model,
        later=model + trained * weight_bytes * _states(config.optimizer) + critic * _states(config.critic.optimizer),
        kept=kept,
        extra=extra,
        free=free_disk(Path(folder or config.record.folder)),
    )


def kept_checkpoints(config: Config) -> tuple[int, int]:
    """(how many checkpoints besides the first are kept at most, 1 if others are written and removed meanwhile).

    >>> from toishi.config import load_config
    >>> kept_checkpoints(load_config({"train": {"steps": 40}, "checkpoint": {"every": 10, "keep_last": 1, "anchor_every": 20}}))
    (3, 1)
    """
    policy, last = config.checkpoint, config.train.steps
    saved = sorted({*_every(policy.every, last), *([last] if last > 0 else [])})
    kept = {*saved[-policy.keep_last :], *(step for step in saved if policy.anchor_every and step % policy.anchor_every == 0)}
    measured = {*_every(config.evaluation.every, last), last} if config.evaluation.prompts else set()
    best = policy.keep_best and bool((measured & {*saved}) - kept)
    count = len(kept) + best
    return count, int(count < len(saved))


def free_disk(folder: Path) -> int | None:
    """Bytes that are free where `folder` is, or would be made; None where the system does not say."""
    there = next((place for place in (folder.absolute(), *folder.absolute().parents) if place.exists()), None)
    try:
        return None if there is None else shutil.disk_usage(there).free
    except OSError:
        return None


def _every(every: int, last: int) -> range:
    return range(every, last + 1, every) if every else range(0)


def _states(optimizer: OptimizerConfig) -> int:
    """Numbers that the optimizer keeps for a weight."""
    return 2 if optimizer.name == "adamw" else int(optimizer.momentum > 0)


def _tokenizer_bytes(tokenizer: Any) -> int:
    """Of the largest of its files, which for adapters is not small beside the weights."""
    core = getattr(tokenizer, "backend_tokenizer", None)
    return 0 if core is None else len(core.to_str(pretty=True).encode())
