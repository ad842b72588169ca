"""The samples file: every answer that was sampled, with its scores, one prompt a line.

Decisions:
1. Sampling costs, choosing does not. So all answers are kept, and what is chosen from them is written whole to a second file:
   another filter needs no model.
2. The first line says what the answers came from. Going on with a file of other settings is refused, with what differs.
3. A line is appended in one write, sealed and synced. A kill leaves at most one cut line, which is taken off; the answers of
   that prompt are sampled again, and are the same.
4. Nothing in it depends on the time: the file of a run that was killed and continued equals that of one that was not.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toishi.collecting.journal import JournalWriter, refused, require_seals
from toishi.errors import ConfigError, RecordError
from toishi.record.files import plain, read_lines, sync_folder, write_whole
from toishi.types import Group, Prompt, Rollout

FORMAT = "toishi samples"
VERSION = 1
SUFFIX = ".samples.jsonl"
ASKED_AGAIN = "or take off this line, unless it is the first, and the same command with --continue asks that prompt again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One sampled answer.

    scores   reward's name -> its value, parts summed; None where it gave none
    reasons  reward's name -> why
    failure  why it has no reward; "" where it has one
    """

    text: str
    tokens: int
    finish_reason: str
    reward: float | None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    readable: bool | None = None
    failure: str = ""

    @classmethod
    def of(cls, rollout: Rollout) -> Answer:
        """A scored rollout."""
        values: dict[str, float | None] = {}
        reasons: dict[str, str] = {}
        for score in rollout.scores:
            before = values.get(score.reward, 0.0)
            values[score.reward] = None if before is None or score.value is None else before + score.value
            reasons[score.reward] = "\n".join(filter(None, (reasons.get(score.reward), score.reason)))
        marks = [score.readable for score in rollout.scores if score.readable is not None]
        return cls(
            text=rollout.completion.text,
            tokens=rollout.completion.num_tokens,
            finish_reason=rollout.completion.finish_reason,
            reward=rollout.reward,
            scores=values,
            reasons={name: reason for name, reason in reasons.items() if reason},
            readable=all(marks) if marks else None,
            failure=rollout.failure or ("no score" if rollout.reward is None else ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One prompt and all its answers. `number` is its place in the task's stream of training prompts."""

    number: int
    id: str
    prompt: str | tuple[Mapping[str, str], ...]
    gold: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""
    answers: tuple[Answer, ...] = ()

    @classmethod
    def of(cls, number: int, group: Group) -> Asked:
        """A scored group."""
        prompt = group.prompt
        return cls(
            number=number,
            id=prompt.id,
            prompt=prompt.messages if prompt.messages is not None else prompt.text or "",
            gold=plain(prompt.gold),
            columns=plain(prompt.columns),
            prefill=prompt.prefill,
            answers=tuple(Answer.of(rollout) for rollout in group.rollouts),
        )

    @property
    def shown(self) -> str:
        """The text a person knows the prompt by: its last turn."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[-1]["content"]

    @property
    def as_prompt(self) -> Prompt:
        """The prompt as rewards and judges see it."""
        text = self.prompt if isinstance(self.prompt, str) else None
        messages = None if isinstance(self.prompt, str) else self.prompt
        return Prompt(id=self.id, text=text, messages=messages, gold=self.gold, columns=self.columns, prefill=self.prefill)

    @property
    def asked(self) -> dict[str, Any]:
        """`{"prompt": text}` or `{"messages": turns}`, as rows of data sets have it."""
        return {"prompt": self.prompt} if isinstance(self.prompt, str) else {"messages": [dict(turn) for turn in self.prompt]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the answers came from.

    model     name, fingerprint (sha256 of the base weights), step and adapter (of a run), dtype
    config    the whole configuration; `recipe` is its name as it was given
    samples   answers to each prompt; `prompts` is how many prompts
    data      sha256 of the prompts
    shots     sha256 of the worked examples that stood before each prompt; "" without any
    """

    model: Mapping[str, Any]
    recipe: str
    config: Mapping[str, Any]
    samples: int
    prompts: int
    data: str
    toishi: str
    shots: str = ""

    @property
    def provenance(self) -> dict[str, Any]:
        """What every chosen row says of where it comes from."""
        sampling = {key: value for key, value in self.config["sampling"].items() if key != "max_prompt_tokens"}
        return {
            "model": dict(self.model),
            "recipe": self.recipe,
            "recipe_sha256": sha256_of(self.config),
            "seed": self.config["seed"],
            "samples": self.samples,
            "sampling": sampling,
            **({"shots_sha256": self.shots} if self.shots else {}),
            "toishi": self.toishi,
        }


def append_header(journal: JournalWriter, header: Header) -> None:
    """The first line of a samples file."""
    journal.append({"format": FORMAT, "version": VERSION} | asdict(header))
    sync_folder(journal.path.parent)


def sha256_of(values: Any) -> str:
    """sha256 of plain values, whatever the order of keys."""
    return hashlib.sha256(json.dumps(plain(values), sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def samples_path(out: Path) -> Path:
    """Where the answers lie from which `out` was chosen.

    >>> samples_path(Path("data/easy.jsonl")).name
    'easy.samples.jsonl'
    """
    return out.with_name(out.name.removesuffix(".jsonl") + SUFFIX)


def read_samples(path: Path) -> tuple[Header, tuple[Asked, ...]]:
    """The header and every whole line, in the order of the prompts. Raises RecordError when the file is none, or damaged."""
    lines = read_lines(path, otherwise=ASKED_AGAIN)
    if not lines or lines[0].get("format") != FORMAT:
        raise RecordError(f"{path}: no samples file (a file that select, collect or pairs leave beside what they write)")
    require_seals(path, lines, ASKED_AGAIN)
    first = {key: value for key, value in lines[0].items() if key != "seal"}
    del first["format"]
    if (version := first.pop("version", None)) != VERSION:
        raise RecordError(f"{path}: a samples file of version {version}; this toishi reads version {VERSION}")
    asked = [_asked(line) for line in lines[1:]]
    if len({one.number for one in asked}) < len(asked):
        raise RecordError(f"{path}: a prompt stands there twice; two processes wrote it. Begin anew with --overwrite")
    return Header(**first), tuple(sorted(asked, key=lambda one: one.number))


def _asked(line: Mapping[str, Any]) -> Asked:
    values = {key: value for key, value in line.items() if key != "seal"}
    values["prompt"] = values["prompt"] if isinstance(values["prompt"], str) else tuple(values["prompt"])
    return Asked(**values | {"answers": tuple(Answer(**answer) for answer in values["answers"])})


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as JSON lines, whole or not at all. Raises RecordError when the disk refuses."""
    text = "".join(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    data = text.encode("utf-8", "backslashreplace")
    try:
        write_whole(path, lambda temporary: _write(temporary, data))
    except RecordError as error:
        if isinstance(error.__cause__, OSError):
            raise refused(path, error.__cause__) from error.__cause__
        raise


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def claim(paths: Sequence[Path], *, go_on: bool, overwrite: bool) -> None:
    """Refuses to write over files that are there, unless that was asked for, and to write where that cannot be done.

    Removes nothing: with `overwrite` a file is replaced when there is something to put in its place. Raises ConfigError for the
    former, RecordError for the latter.
    """
    if go_on and overwrite:
        raise ConfigError("--continue keeps what is written and --overwrite removes it: give one of the two")
    for path in paths:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; name a file to write")
    there = [path for path in paths if path.exists()]
    if there and not (go_on or overwrite):
        listed = " and ".join(map(str, there))
        raise ConfigError(
            f"{listed} is there already: --continue goes on with it, --overwrite begins anew, or choose another -o"
        )
    for path in paths:
        _require_writable(path)


def _require_writable(path: Path) -> None:
    """Looks only: folders are made when there is something to write."""
    there = next(folder for folder in path.absolute().parents if folder.exists())
    code = errno.ENOTDIR if not there.is_dir() else 0 if os.access(there, os.W_OK) else errno.EACCES
    if code:
        raise refused(path, OSError(code, os.strerror(code)))
