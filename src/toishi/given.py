"""Python objects in place of a recipe's task and rewards: what a notebook or a script passes to `toishi.train`.

Decisions:
1. Given rewards replace the recipe's list, a given task replaces its task; nothing is mixed.
2. run.json cannot hold an object, so the configuration names it (`python: module:name`), and going on with such a run needs
   the same names again. A recipe's own task and rewards cannot be exchanged on resume: that would be another run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from toishi.config import Config, RewardConfig, TaskConfig
from toishi.errors import ConfigError
from toishi.rewards import FunctionReward, Reward, build_rewards, check_rewards
from toishi.tasks import Task, build_task

PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Given:
    """What was passed as Python objects; None = as the recipe says."""

    task: Task | None = None
    rewards: tuple[Reward, ...] | None = None


NOTHING_GIVEN = Given()


def given_objects(
    task: Task | None, rewards: Reward | Callable[..., Any] | Sequence[Reward | Callable[..., Any]] | None
) -> Given:
    """Task and rewards as passed by a person: functions become rewards called by their own names, one alone a list of one.

    Raises ConfigError for an empty list, for what is neither a function nor a `Reward`, and for what is no `Task`.
    """
    if task is not None and (isinstance(task, type) or not isinstance(task, Task)):
        raise ConfigError(
            f"task: expected a task, got {task!r:.80} (a {type(task).__name__}); toishi.task_from_rows makes one from rows"
        )
    if rewards is not None and (callable(rewards) or isinstance(rewards, Reward)):
        rewards = [rewards]
    if rewards is not None and not isinstance(rewards, list | tuple):
        raise ConfigError(f"rewards: expected a list of functions or rewards, got {rewards!r:.80} (a {type(rewards).__name__})")
    if rewards is not None and not rewards:
        raise ConfigError("rewards: at least one reward is needed, got an empty list; leave it out for those of the recipe")
    return Given(task, None if rewards is None else tuple(_as_reward(reward) for reward in rewards))


def with_given(config: Config, given: Given, weights: Sequence[float] | None = None) -> Config:
    """The configuration that names the given objects; `weights` are the rewards' factors in the sum, 1 by default.

    Raises ConfigError when the number of weights is not that of the rewards.

    >>> def short(completions):
    ...     return [-len(text) for text in completions]
    >>> with_given(Config(), given_objects(None, [short]), [0.5]).rewards[0].model_dump()["weight"]
    0.5
    """
    changes: dict[str, Any] = {}
    if given.task is not None:
        changes["task"] = TaskConfig.model_validate({"name": given.task.name, PYTHON: _origin(given.task)})
    if given.rewards is not None:
        weights = [1.0] * len(given.rewards) if weights is None else _numbers(weights)
        if len(weights) != len(given.rewards):
            raise ConfigError(
                f"weights: got {len(weights)} for {len(given.rewards)} rewards; give one for each, in their order"
            )
        changes["rewards"] = tuple(
            RewardConfig.model_validate({"name": reward.name, "weight": weight, PYTHON: _origin(reward)})
            for reward, weight in zip(given.rewards, weights, strict=True)
        )
    elif weights is not None:
        raise ConfigError("weights: they belong to rewards=[...]; a recipe's rewards have their own `weight`")
    return config.model_copy(update=changes)


def _numbers(weights: Sequence[float]) -> list[float]:
    listed: list[Any] = list(weights) if isinstance(weights, Iterable) and not isinstance(weights, str | Mapping) else [None]
    if any(isinstance(weight, bool) for weight in listed) or not all(
        isinstance(weight, Real) and math.isfinite(weight) for weight in listed
    ):
        raise ConfigError(f"weights: expected a list of finite numbers, one for each reward, got {weights!r:.80}")
    return [float(weight) for weight in listed]


def the_task(config: Config, given: Given) -> Task:
    """The given task, or the one that the configuration describes.

    Raises ConfigError when the configuration names another Python object than the given one.
    """
    _require_same("task", [config.task], None if given.task is None else [given.task.name])
    return given.task if given.task is not None else build_task(config.task, seed=config.seed)


def the_rewards(config: Config, given: Given, columns: frozenset[str] | None) -> tuple[Reward, ...]:
    """The given rewards, or those that the configuration describes; checked against the data's columns where they are known.

    None are needed where written answers teach and nothing is measured.
    """
    if config.algorithm.predicts == "score":
        if given.rewards is not None:
            raise ConfigError(f"rewards: algorithm '{config.algorithm.name}' samples no answers to judge; leave rewards= out")
        return ()
    teaches_by_itself = config.algorithm.answers_per_prompt is not None and config.evaluation.prompts == 0
    if teaches_by_itself and not config.rewards and given.rewards is None:
        return ()
    _require_same("rewards", config.rewards, None if given.rewards is None else [reward.name for reward in given.rewards])
    return build_rewards(config.rewards, columns=columns) if given.rewards is None else check_rewards(given.rewards, columns)


def _require_same(what: str, configs: Sequence[TaskConfig | RewardConfig], given: Sequence[str] | None) -> None:
    recorded = [config.name for config in configs if PYTHON in config.options]
    if not recorded and given is None:
        return
    if not recorded:
        raise ConfigError(f"{what}: this run has the {what} of its recipe, which cannot be exchanged; leave {what}= out")
    objects = ", ".join(f"'{config.name}' ({config.options.get(PYTHON, 'of the recipe')})" for config in configs)
    if given is None:
        raise ConfigError(
            f"{what}: {objects} came as Python objects, which a run folder cannot hold; give them again: "
            f"toishi.resume(folder, {what}=...)"
        )
    if list(given) != recorded:
        raise ConfigError(f"{what}: expected {objects}, got {', '.join(map(repr, given))}; pass the same in the same order")


def _as_reward(reward: Reward | Callable[..., Any]) -> Reward:
    if isinstance(reward, Reward):
        return reward
    if callable(reward):
        return FunctionReward.from_callable(reward)
    raise ConfigError(f"rewards: expected functions or rewards, got {reward!r:.80} (a {type(reward).__name__})")


def _origin(given: object) -> str:
    named = given.function if isinstance(given, FunctionReward) and not isinstance(given.function, str) else type(given)
    return f"{getattr(named, '__module__', '?')}:{getattr(named, '__qualname__', type(named).__name__)}"
