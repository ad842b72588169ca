"""What TRL generated and scored, as groups: taken from the arguments and results of its own functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.composing import composed
from toishi.callbacks.settings import Mapped
from toishi.types import Completion, Group, Message, Prompt, Rollout, RolloutId, Score

HIDDEN = ("prompt", "image", "images")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What `_calculate_rewards` was given and gave: data rows, texts, token ids, values [B, functions] (NaN: None)."""

    rows: Sequence[Mapping[str, Any]]
    prompts: Sequence[Any]
    completions: Sequence[Any]
    token_ids: Sequence[Sequence[int]]
    values_BF: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One call of `_generate_and_score_completions`: what was judged, and its tensors."""

    judged: Judged
    output: Mapping[str, Any]
    policy_version: int

    @property
    def size(self) -> int:
        return len(self.judged.completions)


def groups_of(generations: Sequence[Generation], trainer: Any, step: int, found: Mapped) -> tuple[Group, ...]:
    """The step's groups: rewards summed and baselines taken in float64 from TRL's values, advantages as TRL computed them."""
    groups: list[Group] = []
    for generation in generations:
        size = int(trainer.num_generations)
        for start in range(0, generation.size, size):
            number = len(groups)
            rollouts = tuple(
                _rollout(generation, trainer, row, RolloutId(step, number, row - start)) for row in range(start, start + size)
            )
            groups.append(composed(Group(prompt=rollouts[0].prompt, rollouts=rollouts), ()))
    if "baseline" in found.missing:
        return tuple(groups)
    return _with_baselines(tuple(groups), trainer, found)


def _with_baselines(groups: tuple[Group, ...], trainer: Any, found: Mapped) -> tuple[Group, ...]:
    again = assign_advantages(groups, found.row, max_new_tokens=int(trainer.max_completion_length))
    return tuple(replace(group, baseline=other.baseline) for group, other in zip(groups, again, strict=True))


def _rollout(generation: Generation, trainer: Any, row: int, key: RolloutId) -> Rollout:
    completion = _completion(generation, trainer, row)
    advantages = generation.output["advantages"][row]
    return Rollout(
        id=key,
        prompt=_prompt(generation, row),
        completion=completion,
        scores=_scores(generation.judged.values_BF[row], trainer),
        advantage=float(advantages) if advantages.dim() == 0 else tuple(advantages[: completion.num_tokens].tolist()),
        ref_logprobs=_logprobs(generation.output.get("ref_per_token_logps"), row, completion.num_tokens) or None,
        status="truncated" if completion.is_truncated else "completed",
    )


def _scores(values_F: Tensor, trainer: Any) -> tuple[Score, ...]:
    weights = trainer.reward_weights.tolist()
    found = []
    for name, value, weight in zip(reward_names(trainer), values_F.tolist(), weights, strict=True):
        if value != value:
            found.append(Score(reward=name, value=None, weight=weight, status="abstained", reason="returned None"))
        else:
            found.append(Score(reward=name, value=value, weight=weight))
    return tuple(found)


def reward_names(trainer: Any) -> list[str]:
    """TRL's names of the reward functions; two of one name are told apart by a number.

    >>> from types import SimpleNamespace
    >>> reward_names(SimpleNamespace(reward_func_names=["length", "<lambda>", "<lambda>"]))
    ['length', '<lambda>', '<lambda>#2']
    """
    seen: dict[str, int] = {}
    names = []
    for name in trainer.reward_func_names:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names


def _completion(generation: Generation, trainer: Any, row: int) -> Completion:
    output = generation.output
    ids = tuple(int(token) for token in generation.judged.token_ids[row])
    mask = output["completion_mask"][row]
    if "tool_mask" in output:
        mask = mask * output["tool_mask"][row]
    ended = bool(ids) and ids[-1] in {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
    return Completion(
        token_ids=ids,
        loss_mask=tuple(int(value) for value in mask[: len(ids)].tolist()),
        sampled_logprobs=_logprobs(output.get("sampling_per_token_logps"), row, len(ids)),
        entropies=(),
        text=_text(generation.judged.completions[row], ids, trainer),
        finish_reason="stop" if ended else "length",
        policy_version=generation.policy_version,
    )


def _logprobs(logprobs_BT: Tensor | None, row: int, count: int) -> tuple[float, ...]:
    return () if logprobs_BT is None else tuple(logprobs_BT[row, :count].to(torch.float64).tolist())


def _text(completion: Any, ids: Sequence[int], trainer: Any) -> str:
    """The answer as the reward functions saw it; several turns are decoded from their tokens."""
    if isinstance(completion, str):
        return completion
    if len(completion) == 1 and isinstance(completion[0].get("content"), str):
        return str(completion[0]["content"])
    return str(trainer._tokenizer.decode(list(ids), skip_special_tokens=True))


def _prompt(generation: Generation, row: int) -> Prompt:
    asked, output = generation.judged.prompts[row], generation.output
    messages = None if isinstance(asked, str) else tuple(_message(message) for message in asked)
    ids = output["prompt_ids"][row][output["prompt_mask"][row].bool()].tolist()
    key = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:12]
    columns = {name: value for name, value in generation.judged.rows[row].items() if name not in HIDDEN}
    return Prompt(
        id=key,
        messages=messages,
        text=asked if messages is None else None,
        columns=columns,
        token_ids=tuple(int(token) for token in ids),
    )


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content") or ""
    return {
        "role": str(message.get("role", "")),
        "content": content if isinstance(content, str) else json.dumps(content, default=str),
    }
