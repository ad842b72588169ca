"""A run as UNIPO's canonical JSON (github.com/poloclub/unipo, docs/canonical_schema.json): header, and an entry an update.

UNIPO shows how an objective is made of its formula's numbers. Its fields end before the update, so weight change and
probabilities afterwards are not in the file. Where its schema asks for a number that is not on record, the export is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from toishi.errors import ConfigError, RecordError
from toishi.record import Run
from toishi.types import Group, Rollout, StepReport, TokenStreams, Update

METRICS = {
    "reward_std": "reward/std",
    "entropy": "entropy/mean_nats",
    "kl": "update/kl_policy_ref",
    "response_length": "answers/mean_tokens",
    "importance_sampling_ratio": "update/ratio_mean",
}
"""UNIPO's conventional name -> toishi's."""


def unipo_document(run: Run, steps: Sequence[int], *, group: int | None = None) -> dict[str, Any]:
    """The document of some steps; `group` limits them to one prompt.

    Raises RecordError when a step holds no token streams, which UNIPO colours tokens by.
    """
    entries: list[dict[str, Any]] = []
    for step in steps:
        entries += _entries(run, run.step(step), group, len(entries))
    return {"header": _header(run, len(entries)), "entries": entries}


def _header(run: Run, total: int) -> dict[str, Any]:
    config = run.run["config"]
    row, sizes = config["algorithm"], config["train"]
    rewards = " + ".join(f"{section.get('weight', 1.0):g} x {section['name']}" for section in config["rewards"])
    choices = {name: value for name, value in row.items() if isinstance(value, int | float | str) and name != "name"}
    task = "not on record" if run.run.get("source") else str(config["task"].get("name", ""))
    return {
        "task": task,
        "dataset": task,
        "reward_strategy": rewards,
        "algorithm": str(row["name"]),
        "totalSteps": total,
        "model_name": str(run.run["model"]["source"]),
        "reference_model_name": str(run.run["model"]["source"]),
        "hparams": {"group_size": sizes["group_size"], "learning_rate": config["optimizer"]["lr"], **choices},
    }


def _entries(run: Run, report: StepReport, group: int | None, first: int) -> list[dict[str, Any]]:
    numbers = [found.rollouts[0].id.group for found in report.groups]
    if group is not None and group not in numbers:
        raise ConfigError(f"step {report.step} has no group {group}; it has groups {numbers[0]} to {numbers[-1]}")
    if not any(update.streams for update in report.updates):
        raise RecordError(
            f"{run.folder}: step {report.step} has no log-probs of its tokens on record, which UNIPO's schema is made of. "
            "Export it as jsonl instead"
        )
    texts = {(row["group"], row["member"]): row["token_texts"] for row in run.token_rows(report.step)}
    return [
        {
            "step": first + place,
            "is_first_step_after_rollout_phase": place == 0,
            "metrics": _metrics(report, update),
            "prompts": [
                _prompt(found, update, texts) for found in report.groups if group in (None, found.rollouts[0].id.group)
            ],
        }
        for place, update in enumerate(report.updates)
    ]


def _metrics(report: StepReport, update: Update) -> dict[str, float]:
    numbers: dict[str, Any] = {name: report.metrics.get(ours) for name, ours in METRICS.items()}
    loss = update.scalars.get("update/loss")
    numbers |= {
        "policy_objective": None if loss is None else -loss,
        "reward": report.metrics.get("reward/mean"),
        "policy_loss": loss,
        "total_loss": loss,
        "grad_norm": update.scalars.get("update/grad_norm"),
        "learning_rate": update.scalars.get("update/lr"),
    }
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


def _prompt(group: Group, update: Update, texts: Mapping[tuple[int, int], Sequence[str] | None]) -> dict[str, Any]:
    streams = {stream.rollout: stream for stream in update.streams}
    return {
        "prompt": group.prompt.shown,
        "responses": [_response(rollout, streams.get(rollout.id), texts) for rollout in group.rollouts],
    }


def _response(
    rollout: Rollout, stream: TokenStreams | None, texts: Mapping[tuple[int, int], Sequence[str] | None]
) -> dict[str, Any]:
    completion, key = rollout.completion, rollout.id
    pieces = texts.get((key.group, key.member)) or [str(token) for token in completion.token_ids]
    tokens: dict[str, Any] = {"ids": list(completion.token_ids), "strings": list(pieces)}
    if stream is not None:
        tokens |= _streams(stream)
    advantages = rollout.advantage_per_token
    whole = sum(advantages) / len(advantages) if isinstance(rollout.advantage, tuple) and advantages else rollout.advantage
    return {
        "id": f"step{key.step}_p{key.group}_sample{key.member}",
        "reward": rollout.reward,
        "advantage": whole,
        "response_text": completion.text,
        "response_length": completion.num_tokens,
        "tokens": tokens | {"advantages": list(advantages)},
    }


def _streams(stream: TokenStreams) -> dict[str, list[float]]:
    named = {
        "log_probs": stream.logprob or stream.old_logprob,
        "old_log_probs": stream.old_logprob,
        "ref_log_probs": stream.ref_logprob,
        "token_kl": stream.kl_policy_ref,
    }
    return {name: list(values) for name, values in named.items() if values}
