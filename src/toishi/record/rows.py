"""From the nouns of `toishi.types` to the rows of the two parquet tables, without loss; `nouns` is the way back.

Decisions:
1. A rollout that took part in no update still gets one row in `tokens/` (update null): every rollout's tokens are on
   record, so that any step can be done again without sampling.
2. `gold` and the data row's other columns are JSON. What JSON cannot hold comes back as its text.
3. The reference log-probs are stored once: a rollout's and its streams' are the same numbers. So are those of the policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toishi.errors import RecordError
from toishi.record.files import plain
from toishi.record.tables import Row
from toishi.types import (
    Group,
    GroupBaseline,
    Prompt,
    Rollout,
    RolloutId,
    Score,
    StepReport,
    TokenStreams,
)

TokenTexts = Callable[[Sequence[int]], Sequence[str]]
"""Token ids -> one readable text for each token."""

STREAMS = (
    "old_logprob", "logprob", "entropy", "ratio", "clip", "kl_policy_ref", "divergence", "advantage", "token_weight", "value",
    "value_weight",
)  # fmt: skip
"""Streams of an update that are columns of the same name."""


def rollout_rows(report: StepReport) -> list[Row]:
    """A row of `rollouts/` for each rollout of the step, in order."""
    return [_rollout_row(group, rollout) for group in report.groups for rollout in group.rollouts]


def _rollout_row(group: Group, rollout: Rollout) -> Row:
    completion, advantage = rollout.completion, rollout.advantage
    per_token = isinstance(advantage, tuple)
    return {
        "step": rollout.id.step,
        "group": rollout.id.group,
        "member": rollout.id.member,
        **_prompt_cells(rollout.prompt),
        "completion": _utf8(completion.text),
        "finish_reason": completion.finish_reason,
        "num_tokens": completion.num_tokens,
        "policy_version": completion.policy_version,
        "status": rollout.status,
        "failure": _utf8(rollout.failure),
        "scores": [_score_cell(score) for score in rollout.scores],
        "reward": rollout.reward,
        **_baseline_cells(group.baseline),
        "advantage": None if per_token else advantage,
        "token_advantages": list(advantage) if isinstance(advantage, tuple) else None,
        "value_after": rollout.value_after,
    }


def _prompt_cells(prompt: Prompt) -> Row:
    return {
        "prompt_id": prompt.id,
        "prompt": _utf8(prompt.shown),
        "prompt_messages": None if prompt.messages is None else _json(prompt.messages),
        "prompt_token_ids": list(prompt.token_ids),
        "prompt_prefill": _utf8(prompt.prefill),
        "gold": _json(prompt.gold),
        "columns": _json(prompt.columns),
    }


def _baseline_cells(baseline: GroupBaseline | None) -> Row:
    if baseline is None:
        return dict.fromkeys(("group_mean", "group_std", "group_count", "group_kept", "group_why"))
    return {
        "group_mean": baseline.mean,
        "group_std": baseline.std,
        "group_count": baseline.count,
        "group_kept": baseline.kept,
        "group_why": baseline.why,
    }


def _score_cell(score: Score) -> Row:
    start, end = score.span or (None, None)
    return {
        "reward": score.reward,
        "value": score.value,
        "weight": score.weight,
        "contribution": score.contribution,
        "status": score.status,
        "reason": _utf8(score.reason),
        "span_start": start,
        "span_end": end,
        "readable": score.readable,
        "kind": score.kind,
        "use": score.use,
    }


def token_rows(report: StepReport, token_texts: TokenTexts | None, *, streams: bool) -> list[Row]:
    """A row of `tokens/` for each rollout and update, then one for each rollout that took part in none."""
    rollouts = {rollout.id: rollout for rollout in report.rollouts}
    sampled = {key: _sampled_cells(rollout, token_texts) for key, rollout in rollouts.items()}
    rows = []
    seen = set()
    for update in report.updates if streams else ():
        for stream in update.streams:
            if stream.rollout not in rollouts:
                raise RecordError(f"update {update.id} has streams of rollout {stream.rollout}, which the step does not have")
            seen.add(stream.rollout)
            rows.append(sampled[stream.rollout] | _update_cells(update.index, stream, rollouts[stream.rollout]))
    return rows + [sampled[key] for key in rollouts if key not in seen]


def _sampled_cells(rollout: Rollout, token_texts: TokenTexts | None) -> Row:
    completion = rollout.completion
    texts = None if token_texts is None else [_utf8(text) for text in token_texts(completion.token_ids)]
    cells: Row = {
        "step": rollout.id.step,
        "update": None,
        "group": rollout.id.group,
        "member": rollout.id.member,
        "computed": False,
        "token_ids": list(completion.token_ids),
        "token_texts": texts,
        "loss_mask": list(completion.loss_mask),
        "sampled_logprob": list(completion.sampled_logprobs) or None,
        "sampled_entropy": list(completion.entropies) or None,
        **{name: None if numbers is None else list(numbers) for name, numbers in _known_before(rollout).items()},
    }
    _check_lengths(rollout.id, cells, completion.num_tokens)
    return cells | dict.fromkeys(STREAMS) | {"old_logprob": list(rollout.policy_logprobs or ()) or None}


def _known_before(rollout: Rollout) -> dict[str, Sequence[float] | None]:
    """What is known of its tokens before the step's first update, and so is the same in all of them."""
    return {"ref_logprob": rollout.ref_logprobs, "old_value": rollout.values, "return": rollout.returns}


def _update_cells(index: int, streams: TokenStreams, rollout: Rollout) -> Row:
    cells: Row = {name: list(getattr(streams, name)) or None for name in STREAMS}
    reference = streams.ref_logprob or rollout.ref_logprobs
    cells["ref_logprob"] = None if reference is None else list(reference) or None
    if streams.ref_logprob and rollout.ref_logprobs not in (None, streams.ref_logprob):
        raise RecordError(f"rollout {rollout.id}: its reference log-probs differ from those of update {index}")
    _check_lengths(rollout.id, cells, rollout.completion.num_tokens)
    return cells | {"update": index, "computed": streams.computed}


def _check_lengths(key: RolloutId, cells: Mapping[str, Any], expected: int) -> None:
    for name, values in cells.items():
        if isinstance(values, list) and len(values) != expected:
            raise RecordError(f"rollout {key}: {name} has {len(values)} numbers for an answer of {expected} tokens")


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=True, allow_nan=False)


def _utf8(text: str) -> str:
    """Lone surrogates (broken text from a data file) become visible escapes: parquet takes valid Unicode only."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
