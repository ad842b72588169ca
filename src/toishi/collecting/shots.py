"""Worked examples before a prompt (few-shot prompting), which are shown to the model and not written into what is made.

So a model that follows examples teaches one that does without them: what DeepSeek-R1's cold start did first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toishi.errors import DataError
from toishi.tasks.base import Task
from toishi.tasks.data import read_rows
from toishi.types import Group, Prompt

SEPARATOR = "\n\n"
"""Between examples before a plain text."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One example: what is asked, and what a good answer is."""

    prompt: str
    completion: str


def read_shots(path: Path) -> tuple[Shot, ...]:
    """The examples of a file whose rows have `prompt` and `completion`. Raises DataError that names a row without them."""
    found = []
    for number, row in read_rows(path):
        values = [row.get(name) for name in ("prompt", "completion")] if isinstance(row, dict) else [None]
        if not all(isinstance(value, str) and value.strip() for value in values):
            got = json.dumps(row, default=str)
            raise DataError(f"{path}, row {number}: an example has `prompt` and `completion`, both text, got {got:.80}")
        found.append(Shot(*map(str, values)))
    if not found:
        raise DataError(f"{path} has no rows; expected at least one example")
    return tuple(found)


def with_shots(prompt: Prompt, shots: Sequence[Shot]) -> Prompt:
    """The prompt with the examples before it: as turns behind the system's in a chat, else as text.

    >>> asked = with_shots(Prompt(id="a", text="2 + 2?"), [Shot("1 + 1?", "2")])
    >>> asked.text
    '1 + 1? 2\\n\\n2 + 2?'
    >>> [turn["content"] for turn in with_shots(Prompt(id="a", messages=({"role": "user", "content": "2 + 2?"},)),
    ...     [Shot("1 + 1?", "2")]).messages]
    ['1 + 1?', '2', '2 + 2?']
    """
    if not shots:
        return prompt
    if prompt.messages is None:
        before = "".join(f"{shot.prompt} {shot.completion}{SEPARATOR}" for shot in shots)
        return replace(prompt, text=before + (prompt.text or ""))
    turns = [
        {"role": role, "content": text}
        for shot in shots
        for role, text in (("user", shot.prompt), ("assistant", shot.completion))
    ]
    first = sum(1 for turn in prompt.messages[:1] if turn["role"] in ("system", "developer"))
    return replace(prompt, messages=(*prompt.messages[:first], *turns, *prompt.messages[first:]))


def without_shots(group: Group, prompt: Prompt) -> Group:
    """The group as if its answers had been given to `prompt` as it stands."""
    return replace(group, prompt=prompt, rollouts=tuple(replace(one, prompt=prompt) for one in group.rollouts))


@dataclass(frozen=True, slots=True)
class ShownTask:
    """A task whose training prompts have examples before them; nothing is held out."""

    task: Task
    shots: tuple[Shot, ...]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def columns(self) -> frozenset[str]:
        return self.task.columns

    @property
    def gold_column(self) -> str | None:
        return self.task.gold_column

    @property
    def num_train(self) -> int | None:
        return self.task.num_train

    def train_prompt(self, index: int) -> Prompt:
        return with_shots(self.task.train_prompt(index), self.shots)

    def heldout_prompts(self) -> Sequence[Prompt]:
        return ()
