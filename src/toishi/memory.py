"""How much memory a run needs, by arithmetic, and how much is free.

Decisions:
1. An estimate is a sum of named parts with the formula in words, so that a person sees what to make smaller.
2. Weights, optimizer and gradients are there all the time (gradients are dropped when the next update begins). On top of them
   come sampling (key-value cache), updating (activations, logits) and saving (the model is written from a copy) in turn, so
   only the largest of the three counts.
3. No dependency for it: /proc/meminfo and the control group's limit on Linux, the device's own count on CUDA, else unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from toishi.config import Config

RUNTIME_BYTES = 600_000_000
"""Python, torch and transformers with their buffers; with it, the peak of the demo comes out within a tenth."""
LOGIT_COPIES = 3
"""Logits, their log-softmax, and the gradient of one of them live at the same time."""
ENGINE_ROWS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the estimate."""

    name: str
    num_bytes: int
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """What is needed all the time, and on top of it in each phase; `free` is None where it cannot be known."""

    always: tuple[Part, ...]
    phases: tuple[tuple[Part, ...], ...]
    free: int | None

    @property
    def peak(self) -> tuple[Part, ...]:
        """The parts of the phase that needs most."""
        return max(self.phases, key=_total)

    @property
    def needed(self) -> int:
        """Bytes at the highest moment of a run."""
        return _total(self.always) + _total(self.peak)

    @property
    def fits(self) -> bool | None:
        """None when what is free is unknown."""
        return None if self.free is None else self.needed <= self.free


def _total(parts: Sequence[Part]) -> int:
    return sum(part.num_bytes for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes that memory depends on."""

    parameters: int
    trained: int
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    key_value_width: int

    @classmethod
    def of(cls, module: Any) -> ModelShape:
        """Read from a transformers model (or a PeftModel around one)."""
        config = module.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", 1))
        head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        key_value_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        return cls(
            parameters=sum(weight.numel() for weight in module.parameters()),
            trained=sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
            vocabulary=int(module.get_output_embeddings().weight.shape[0]),
            hidden=int(config.hidden_size),
            intermediate=int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size),
            layers=int(config.num_hidden_layers),
            key_value_width=head_dim * key_value_heads,
        )


def estimate_memory(
    config: Config, shape: ModelShape, *, compute_bytes: int, prompt_tokens: int, free: int | None
) -> MemoryEstimate:
    """The parts of a run's memory.

    compute_bytes  bytes of a number in the compute precision (4: float32, 2: bfloat16)
    prompt_tokens  a typical prompt's length
    """
    return MemoryEstimate(
        always=_always(config, shape, compute_bytes),
        phases=(
            (_key_value_cache(config, shape, compute_bytes, prompt_tokens),),
            _updating(config, shape, compute_bytes, prompt_tokens),
            (Part("checkpoint", 4 * shape.trained, "4 bytes a trained weight, copied while it is written"),),
        ),
        free=free,
    )


def _always(config: Config, shape: ModelShape, compute_bytes: int) -> tuple[Part, ...]:
    trained, frozen = shape.trained, shape.parameters - shape.trained
    parts = [
        Part("libraries", RUNTIME_BYTES, "Python, torch and transformers"),
        Part("weights", 4 * trained + compute_bytes * frozen, "4 bytes a trained weight (fp32 masters)"),
        Part("gradients", 4 * trained, "4 bytes a trained weight"),
    ]
    if compute_bytes < 4:
        parts.append(Part("compute copy", compute_bytes * trained, f"{compute_bytes} bytes a trained weight"))
    states = 8 if config.optimizer.name == "adamw" else 4 if config.optimizer.momentum > 0 else 0
    if states:
        parts.append(Part("optimizer", states * trained, f"{states} bytes a trained weight ({config.optimizer.name})"))
    if config.algorithm.needs_reference:
        parts.append(Part("reference model", compute_bytes * trained, f"{compute_bytes} bytes a trained weight (KL term)"))
    return tuple(parts)


def _key_value_cache(config: Config, shape: ModelShape, compute_bytes: int, prompt_tokens: int) -> Part:
    rows = min(config.train.prompts_per_step * config.train.group_size, ENGINE_ROWS)
    tokens = prompt_tokens + config.sampling.max_new_tokens
    num_bytes = 2 * 2 * rows * tokens * shape.layers * shape.key_value_width * compute_bytes
    return Part("key-value cache", num_bytes, f"{rows} answers × {tokens} tokens × {shape.layers} layers, twice while it grows")


def _updating(config: Config, shape: ModelShape, compute_bytes: int, prompt_tokens: int) -> tuple[Part, ...]:
    answer_tokens = config.train.group_size * config.sampling.max_new_tokens
    groups = -(-config.train.prompts_per_step // config.train.minibatches)
    tokens = min(config.train.micro_batch_tokens, groups * (prompt_tokens + answer_tokens))
    logit_tokens = min(tokens, answer_tokens)
    per_token = shape.layers * (10 * shape.hidden + 4 * shape.intermediate + 2 * shape.key_value_width)
    return (
        Part(
            "activations",
            tokens * per_token * compute_bytes,
            f"{tokens:,} tokens a forward pass (prompts and their answers), kept for the backward pass",
        ),
        Part(
            "logits",
            LOGIT_COPIES * logit_tokens * shape.vocabulary * 4,
            f"{LOGIT_COPIES} × {logit_tokens:,} tokens × {shape.vocabulary:,} vocabulary × 4 bytes",
        ),
    )


def free_memory(device: str = "cpu") -> int | None:
    """Bytes that could be taken now, or None where the system does not say."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    known = [found for found in (_available(), _left_in_control_group()) if found is not None]
    return min(known) if known else None


def _available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux says could be taken without swapping."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    values: Mapping[str, str] = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(values["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in values else None


def _left_in_control_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """A container's limit less what it holds (without file pages, which it gives back when asked)."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        held = int((folder / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - held + int(stat.get("inactive_file", 0))
