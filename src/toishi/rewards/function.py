"""`function`: your own Python function, with the signature that TRL users know.

    def fn(prompts, completions, completion_ids, **columns) -> list[float | None]

Decisions:
1. It is called once per group, with keyword arguments, and gets only the arguments that it names (all of them with `**kwargs`).
   Every argument is a list with one entry per completion; the entries are copies, so changing them does no harm.
2. With chat prompts a completion is [{"role": "assistant", "content": text}], with plain prompts it is the text.
3. `None` abstains. One finite number (or bool) per completion, or an error that names the function, the row and the value:
   a list that is too short, a single number for all, "1", NaN and infinity are never guessed at.
4. An argument without a default is a column that the data must have, but for those that TRL gives and toishi has not
   (`trainer_state`, `log_extra`, `log_metric`): where no column has the name, the message says to give it a default.
5. An exception or a time-out is a failure of this group's scores, with its message. It is never 0.
"""

from __future__ import annotations

import copy
import inspect
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Real
from typing import Annotated, Any

from pydantic import Field

from toishi.errors import ConfigError, RewardError
from toishi.rewards.base import Judgement
from toishi.rewards.calling import TimedOut, call_async, call_sync, is_async, load_function
from toishi.types import Completion, Prompt

ALWAYS = ("prompts", "completions", "completion_ids")
NOT_OFFERED = ("trainer_state", "log_extra", "log_metric")
"""What TRL gives a reward function and toishi does not: there is no trainer behind a reward."""


