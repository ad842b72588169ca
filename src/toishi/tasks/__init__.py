"""Where prompts come from: a task by name, with its own options.

Adding a task: a frozen dataclass of options with `build(seed) -> Task`, and a line in `TASKS`.
"""

from __future__ import annotations

from typing import Protocol

from toishi.config import TaskConfig
from toishi.errors import ConfigError, nearest
from toishi.options import from_options
from toishi.tasks.base import Task
from toishi.tasks.data import FileTask, HubTask
from toishi.tasks.given import task_from_rows
from toishi.tasks.gym import Gym
from toishi.tasks.listed import ListedTask
from toishi.tasks.programs import Functions, Implications
from toishi.tasks.scripted import ScriptedTask
from toishi.tasks.sums import Sums
from toishi.tasks.topics import Describe, JsonKeys


class TaskOptions(Protocol):
    """A frozen dataclass whose fields are a task's options."""

    def build(self, *, seed: int) -> Task: ...


TASKS: dict[str, type[TaskOptions]] = {
    "sums": Sums,
    "json_keys": JsonKeys,
    "describe": Describe,
    "functions": Functions,
    "implications": Implications,
    "file": FileTask,
    "hub": HubTask,
    "reasoning_gym": Gym,
}


def build_task(config: TaskConfig, *, seed: int) -> Task:
    """The task that a recipe's `task` section names.

    Raises ConfigError for an unknown name or option, DataError for data that cannot be trained on.

    >>> build_task(TaskConfig(name="sums", low=1, high=9, heldout=8), seed=0).train_prompt(0).shown[:8]
    'What is '
    >>> build_task(TaskConfig(name="sum"), seed=0)
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: task.name: there is no task 'sum'; did you mean 'sums'?
    """
    options = TASKS.get(config.name)
    if options is None:
        raise ConfigError(f"task.name: there is no task '{config.name}'; {nearest(config.name, TASKS)}")
    return from_options(options, config.options, where="task").build(seed=seed)


__all__ = ["TASKS", "ListedTask", "ScriptedTask", "Task", "TaskOptions", "build_task", "task_from_rows"]
