"""Between the nouns of `toishi.types` and the rows of the two parquet tables, in both directions and without loss.

Decisions:
1. A rollout that took part in no update still gets one row in `tokens/` (update null): every rollout's tokens are on
   record, so that any step can be done again without sampling.
2. `gold` and the data row's other columns are JSON. What JSON cannot hold comes back as its text.
3. The reference log-probs are stored once: a rollout's and its streams' are the same numbers. So are those of the policy.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toishi.errors import RecordError
from toishi.record.files import plain
from toishi.record.schema import shard_name
from toishi.record.tables import Row
from toishi.types import (
    Completion,
    Group,
    GroupBaseline,
    Prompt,
    Rollout,
    RolloutId,
    Score,
    ScoreUse,
    StepReport,
    TokenStreams,
    Update,
)

TokenTexts = Callable[[Sequence[int]], Sequence[str]]
"""Token ids -> one readable text for each token."""

_STREAMS = ("old_logprob", "logprob", "entropy", "ratio", "clip", "kl_policy_ref", "divergence", "advantage", "token_weight")


# nouns -> rows


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
        "ref_logprob": None if rollout.ref_logprobs is None else list(rollout.ref_logprobs),
    }
    _check_lengths(rollout.id, cells, completion.num_tokens)
    return cells | dict.fromkeys(_STREAMS) | {"old_logprob": list(rollout.policy_logprobs or ()) or None}


def _update_cells(index: int, streams: TokenStreams, rollout: Rollout) -> Row:
    cells: Row = {name: list(getattr(streams, name)) or None for name in _STREAMS}
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


# rows -> nouns


def groups_of(rollout_table: Iterable[Row], token_table: Iterable[Row]) -> tuple[Group, ...]:
    """The step's groups out of the two tables' rows.

    Raises RecordError when a rollout has no row in the tokens table.
    """
    tokens = {_key(row): row for row in token_table}
    members: dict[int, list[tuple[Row, Rollout]]] = defaultdict(list)
    for row in rollout_table:
        if _key(row) not in tokens:
            raise RecordError(f"rollout {_key(row)} has no row in tokens/{shard_name(row['step'])}")
        members[row["group"]].append((row, _rollout(row, tokens[_key(row)])))
    return tuple(
        Group(
            prompt=rows[0][1].prompt,
            rollouts=tuple(rollout for _, rollout in rows),
            baseline=_baseline(rows[0][0]),
        )
        for rows in members.values()
    )


def streams_of(token_table: Iterable[Row]) -> dict[int, tuple[TokenStreams, ...]]:
    """Update index -> its streams, in the order they were written."""
    streams: dict[int, list[TokenStreams]] = defaultdict(list)
    for row in token_table:
        if row["update"] is not None:
            streams[row["update"]].append(_streams(row))
    return {index: tuple(items) for index, items in streams.items()}


def updates_of(
    step: int, scalars: Sequence[Mapping[str, float]], streams: Mapping[int, tuple[TokenStreams, ...]]
) -> tuple[Update, ...]:
    """A step's updates from their scalars and the streams of each."""
    return tuple(
        Update(step=step, index=index, scalars=values, streams=streams.get(index, ())) for index, values in enumerate(scalars)
    )


def _key(row: Row) -> RolloutId:
    return RolloutId(step=row["step"], group=row["group"], member=row["member"])


def _rollout(row: Row, tokens: Row) -> Rollout:
    advantage = row["advantage"] if row["token_advantages"] is None else tuple(row["token_advantages"])
    return Rollout(
        id=_key(row),
        prompt=_prompt(row),
        completion=Completion(
            token_ids=tuple(tokens["token_ids"]),
            loss_mask=tuple(tokens["loss_mask"]),
            sampled_logprobs=tuple(tokens["sampled_logprob"] or ()),
            entropies=tuple(tokens["sampled_entropy"] or ()),
            text=row["completion"],
            finish_reason=row["finish_reason"],
            policy_version=row["policy_version"],
        ),
        scores=tuple(_score(cell) for cell in row["scores"]),
        reward=row["reward"],
        advantage=advantage,
        ref_logprobs=None if tokens["ref_logprob"] is None else tuple(tokens["ref_logprob"]),
        policy_logprobs=None if tokens["sampled_logprob"] or not tokens["old_logprob"] else tuple(tokens["old_logprob"]),
        status=row["status"],
        failure=row["failure"],
    )


def _prompt(row: Row) -> Prompt:
    messages = None if row["prompt_messages"] is None else tuple(_loads(row, "prompt_messages"))
    return Prompt(
        id=row["prompt_id"],
        messages=messages,
        text=row["prompt"] if messages is None else None,
        gold=_loads(row, "gold"),
        columns=_loads(row, "columns"),
        token_ids=tuple(row["prompt_token_ids"]),
        prefill=row["prompt_prefill"],
    )


def _loads(row: Row, column: str) -> Any:
    try:
        return json.loads(row[column])
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"rollout {_key(row)}: column {column} is not JSON ({error}). Restore the shard from a copy"
        ) from None


def _score(cell: Row) -> Score:
    use: ScoreUse = cell.get("use") or "counted"  # shards of the first runs have neither use nor kind
    span = None if cell["span_start"] is None else (cell["span_start"], cell["span_end"])
    return Score(
        reward=cell["reward"],
        value=cell["value"],
        weight=cell["weight"],
        reason=cell["reason"],
        status=cell["status"],
        span=span,
        readable=cell["readable"],
        kind=cell.get("kind") or "",
        use=use,
        paid=None if use == "counted" else cell["contribution"],
    )


def _baseline(row: Row) -> GroupBaseline | None:
    if row["group_count"] is None:
        return None
    return GroupBaseline(
        mean=row["group_mean"],
        std=row["group_std"],
        count=row["group_count"],
        kept=row["group_kept"],
        why=row["group_why"],
    )


def _streams(row: Row) -> TokenStreams:
    reference = row["ref_logprob"] if row["computed"] else None
    return TokenStreams(
        rollout=_key(row),
        computed=row["computed"],
        ref_logprob=tuple(reference or ()),
        **{name: tuple(row[name] or ()) for name in _STREAMS},
    )
