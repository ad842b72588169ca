"""The prompts of evaluation sets, to compare training prompts with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toishi.collecting.selecting import Evaluated
from toishi.config import TaskConfig
from toishi.tasks import Task
from toishi.tasks.data import read_rows
from toishi.tasks.rows import RowReading, prompts_from_rows
from toishi.types import Prompt


def evaluation_sets(task: Task | None, files: Sequence[Path], config: TaskConfig) -> list[Evaluated]:
    """The task's held-out prompts, and the rows of `files`.

    A file's rows are read as the recipe reads its own (`prompt_column`, `template`), or by the column `prompt` where they have
    none of the recipe's. Raises DataError for rows without a prompt, ConfigError for a file that is not there.
    """
    found = [] if task is None else [_evaluated(f"held out: {prompt.id}", prompt) for prompt in task.heldout_prompts()]
    column, template = config.options.get("prompt_column", "prompt"), config.options.get("template")
    own = RowReading(prompt_column=column, template=template)
    for file in files:
        rows = list(read_rows(file))
        known = {name for _, row in rows if isinstance(row, dict) for name in row}
        reading = own if set(own.needed) <= known else RowReading()
        found += [_evaluated(prompt.id, prompt) for prompt in prompts_from_rows(rows, reading, source=str(file))]
    return found


def _evaluated(id: str, prompt: Prompt) -> Evaluated:
    turns = [turn["content"] for turn in prompt.messages or ()]
    return Evaluated(id=id, text="\n".join(turns) if turns else prompt.text or "")
