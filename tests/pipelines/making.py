"""A tiny pipeline: answers, SFT on them, RL from there, a student."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from toishi.pipelines.planning import Pipeline, read_pipeline
from toishi.pipelines.running import PipelineView, run_pipeline

VOWELS: dict[str, Any] = {
    "task": {"name": "sums", "heldout": 12},
    "rewards": [{"name": "vowels", "function": "tests.making:vowels"}],
    "sampling": {"max_new_tokens": 6},
    "train": {"steps": 3, "prompts_per_step": 2, "group_size": 3},
    "optimizer": {"lr": 0.003},
    "evaluation": {"prompts": 0},
    "checkpoint": {"every": 1, "keep_best": False},
}
WRITTEN: dict[str, Any] = {
    **VOWELS,
    "algorithm": "sft",
    "task": {"name": "file", "path": "${stages.answers.data}", "prompt_column": "messages", "heldout": 0},
    "rewards": [],
    "train": {"steps": 2, "prompts_per_step": 2, "group_size": 1},
    "sampling": {"max_new_tokens": 12},
}


def small(tiny: Path) -> dict[str, Any]:
    """The file as plain values."""
    return {
        "name": "small",
        "model": {"name": str(tiny), "dtype": "float32"},
        "stages": {
            "answers": {
                "kind": "collect", "recipe": VOWELS, "samples": 4, "prompts": 4, "threshold": 0.1, "keep_truncated": True,
            },
            "sft": {"kind": "train", "recipe": WRITTEN, "aim": "vowels"},
            "rl": {"kind": "train", "recipe": VOWELS, "model": "${stages.sft.model}", "aim": ["vowels"]},
            "student": {"kind": "shrink", "model": "${stages.sft.model}", "layers": 1},
        },
        "measure": {"vowels": {"recipe": {**VOWELS, "evaluation": {"prompts": 12, "samples": 1}}}},
    }  # fmt: skip


def written(values: dict[str, Any], path: Path) -> Path:
    """The values as a YAML file."""
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def read(values: dict[str, Any], folder: Path, overrides: dict[str, Any] | None = None) -> Pipeline:
    """The pipeline, through a file."""
    return read_pipeline(str(written(values, folder / "small.yaml")), overrides)


def run(pipeline: Pipeline, folder: Path) -> PipelineView:
    """Runs it and shows nothing."""
    return run_pipeline(pipeline, folder, Console(file=io.StringIO()))
