"""A task from rows that are already in memory: a list of dicts, or anything that yields them (a `datasets.Dataset`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toishi.tasks.listed import ListedTask, split_heldout
from toishi.tasks.rows import RowReading, prompts_from_rows


def task_from_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    name: str = "rows",
    prompt_column: str = "prompt",
    gold_column: str | None = None,
    template: str | None = None,
    as_chat: bool = False,
    heldout: int = 0,
    seed: int = 0,
) -> ListedTask:
    """Rows as a task, read by the same rules as a file's; `heldout` of them are set aside for measuring.

    Raises DataError that lists every row which cannot be used.

    >>> task = task_from_rows([{"prompt": f"{n} + {n}?", "answer": 2 * n} for n in range(9)], gold_column="answer", heldout=2)
    >>> task.num_train, len(task.heldout_prompts()), sorted(task.columns)
    (7, 2, ['answer', 'prompt'])
    """
    reading = RowReading(prompt_column=prompt_column, template=template, gold_column=gold_column, as_chat=as_chat)
    prompts = prompts_from_rows(enumerate(rows, start=1), reading, source=name)
    train, aside = split_heldout(prompts, heldout, seed=seed, where="task")
    columns = frozenset.intersection(*(frozenset(prompt.columns) for prompt in prompts))
    return ListedTask(name=name, columns=columns, train=train, heldout=aside, gold_column=gold_column, seed=seed)
