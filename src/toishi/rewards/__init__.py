"""What judges answers: rewards by name, with their own options.

Adding a reward: a frozen dataclass with `name`, its options, `columns` and `score_group`, and a line in `REWARDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from toishi.algorithms.terms import OPTIONS
from toishi.config import RewardConfig
from toishi.errors import ConfigError, DataError, nearest
from toishi.options import from_options
from toishi.rewards.base import Judgement, Reward
from toishi.rewards.choice import ChoiceReward
from toishi.rewards.code import CodeReward
from toishi.rewards.command import CommandReward
from toishi.rewards.contains import ContainsReward
from toishi.rewards.format import FormatReward
from toishi.rewards.function import ALWAYS, NOT_OFFERED, FunctionReward
from toishi.rewards.gym import GymReward
from toishi.rewards.json_keys import JsonKeysReward
from toishi.rewards.json_schema import JsonSchemaReward
from toishi.rewards.judge import JudgeReward
from toishi.rewards.language import LanguageReward
from toishi.rewards.length import LengthReward
from toishi.rewards.math import MathReward
from toishi.rewards.number import NumberReward
from toishi.rewards.random import RandomReward
from toishi.rewards.regex import RegexReward
from toishi.rewards.repetition import RepetitionReward
from toishi.rewards.reward_model import RewardModelReward
from toishi.rewards.rubric import RubricReward
from toishi.rewards.scripted import ScriptedReward
from toishi.rewards.soft_overlong import SoftOverlongReward
from toishi.rewards.steps import StepsReward
from toishi.rewards.text import TextReward
from toishi.types import Prompt

REWARDS: dict[str, Callable[..., Reward]] = {
    "number": NumberReward,
    "math": MathReward,
    "choice": ChoiceReward,
    "text": TextReward,
    "format": FormatReward,
    "length": LengthReward,
    "json_keys": JsonKeysReward,
    "judge": JudgeReward,
    "rubric": RubricReward,
    "code": CodeReward,
    "command": CommandReward,
    "soft_overlong": SoftOverlongReward,
    "repetition": RepetitionReward,
    "language": LanguageReward,
    "json_schema": JsonSchemaReward,
    "regex": RegexReward,
    "contains": ContainsReward,
    "steps": StepsReward,
    "gym": GymReward,
    "reward_model": RewardModelReward,
    "random": RandomReward,
    "function": FunctionReward,
}


def build_rewards(configs: Sequence[RewardConfig], *, columns: frozenset[str] | None) -> tuple[Reward, ...]:
    """The rewards that a recipe lists, in its order (their weights stay in `configs`).

    `kind` says which reward it is when `name` is one's own: {name: short, kind: length, target: 30}.
    columns  of the data; None = not known, and not checked
    Raises ConfigError for unknown kinds or options (of all rewards at once), two rewards of one name, and columns that the task
    does not have.

    >>> [reward.name for reward in build_rewards([RewardConfig(name="number")], columns=frozenset())]
    ['number']
    """
    rewards: list[Reward] = []
    wrong: list[ConfigError] = []
    for config in configs:
        try:
            rewards.append(_build(config))
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise ConfigError("\n".join(map(str, wrong)))
    return check_rewards(rewards, columns)


def check_rewards(rewards: Sequence[Reward], columns: frozenset[str] | None) -> tuple[Reward, ...]:
    """`rewards`, if there are any, their names differ and the data has the columns that they need (None: not known).

    Raises ConfigError.
    """
    if not rewards:
        raise ConfigError("rewards: at least one reward is needed")
    names = [reward.name for reward in rewards]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"rewards: {names.count(name)} rewards are called '{name}'; give each its own name (and its `kind`)"
            )
    for reward in rewards if columns is not None else ():
        check_columns(reward, columns or frozenset())
    return tuple(rewards)


def check_columns(reward: Reward, columns: frozenset[str]) -> None:
    """Raises ConfigError when `reward` needs a column that the data does not have, or could not be given one that it has."""
    hidden = reward.hidden(columns) if isinstance(reward, FunctionReward) else []
    if hidden:
        raise ConfigError(
            f"reward '{reward.name}': the data has a column '{hidden[0]}', which is also the name of an argument that reward "
            "functions are given; rename the column"
        )
    for column in reward.columns:
        if column not in columns:
            raise ConfigError(_missing(reward, column, columns))


def _missing(reward: Reward, column: str, columns: frozenset[str]) -> str:
    """What to say of a column that the data does not have: for a function it may be a misspelt argument."""
    is_function = isinstance(reward, FunctionReward)
    if is_function and column in NOT_OFFERED:
        return (
            f"reward '{reward.name}': its function asks for '{column}', which TRL gives and toishi does not; give it a default "
            f"({column}=None), and let the function do without it"
        )
    hint = nearest(column, columns) if columns else "they have no columns besides the prompt"
    argument = nearest(column, ALWAYS) if is_function and "did you mean" not in hint else ""
    return (
        f"reward '{reward.name}' needs the column '{column}', which not every row of the task has; "
        f"{argument if argument.startswith('did you mean') else hint}"
    )


@runtime_checkable
class ChecksPrompts(Protocol):
    """A reward that can tell from a prompt alone that it could not score it (an unreadable gold)."""

    def problem(self, prompt: Prompt) -> str | None: ...


def check_prompts(rewards: Sequence[Reward], prompts: Iterable[Prompt]) -> None:
    """Raises one DataError that lists every prompt which a reward could not score, whatever the answer.

    >>> check_prompts([NumberReward()], [Prompt(id="row 3", text="?", gold="x+2")])
    Traceback (most recent call last):
    ...
    toishi.errors.DataError: 1 prompt cannot be scored:
      row 3: reward 'number': the gold 'x+2' cannot be read as one number
    Mend these rows, remove them, or use a reward that reads such golds.
    """
    checking = [reward for reward in rewards if isinstance(reward, ChecksPrompts)]
    found = [
        f"  {prompt.id}: reward '{reward.name}': {problem}"
        for prompt in prompts
        for reward in checking
        if (problem := reward.problem(prompt)) is not None
    ]
    if found:
        more = [f"  ... and {len(found) - 20} more"] if len(found) > 20 else []
        count = "1 prompt" if len(found) == 1 else f"{len(found)} prompts"
        remedy = "Mend these rows, remove them, or use a reward that reads such golds."
        raise DataError("\n".join([f"{count} cannot be scored:", *found[:20], *more, remedy]))


def _build(config: RewardConfig) -> Reward:
    options: dict[str, Any] = config.options
    kind = options.pop("kind", "function" if "function" in options else config.name)
    cls = REWARDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        hint = nearest(str(kind), REWARDS)
        raise ConfigError(
            f"rewards: there is no reward '{kind}'; {hint}{'' if hint.endswith('?') else '.'} "
            "Your own: {name: mine, function: 'file.py:name'}"
        )
    return from_options(cls, options, where=f"reward '{config.name}'", beside=OPTIONS, name=config.name)  # type: ignore[arg-type]


__all__ = [
    "REWARDS",
    "FunctionReward",
    "Judgement",
    "Reward",
    "ScriptedReward",
    "build_rewards",
    "check_columns",
    "check_prompts",
    "check_rewards",
]
