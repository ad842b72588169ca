"""A TRL training of some seconds on a tiny model, as a person would write it; `recorder` is the one thing that a test adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tests.tiny import save_tiny

PROMPTS = ("what is 2+3?", "hello", "the cat", "sum of 1 and 2")


def length(completions: list[Any], **_: Any) -> list[float]:
    """A tenth of the number of characters."""
    texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
    return [len(text) / 10 for text in texts]


def odd(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
    """Whether the first token's id is odd; it has no opinion of every third answer."""
    return [None if place % 3 == 0 else float(ids[0] % 2) for place, ids in enumerate(completion_ids)]


def silent(completions: list[Any], **_: Any) -> list[None]:
    """Never has an opinion."""
    return [None] * len(completions)


def trainer(
    tmp: Path, recorder: Any = None, *, chat: bool = False, rewards: Any = (length, odd), **options: Any
) -> GRPOTrainer:
    """The trainer of a script, ready to train."""
    family = options.pop("family", "llama")
    asked = [[{"role": "user", "content": text}] for text in PROMPTS] if chat else list(PROMPTS)
    data = Dataset.from_dict({"prompt": asked, "gold": ["5", "x", "y", "3"]})
    folder = tmp / f"model_{family}"
    if not folder.exists():
        save_tiny(folder, family)
    settings: dict[str, Any] = {
        "output_dir": str(tmp / "out"),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 2,
        "learning_rate": 1e-2,
        "bf16": False,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "logging_strategy": "no",
    }
    return GRPOTrainer(
        model=str(folder),
        reward_funcs=list(rewards),
        args=GRPOConfig(**(settings | options)),
        train_dataset=data,
        eval_dataset=data if options.get("eval_strategy", "no") != "no" else None,
        callbacks=None if recorder is None else [recorder],
    )


def trained(tmp: Path, recorder: Any = None, **options: Any) -> GRPOTrainer:
    """The same after its training. TRL seeds when a trainer is made: two that are compared are made one after the other."""
    made = trainer(tmp, recorder, **options)
    made.train()
    return made


def require_same_weights(one: GRPOTrainer, other: GRPOTrainer) -> None:
    """Bit for bit."""
    expected = dict(other.model.named_parameters())
    different = [name for name, weight in one.model.named_parameters() if not torch.equal(weight, expected[name])]
    assert not different, different
