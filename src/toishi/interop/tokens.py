"""Formats that hold whole token sequences: prompt and answer are told apart by the loss mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toishi.errors import DataError
from toishi.interop.answers import Answer, json_lines, number_or_none, required

Decode = Callable[[Sequence[int]], str]


def nemo_answers(path: Path, step: int) -> Iterator[Answer]:
    """NeMo-RL's train_data_step{N}.jsonl: content, rewards, lengths, padded sequences of ids, masks, advantages, log-probs."""
    for number, packed in json_lines(path):
        where = f"{path}, line {number}"
        row = {name: unpacked(value) for name, value in packed.items()}
        required(row, ("content", "rewards"), where)
        texts = [row["content"]] if isinstance(row["content"], str) else [str(text) for text in row["content"]]
        ids, mask = whole_numbers(row.get("token_ids"), where), whole_numbers(row.get("token_loss_mask"), where)
        length = int(row.get("input_lengths") or len(ids))
        start, end = answer_span(mask[:length], length) if ids and mask else (0, 0)
        kept = mask[start:end] if row.get("sample_loss_mask", 1) else [0] * (end - start)
        reward = row.get("filtered_rewards", row["rewards"])
        yield Answer(
            step=step,
            key=repr(ids[:start] if start else texts[:-1]),
            prompt="\n".join(texts[:-1]),
            text=texts[-1],
            scores=(("reward", number_or_none(reward, where), 1.0),),
            advantage=advantage_of(row.get("advantages"), start, end, mask),
            prompt_ids=tuple(ids[:start]),
            token_ids=tuple(ids[start:end]),
            loss_mask=tuple(kept),
            sampled_logprobs=cut(row.get("generation_logprobs"), start, end) or (),
            streams=present({"old_logprob": cut(row.get("prev_logprobs"), start, end)}),
        )


def prime_answers(path: Path, decode: Decode | None) -> Iterator[Answer]:
    """prime-rl's token_exports/step_N/rank_R.jsonl: a sequence a line, all arrays as long as its token ids."""
    for number, row in json_lines(path):
        where = f"{path}, line {number}"
        required(row, ("step", "token_ids", "loss_mask", "advantages"), where)
        ids, mask = whole_numbers(row["token_ids"], where), [int(bool(value)) for value in row["loss_mask"]]
        if len(ids) != len(mask):
            raise DataError(f"{where}: {len(ids)} token_ids and {len(mask)} values of loss_mask; they belong together")
        start, end = answer_span(mask, len(ids))
        rewards = [value for value in row.get("rewards") or () if value is not None]
        shown = decode or as_numbers
        ratio = cut(row.get("importance_ratio"), start, end)
        yield Answer(
            step=int(row.get("export_step", row["step"])),
            key=repr(ids[:start]),
            prompt=shown(ids[:start]),
            text=shown(ids[start:end]),
            scores=(("reward", number_or_none(rewards[-1], where) if rewards else None, 1.0),),
            advantage=advantage_of(row["advantages"], start, end, mask),
            columns={"env_name": row["env_name"]} if row.get("env_name") else {},
            prompt_ids=tuple(ids[:start]),
            token_ids=tuple(ids[start:end]),
            loss_mask=tuple(mask[start:end]),
            sampled_logprobs=cut(row.get("inference_logprobs"), start, end) or (),
            streams=present(
                {
                    "logprob": cut(row.get("trainer_logprobs"), start, end),
                    "entropy": cut(row.get("entropy"), start, end),
                    "ratio": ratio,
                }
            ),
        )


def as_numbers(token_ids: Sequence[int]) -> str:
    """What stands for a text where no tokenizer is at hand.

    >>> as_numbers([5, 2])
    '<5> <2>'
    """
    return " ".join(f"<{token}>" for token in token_ids)


def unpacked(value: Any) -> Any:
    """A value out of a batch of one, as NeMo-RL writes every field.

    >>> unpacked([[1, 2]]), unpacked([0.5]), unpacked(3)
    ([1, 2], 0.5, 3)
    """
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def answer_span(mask: Sequence[int], length: int) -> tuple[int, int]:
    """[start, end) of the answer: from the first token with loss to the end of the sequence.

    >>> answer_span([0, 0, 1, 1, 0], 5), answer_span([0, 0], 2)
    ((2, 5), (2, 2))
    """
    start = next((place for place, value in enumerate(mask) if value), length)
    return start, length


def cut(values: Any, start: int, end: int) -> tuple[float, ...] | None:
    """The answer's part of a sequence of numbers; None where it is not there or has gaps."""
    if not isinstance(values, list) or len(values) < end:
        return None
    part = values[start:end]
    return None if any(value is None for value in part) else tuple(map(float, part))


def advantage_of(values: Any, start: int, end: int, mask: Sequence[int]) -> float | tuple[float, ...] | None:
    """One number where all tokens with loss have the same, else one for each token.

    >>> advantage_of([0.0, 0.5, 0.5, 0.0], 1, 4, [0, 1, 1, 0]), advantage_of([0.0, 0.5, 1.0], 1, 3, [0, 1, 1])
    (0.5, (0.5, 1.0))
    >>> advantage_of(-0.25, 0, 0, []), advantage_of(None, 0, 0, []) is None
    (-0.25, True)
    """
    if isinstance(values, int | float):
        return float(values)
    part = cut(values, start, end)
    if not part:
        return None
    trained = {value for value, has_loss in zip(part, mask[start:end], strict=True) if has_loss}
    return trained.pop() if len(trained) == 1 else part


def present(streams: Mapping[str, tuple[float, ...] | None]) -> dict[str, tuple[float, ...]]:
    """The streams that are there."""
    return {name: values for name, values in streams.items() if values}


def whole_numbers(values: Any, where: str) -> list[int]:
    """A list of token ids or mask values; empty where it is not there. Raises DataError for another thing."""
    if values is None:
        return []
    if not isinstance(values, list) or any(not isinstance(value, int | float) for value in values):
        raise DataError(f"{where}: expected a list of whole numbers, got {values!r:.60}")
    return [int(value) for value in values]
