"""What every importer reads answers into: one noun, and from it the groups of a step.

Decisions:
1. A field that the format does not have is None here and null in the record. Its link is named as missing, with the reason.
2. Formats keep the answers to a prompt together, so a group is a run of equal keys. Where the key is the prompt itself, two
   groups of one prompt that follow each other cannot be told apart, and the note says so.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toishi.errors import DataError
from toishi.types import Completion, FinishReason, Group, Message, Prompt, Rollout, RolloutId, Score, TokenStreams


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of another program's file.

    key         what its siblings share
    prompt      text, or messages
    scores      (name, value or None, weight)
    advantage   a number, one per token, or None
    tokens      ids of the answer's tokens, with the streams that the format has: all of one length, or empty
    """

    step: int
    key: str
    prompt: str | tuple[Message, ...]
    text: str
    scores: tuple[tuple[str, float | None, float], ...]
    advantage: float | tuple[float, ...] | None = None
    gold: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    loss_mask: tuple[int, ...] = ()
    sampled_logprobs: tuple[float, ...] = ()
    streams: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    finish_reason: FinishReason = "unknown"


def grouped(answers: Sequence[Answer]) -> tuple[Group, ...]:
    """The groups of one step: neighbours with the same key. Their rewards are still to be composed from the scores.

    >>> one = Answer(step=3, key="a", prompt="1+1", text="2", scores=(("score", 1.0, 1.0),))
    >>> (group,) = grouped([one, one])
    >>> [(str(rollout.id), rollout.scores[0].value) for rollout in group.rollouts]
    [('3/0/0', 1.0), ('3/0/1', 1.0)]
    """
    runs = [list(members) for _, members in itertools.groupby(answers, key=lambda answer: answer.key)]
    return tuple(_group(number, members) for number, members in enumerate(runs))


def _group(number: int, members: Sequence[Answer]) -> Group:
    prompt = _prompt(members[0])
    rollouts = (_rollout(answer, prompt, RolloutId(answer.step, number, place)) for place, answer in enumerate(members))
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def _prompt(answer: Answer) -> Prompt:
    messages = None if isinstance(answer.prompt, str) else answer.prompt
    return Prompt(
        id=hashlib.sha256(answer.key.encode("utf-8", "backslashreplace")).hexdigest()[:12],
        messages=messages,
        text=answer.prompt if isinstance(answer.prompt, str) else None,
        gold=answer.gold,
        columns=dict(answer.columns),
        token_ids=answer.prompt_ids,
    )


def _rollout(answer: Answer, prompt: Prompt, key: RolloutId) -> Rollout:
    return Rollout(
        id=key,
        prompt=prompt,
        completion=Completion(
            token_ids=answer.token_ids,
            loss_mask=answer.loss_mask,
            sampled_logprobs=answer.sampled_logprobs,
            entropies=(),
            text=answer.text,
            finish_reason=answer.finish_reason,
        ),
        scores=tuple(
            Score(reward=name, value=value, weight=weight, **({} if value is not None else _NOTHING))
            for name, value, weight in answer.scores
        ),
        advantage=answer.advantage,
    )


_NOTHING: dict[str, Any] = {"status": "abstained", "reason": "no value in the file"}


def streams_of(answers: Sequence[Answer], groups: Sequence[Group]) -> tuple[TokenStreams, ...]:
    """The per-token numbers of a step's answers, where the format has them."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return tuple(
        TokenStreams(rollout=rollout.id, computed=True, advantage=rollout.advantage_per_token, **answer.streams)
        for answer, rollout in zip(answers, rollouts, strict=True)
        if answer.streams
    )


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSONL file. A last line that was cut is left out.

    Raises DataError for another line that is no JSON object.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise DataError(
                f"{path}, line {number}: expected a JSON object ({error}). Repair the line or take it out"
            ) from None
        if not isinstance(value, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, got {line[:60]!r}")
        yield number, value


def required(row: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    """Raises DataError that names the fields which a row lacks."""
    missing = [name for name in names if name not in row]
    if missing:
        raise DataError(f"{where}: {', '.join(missing)} is missing; it has {', '.join(map(str, row))}. Is it of this format?")


def number_or_none(value: Any, where: str) -> float | None:
    """A finite number; None for null and NaN, which stand for 'no value'. Raises DataError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        if isinstance(value, bool):
            return float(value)
        raise DataError(f"{where}: expected a number or null, got {value!r:.60}")
    return None if value != value else float(value)
