"""Changes a record and mends its seals, as nobody does by accident: only doing the step again can find it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from toishi.record import Run
from toishi.record.chain import PREVIOUS
from toishi.record.files import json_line, sha256_file, write_json
from toishi.record.rows import rollout_rows, token_rows
from toishi.record.schema import ROLLOUT_SCHEMA, TOKEN_SCHEMA, shard_name
from toishi.record.tables import write_table
from toishi.types import StepReport


def forge_line(folder: Path, step: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Changes the step's line of metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    texts: list[str] = []
    for line in lines:
        before = json.loads(texts[-1])["seal"] if texts else None
        texts.append(json_line((change(line) if line["step"] == step else line) | {PREVIOUS: before}))
    (folder / "metrics.jsonl").write_text("".join(texts))


def forge_step(folder: Path, step: int, change: Callable[[StepReport], StepReport]) -> None:
    """Changes the step's two shards."""
    report = change(Run.open(folder).step(step))
    rollouts, tokens = folder / "rollouts" / shard_name(step), folder / "tokens" / shard_name(step)
    write_table(rollouts, rollout_rows(report), ROLLOUT_SCHEMA)
    write_table(tokens, token_rows(report, None, streams=True), TOKEN_SCHEMA)
    sums = {"rollouts_sha256": sha256_file(rollouts), "tokens_sha256": sha256_file(tokens)}
    forge_line(folder, step, lambda line: line | sums)


def forge_run(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Changes run.json."""
    write_json(folder / "run.json", change(json.loads((folder / "run.json").read_text())))


def with_stream(report: StepReport, name: str, token: int, change: Callable[[float], float], update: int = 0) -> StepReport:
    """The report with one number changed, in the first computed stream that has such a token."""
    streams = list(report.updates[update].streams)
    place = next(place for place, stream in enumerate(streams) if stream.computed and len(getattr(stream, name)) > token)
    values = list(getattr(streams[place], name))
    values[token] = change(values[token])
    changes: dict[str, Any] = {name: tuple(values)}
    streams[place] = replace(streams[place], **changes)
    updates = list(report.updates)
    updates[update] = replace(updates[update], streams=tuple(streams))
    return replace(report, updates=tuple(updates))


def with_rollout(report: StepReport, change: Callable[[Any], Any]) -> StepReport:
    """The report with its second rollout changed."""
    group, *others = report.groups
    rollouts = tuple(change(rollout) if place == 1 else rollout for place, rollout in enumerate(group.rollouts))
    return replace(report, groups=(replace(group, rollouts=rollouts), *others))
