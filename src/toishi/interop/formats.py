"""The formats: how each is read, and which links it cannot give.

Looked at: TRL 1.16.0 (`trl/trainer/grpo_trainer.py`, log_completions) · verl, `verl/trainer/ppo/ray_trainer.py`
(_dump_generations) · NeMo-RL, `nemo_rl/algorithms/grpo.py` and `nemo_rl/utils/logger.py` (log_batched_dict_as_jsonl) ·
prime-rl, `src/prime_rl/trainer/rl/token_export.py`. docs/others-data.md names the commits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toishi.errors import DataError
from toishi.interop.answers import Answer, json_lines, number_or_none, required
from toishi.interop.tokens import Decode, nemo_answers, prime_answers
from toishi.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format.

    name      as a person types it
    program   who writes it
    files     which files of a folder belong to it
    read      a file -> its answers; the second argument turns token ids into text, for formats without texts
    missing   link -> why the format cannot give it
    notes     what else a reader should know
    """

    name: str
    program: str
    files: str
    read: Callable[[Path, Decode | None], Iterator[Answer]]
    missing: Mapping[str, str]
    notes: tuple[str, ...] = ()


def trl_answers(path: Path, decode: Decode | None) -> Iterator[Answer]:
    """TRL's completions_XXXXX.parquet: step, prompt, completion, a column for each reward (and logged extras), advantage."""
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({error})") from None
    names = table.column_names
    required(dict.fromkeys(names), ("step", "prompt", "completion", "advantage"), str(path))
    others = [name for name in names if name not in ("step", "prompt", "completion", "advantage", "images")]
    numeric = [name for name in others if pa.types.is_floating(table.schema.field(name).type)]
    for number, row in enumerate(table.to_pylist(), start=1):
        where = f"{path}, row {number}"
        prompt, completion = row["prompt"], row["completion"]
        yield Answer(
            step=int(row["step"]),
            key=repr(prompt),
            prompt=prompt if isinstance(prompt, str) else messages(prompt),
            text=completion if isinstance(completion, str) else messages(completion)[-1]["content"],
            scores=tuple((name, number_or_none(row[name], where), 1.0) for name in numeric),
            advantage=number_or_none(row["advantage"], where),
            columns={name: row[name] for name in others if name not in numeric},
        )


VERL_FIELDS = ("input", "output", "score", "step")


def verl_answers(path: Path, decode: Decode | None) -> Iterator[Answer]:
    """verl's {step}.jsonl: input, output, score, step, gts where it is there, and what the reward function returned besides."""
    for number, row in json_lines(path):
        where = f"{path}, line {number}"
        required(row, VERL_FIELDS, where)
        yield Answer(
            step=int(row["step"]),
            key=str(row["input"]),
            prompt=str(row["input"]),
            text=str(row["output"]),
            scores=(("score", number_or_none(row["score"], where), 1.0),),
            gold=row.get("gts"),
            columns={name: value for name, value in row.items() if name not in (*VERL_FIELDS, "gts")},
        )


def messages(turns: Any) -> tuple[Message, ...]:
    """A conversation as it stands in a file.

    Raises DataError when it is none.
    """
    if not isinstance(turns, Sequence) or not turns or not all(isinstance(turn, Mapping) for turn in turns):
        raise DataError(f"expected a text or a list of messages, got {turns!r:.80}")
    return tuple({"role": str(turn.get("role", "")), "content": str(turn.get("content") or "")} for turn in turns)


def step_in_name(path: Path) -> int:
    """
    >>> step_in_name(Path("train_data_step12.jsonl"))
    12
    """
    found = re.findall(r"\d+", path.stem)
    return int(found[-1]) if found else 0


_NO_TOKENS = "The file holds texts, no token ids, log-probs or lengths in tokens."
_NO_RULE = "The file does not say by which rule rewards became advantages (name it with --algorithm to have it checked)."
_NO_ADVANTAGE = "The file holds no advantages, group means or spreads."
_NO_LOSS = "The file does not say how the loss weighs a token, and holds no gradient of it."
_NO_MODEL = "The file was written without a look at gradients and weights."
_NO_AFTER = "The file holds no log-probs after the update."
_NO_SFT = "Putting SFT beside a step takes the model."
_LATER = {"weights": _NO_LOSS, "gradient": _NO_MODEL, "change": _NO_MODEL, "effect": _NO_AFTER, "sft": _NO_SFT}
_NEIGHBOURS = "A group is a run of rows with the same prompt; two such groups of one prompt in a row would be read as one."
_ENDED = "How an answer ended (by itself, or cut by the limit) is not in the file."

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            name="trl",
            program="trl",
            files="completions_*.parquet",
            read=trl_answers,
            missing={"tokens": _NO_TOKENS, "baseline": _NO_RULE, "advantage": _NO_RULE, **_LATER},
            notes=(
                _NEIGHBOURS,
                _ENDED,
                "TRL writes no reward weights: each is taken as 1, so the sum is TRL's reward only where that is so. Columns "
                "that reward functions logged with log_extra look like rewards when they are numbers.",
            ),
        ),
        Format(
            name="verl",
            program="verl",
            files="*.jsonl",
            read=verl_answers,
            missing={"tokens": _NO_TOKENS, "baseline": _NO_ADVANTAGE, "advantage": _NO_ADVANTAGE, **_LATER},
            notes=(
                _NEIGHBOURS,
                _ENDED,
                "verl writes one score an answer; what its reward function returned besides is in `columns`.",
            ),
        ),
        Format(
            name="nemo-rl",
            program="nemo-rl",
            files="train_data_step*.jsonl",
            read=lambda path, decode: nemo_answers(path, step_in_name(path)),
            missing={"baseline": _NO_RULE, "advantage": _NO_RULE, **_LATER},
            notes=(
                _NEIGHBOURS,
                _ENDED,
                "One reward an answer: its parts are not in the file. Log-probs before the update are `prev_logprobs`.",
            ),
        ),
        Format(
            name="prime-rl",
            program="prime-rl",
            files="**/rank_*.jsonl",
            read=prime_answers,
            missing={
                "baseline": "A token export names no group: answers to one prompt are told only by equal prompt tokens.",
                "advantage": _NO_RULE,
                **_LATER,
            },
            notes=(
                _NEIGHBOURS,
                _ENDED,
                "Prompts and answers are token ids; they are shown as ids unless --tokenizer names the model's tokenizer.",
            ),
        ),
    )
}
