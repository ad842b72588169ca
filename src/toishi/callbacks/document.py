"""run.json of a run that TRL trains."""

from __future__ import annotations

import os
from importlib import metadata
from typing import Any

import torch

from toishi.callbacks.measuring import compute_dtype, unknown_step
from toishi.callbacks.samples import reward_names
from toishi.callbacks.settings import Mapped
from toishi.config import Config
from toishi.policy.fingerprint import weights_fingerprint
from toishi.record.environment import environment
from toishi.record.source import Source

MEANT = {
    "sft": "TRLRecorder does not put SFT beside a step: it would take backward passes of its own.",
}


def run_record(trainer: Any, found: Mapped) -> dict[str, Any]:
    """What run.json says: TRL's settings as toishi's, TRL's own beside them, and what is missing."""
    args, model = trainer.args, trainer.model
    config = config_of(trainer, found)
    weights = dict(model.named_parameters())
    return {
        "config": config,
        "config_given": {"trl": {name: value for name, value in args.to_dict().items() if value is not None}},
        "seed": int(args.seed),
        "decisions": {
            "dtype": compute_dtype(trainer),
            "device": str(trainer.accelerator.device),
            "threads": torch.get_num_threads(),
        },
        "model": {
            "source": str(getattr(model.config, "_name_or_path", "") or type(model).__name__),
            "fingerprint": weights_fingerprint(model),
            "parameters": sum(weight.numel() for weight in weights.values()),
            "trained": sum(weight.numel() for weight in weights.values() if weight.requires_grad),
            "architecture": type(model).__name__,
        },
        "prompt": None,
        "heldout_prompt": None,
        "environment": environment() | {"omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "")},
        "source": source(trainer, found).as_record(),
    }


def source(trainer: Any, found: Mapped) -> Source:
    """Who trained, and what is not on record."""
    missing = dict(found.missing) | MEANT
    if why := unknown_step(trainer.model, trainer.optimizer):
        missing["change"] = why
    if _has_dropout(trainer.model):
        missing["effect"] = (
            "The model trains with dropout, so the log-probs of the training pass are not those of the weights alone; "
            "traces/ holds them without dropout, before and after, and they are not held against the training pass."
        )
    return Source(
        program="trl",
        version=metadata.version("trl"),
        how="recorded",
        single_precision=True,
        missing=missing,
        notes=_notes(trainer),
    )


def _has_dropout(model: Any) -> bool:
    layers = any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules())
    return layers or float(getattr(model.config, "attention_dropout", None) or 0.0) > 0


def _notes(trainer: Any) -> tuple[str, ...]:
    found = [
        "Rewards, group means and spreads are sums of TRL's per-function values, taken again in float64; advantages, log-probs "
        "and token weights are TRL's own numbers."
    ]
    if not trainer.use_vllm:
        found.append("TRL does not say the log-probs under which transformers sampled, so the sampler gap is not on record.")
    return tuple(found)


def config_of(trainer: Any, found: Mapped) -> dict[str, Any]:
    """TRL's settings in toishi's words; what has no word is in config_given."""
    args = trainer.args
    weights = trainer.reward_weights.tolist()
    sections = [{"name": name, "weight": weight} for name, weight in zip(reward_names(trainer), weights, strict=True)]
    base = Config(name="trl", description="trained by TRL").model_dump(mode="json")
    prompts = args.per_device_train_batch_size * args.steps_per_generation // trainer.num_generations
    base |= {
        "seed": int(args.seed),
        "algorithm": found.row.model_dump(mode="json"),
        "rewards": sections,
        "model": base["model"] | {"name": str(getattr(trainer.model.config, "_name_or_path", ""))},
        "sampling": base["sampling"]
        | {
            "temperature": float(args.temperature),
            "top_p": float(args.top_p),
            "top_k": int(args.top_k or 0),
            "min_p": float(args.min_p or 0.0),
            "max_new_tokens": int(trainer.max_completion_length),
        },
        "train": base["train"]
        | {
            "steps": int(trainer.state.max_steps),
            "prompts_per_step": max(1, prompts),
            "group_size": int(trainer.num_generations),
            "inner_epochs": int(trainer.num_iterations),
        },
        "optimizer": base["optimizer"]
        | {
            "name": str(args.optim),
            "lr": float(args.learning_rate),
            "weight_decay": float(args.weight_decay),
            "max_grad_norm": float(args.max_grad_norm) if args.max_grad_norm else None,
        },
    }
    return base
