"""Answers to audit a judge on: from a file of labelled answers, or from the record of a run.

Decisions:
1. Rows with the same prompt (and right answer) are siblings, wherever they stand in the file.
2. Every bad row is named before anything is asked. Of labels, either all rows have one or none has.
3. A run's latest steps come first: the judge is measured on the answers that the policy gives now.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toishi.errors import DataError
from toishi.record import Run
from toishi.tasks.data import read_rows
from toishi.tasks.rows import RowReading, prompts_from_rows
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId

SOURCES = ("own", "other")
_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnswers:
    """Groups of answers, and what is known of them.

    labels, sources  by answer; empty where nothing is known
    recorded         the groups come from a run, with the scores that its rewards gave then
    """

    groups: tuple[Group, ...]
    labels: Mapping[RolloutId, float] = field(default_factory=dict)
    sources: Mapping[RolloutId, str] = field(default_factory=dict)
    recorded: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The columns that every prompt has."""
        return frozenset.intersection(*(frozenset(group.prompt.columns) for group in self.groups))


def answers_of_file(path: Path, *, limit: int, gold_column: str = "gold") -> AuditAnswers:
    """The first `limit` rows of a JSONL, CSV or Parquet file: prompt and answer, and as far as known label, source and gold.

    label   true, false or a number
    source  "own" for answers of the judge's own model, "other" for others
    Raises DataError that lists every bad row, ConfigError for a file that is not there.
    """
    rows = list(read_rows(path))[:limit]
    plain = [
        (number, {key: value for key, value in row.items() if key != "id"} if isinstance(row, Mapping) else row)
        for number, row in rows
    ]
    has_gold = any(isinstance(row, Mapping) and row.get(gold_column) is not None for _, row in plain)
    reading = RowReading(gold_column=gold_column if has_gold else None)
    prompts = prompts_from_rows(plain, reading, source=str(path))
    _refuse_bad(path, plain)
    groups: dict[str, list[tuple[Prompt, Mapping[str, Any]]]] = {}
    for prompt, (_, row) in zip(prompts, plain, strict=True):
        key = json.dumps([prompt.messages, prompt.text, prompt.gold], default=str)
        groups.setdefault(key, []).append((prompt, row))
    found, labels, sources = [], {}, {}
    for number, answers in enumerate(groups.values()):
        rollouts = []
        for member, (_, row) in enumerate(answers):
            id_ = RolloutId(0, number, member)
            rollouts.append(Rollout(id=id_, prompt=answers[0][0], completion=_completion(row["answer"])))
            if row.get("label") is not None:
                labels[id_] = float(row["label"])
            if row.get("source"):
                sources[id_] = row["source"]
        found.append(Group(prompt=answers[0][0], rollouts=tuple(rollouts)))
    return AuditAnswers(groups=tuple(found), labels=labels, sources=sources)


def answers_of_run(run: Run, *, limit: int) -> AuditAnswers:
    """Recorded groups, the latest step's first, until there are `limit` answers. Raises DataError for a run without steps."""
    groups: list[Group] = []
    for step in sorted(run.steps, reverse=True):
        for group in run.step(step).groups:
            if sum(len(one.rollouts) for one in groups) >= limit:
                break
            # one prompt may come again in another step: its answers are no siblings of these
            prompt = replace(group.prompt, id=f"{step}/{group.prompt.id}")
            groups.append(replace(group, prompt=prompt, rollouts=tuple(replace(one, prompt=prompt) for one in group.rollouts)))
    if not groups:
        raise DataError(
            f"{run.folder} has no step on record, so there is no answer to audit on; give labelled answers: --labels"
        )
    return AuditAnswers(groups=tuple(groups), recorded=True)


def _completion(text: str) -> Completion:
    """A text that no model sampled here: one made-up token a word, one that stops."""
    count = len(text.split()) + 1
    zeros = (0.0,) * count
    return Completion(
        token_ids=(0,) * count, loss_mask=(1,) * count, sampled_logprobs=zeros, entropies=zeros, text=text, finish_reason="stop"
    )


def _refuse_bad(path: Path, rows: Iterable[tuple[int, Any]]) -> None:
    """Raises one DataError for all rows whose answer, label or source cannot be used."""
    listed = list(rows)
    problems = [f"  row {number}: {problem}" for number, row in listed if (problem := _problem(row))]
    unlabelled = [number for number, row in listed if row.get("label") is None]
    if unlabelled and len(unlabelled) < len(listed):
        problems += [f"  row {number}: it has no label, and other rows have one" for number in unlabelled]
    if problems:
        more = [f"  ... and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
        head = f"{path}: rows that cannot be used for an audit:"
        raise DataError("\n".join([head, *problems[:_MAX_SHOWN], *more, "Mend or remove these rows."]))


def _problem(row: Mapping[str, Any]) -> str | None:
    if not isinstance(row.get("answer"), str):
        return f"'answer' must be the answer as text, got {row.get('answer')!r:.60}"
    label = row.get("label")
    if label is not None and (not isinstance(label, bool | int | float) or not math.isfinite(label)):
        return f"'label' must be true, false or a number, got {label!r:.60}"
    if row.get("source") and row["source"] not in SOURCES:
        return f"'source' must be own or other, got {row['source']!r:.60}"
    return None