@dataclass(frozen=True, kw_only=True)
class FunctionReward:
    """A user's function as a reward.

    function   the callable, or "path/to/file.py:name" or "package.module:name"
    timeout_s  seconds one call (one group) may take; null = no limit, called directly in the calling thread
    waits      it waits for others (a server, a program) and may be called from a thread during sampling; null = if async

    Traps: a function that never returns is given up, and goes on using its core. Code that a model wrote belongs into `code`,
    not into a function.

    >>> def shouting(completions, **kwargs):
    ...     return [text.isupper() for text in completions]
    >>> from toishi.rewards.scripted import answered
    >>> reward = FunctionReward.from_callable(shouting)
    >>> judged = reward.score_group(Prompt(id="a", text="?"), [answered("YES"), answered("no")])
    >>> reward.name, [judgement.value for (judgement,) in judged]
    ('shouting', [1.0, 0.0])
    """

    function: str | Callable[..., Any]
    name: str = "function"
    timeout_s: Annotated[float, Field(gt=0)] | None = 60.0
    waits: bool | None = None

    _called: Callable[..., Any] = field(init=False, repr=False, compare=False)
    _parameters: dict[str, inspect.Parameter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        called = load_function(self.function, where=where) if isinstance(self.function, str) else self.function
        object.__setattr__(self, "_called", called)
        object.__setattr__(self, "_parameters", _keyword_parameters(called, where))
        if self.waits is None:
            object.__setattr__(self, "waits", self.concurrent)
        if self.name == "function":
            object.__setattr__(self, "name", getattr(called, "__name__", "function"))

    @classmethod
    def from_callable(
        cls, function: Callable[..., Any], *, name: str | None = None, timeout_s: float | None = 60.0, waits: bool | None = None
    ) -> FunctionReward:
        """A reward from a Python function, named after it unless `name` is given."""
        return cls(function=function, name=name or "function", timeout_s=timeout_s, waits=waits)

    @property
    def called(self) -> Callable[..., Any]:
        """The function itself, also where only its name was given."""
        return self._called

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the function names and has no default for."""
        named = [key for key, parameter in self._parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
        return tuple(key for key in named if key not in ALWAYS and self._parameters[key].default is inspect.Parameter.empty)

    def hidden(self, columns: Iterable[str]) -> list[str]:
        """The columns that the function could not be given, since what it is always offered has the same name."""
        return [name for name in ALWAYS if name in columns and (name in self._parameters or self._takes_all)]

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        hidden = self.hidden(prompt.columns)
        return f"the column '{hidden[0]}' has the name of an argument; rename the column" if hidden else None

    @property
    def _takes_all(self) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._parameters.values())

    @property
    def concurrent(self) -> bool:
        """An async function is asked about several groups at once."""
        return is_async(self._called)

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        try:
            returned = self._call(self._arguments(prompt, completions), len(completions))
        except TimedOut as error:
            return [(Judgement(value=None, status="failed", reason=str(error), kind="timed_out"),)] * len(completions)
        except (Exception, SystemExit) as error:
            return [(Judgement(value=None, status="failed", reason=_where_raised(error), kind="raised"),)] * len(completions)
        values = self._listed(returned, prompt, len(completions))
        return [(self._judgement(value, prompt, member),) for member, value in enumerate(values)]

    def _call(self, arguments: dict[str, list[Any]], count: int) -> Any:
        if self.concurrent:
            return call_async(_awaited(self._called, arguments, count), self.timeout_s)
        return call_sync(lambda: _drained(self._called(**arguments), count), self.timeout_s)

    def _arguments(self, prompt: Prompt, completions: Sequence[Completion]) -> dict[str, list[Any]]:
        asked = [dict(message) for message in prompt.messages] if prompt.messages is not None else prompt.text
        offered: dict[str, list[Any]] = {
            **{column: [value] * len(completions) for column, value in prompt.columns.items()},
            "prompts": [asked] * len(completions),
            "completions": [_as_seen(prompt, completion) for completion in completions],
            "completion_ids": [list(completion.token_ids) for completion in completions],
        }
        return {
            key: [copy.deepcopy(value) for value in values]
            for key, values in offered.items()
            if self._takes_all or key in self._parameters
        }

    def _listed(self, returned: Any, prompt: Prompt, count: int) -> list[Any]:
        if getattr(returned, "ndim", None) == 1 and hasattr(returned, "tolist"):
            returned = returned.tolist()
        if not isinstance(returned, list | tuple):
            shape = f" of shape {tuple(returned.shape)}" if hasattr(returned, "shape") else f": {returned!r:.80}"
            raise self._error(prompt, f"returned a {type(returned).__name__}{shape}")
        if len(returned) != count:
            raise self._error(prompt, f"returned {len(returned)} values for {count} completions: {returned!r:.80}")
        return list(returned)

    def _judgement(self, value: Any, prompt: Prompt, member: int) -> Judgement:
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        if value is None:
            return Judgement(value=None, status="abstained")
        if not isinstance(value, Real):
            raise self._error(prompt, f"returned {value!r:.80} (a {type(value).__name__}) for completion {member}")
        if not math.isfinite(value):
            raise self._error(prompt, f"returned {value!r} for completion {member}; return None where there is no score")
        return Judgement(value=float(value))

    def _error(self, prompt: Prompt, what: str) -> RewardError:
        return RewardError(
            f"reward '{self.name}', prompt {prompt.id}: {_described(self._called)} {what}. "
            "Expected a list with one finite number or None for each completion"
        )


def _drained(returned: Any, count: int) -> Any:
    """A generator's values (one more than expected, so that too many are noticed); anything else as it is."""
    return list(islice(returned, count + 1)) if isinstance(returned, Iterator) else returned


async def _awaited(function: Callable[..., Any], arguments: dict[str, list[Any]], count: int) -> Any:
    try:
        return _drained(await function(**arguments), count)
    except SystemExit as error:  # would end the event loop that all async rewards share
        raise RuntimeError(f"SystemExit: {error}") from error


def _keyword_parameters(function: Callable[..., Any], where: str) -> dict[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ConfigError(f"{where}.function: the arguments of {function!r} cannot be seen; wrap it in a def") from None
    for parameter in parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise ConfigError(
                f"{where}.function: arguments are passed by name, and '{parameter.name}' of {_described(function)} takes none; "
                "expected (prompts, completions, completion_ids, **columns)"
            )
    kept = {key: value for key, value in parameters.items() if value.kind not in (value.POSITIONAL_ONLY, value.VAR_POSITIONAL)}
    if not kept:
        raise ConfigError(f"{where}.function: {_described(function)} takes no arguments; expected at least `completions`")
    return kept


def _as_seen(prompt: Prompt, completion: Completion) -> str | list[dict[str, str]]:
    return [{"role": "assistant", "content": completion.text}] if prompt.is_conversational else completion.text


def _described(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def _where_raised(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {_words(error)} ({frames[-1].filename}:{frames[-1].lineno})"


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a user's exception whose own text raises
        return "(no words)"
