"""From the rows of the two parquet tables back to the nouns of `toishi.types`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toishi.errors import RecordError
from toishi.record.rows import STREAMS
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
    TokenStreams,
    Update,
)


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
        ref_logprobs=_numbers(tokens["ref_logprob"]),
        values=_numbers(tokens["old_value"]),
        value_after=row["value_after"],
        returns=_numbers(tokens["return"]),
        policy_logprobs=None if tokens["sampled_logprob"] or not tokens["old_logprob"] else tuple(tokens["old_logprob"]),
        status=row["status"],
        failure=row["failure"],
    )


def _numbers(cell: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if cell is None else tuple(cell)


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
        **{name: tuple(row[name] or ()) for name in STREAMS},
    )
