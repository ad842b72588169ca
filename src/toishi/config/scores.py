"""What a reward model's configuration must not ask for: it samples nothing, and its head stands on a whole model."""

from __future__ import annotations

from typing import Any

_ADAPTERS = "would not hold the head, which is new: set it to null, and merge an adapter into its model before"
_TRACES = "follows the probability of tokens, and a score has none"
_WRONG: tuple[tuple[str, Any, str], ...] = (
    ("rewards", lambda config: config.rewards, "judge sampled answers, and nothing is sampled: set rewards to []"),
    ("model.lora", lambda config: config.model.lora, _ADAPTERS),
    ("model.adapter", lambda config: config.model.adapter, _ADAPTERS),
    ("record.trace_every", lambda config: config.record.trace_every, f"{_TRACES}: set it to 0"),
    ("record.trace_when", lambda config: config.record.trace_when, f"{_TRACES}: set it to []"),
)


def require_no_sampling(config: Any) -> None:
    """Raises ValueError for the first key that a model which predicts a score cannot have."""
    if config.algorithm.predicts != "score":
        return
    for key, found, why in _WRONG:
        if found(config):
            raise ValueError(f"algorithm '{config.algorithm.name}' trains a score: {key} {why}")
