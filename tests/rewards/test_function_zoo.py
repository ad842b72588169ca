"""The ways in which people's reward functions answer and break, through scoring, from the main thread and from a worker."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from toishi.config import RewardConfig
from toishi.errors import ConfigError, RewardError
from toishi.rewards import FunctionReward, build_rewards
from toishi.rewards.scripted import answered
from toishi.scoring import score_groups
from toishi.types import Group, Prompt, Rollout, RolloutId

FOREVER = threading.Event()


def returning(value: Any) -> Callable[..., Any]:
    def function(completions: list[str], **columns: Any) -> Any:
        return value

    return function


def generator(completions: list[str]) -> Any:
    yield from (1.0, 0.0, 1.0, 0.0)


async def coroutine(completions: list[str]) -> list[float]:
    return [1.0, 0.0, 1.0, 0.0]


def mutates(prompts: list[Any], completions: list[Any], tests: list[Any]) -> list[float]:
    prompts.clear()
    completions.append("more")
    tests[0].clear()
    return [1.0, 0.0, 1.0, 0.0]


def raises_on_row_2(completions: list[str]) -> list[float]:
    return [float(1 / (text != "c")) for text in completions]


def generator_that_raises(completions: list[str]) -> Any:
    yield 1.0
    raise KeyError("row 1")


def raises_without_words(completions: list[str]) -> list[float]:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    raise Mute


def sleeps(completions: list[str]) -> list[float]:
    FOREVER.wait(30)
    return [1.0] * 4


def exits(completions: list[str]) -> list[float]:
    raise SystemExit(0)


def group() -> Group:
    prompt = Prompt(id="row 1", text="?", columns={"tests": ["a == b"], "answer": 7})
    rollouts = [
        Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=answered(text)) for member, text in enumerate("abcd")
    ]
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def in_main_thread(work: Callable[[], Any]) -> Any:
    return work()


def in_worker_thread(work: Callable[[], Any]) -> Any:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def scored(function: Callable[..., Any], where: Callable[[Callable[[], Any]], Any], timeout_s: float = 10.0) -> Group:
    reward = FunctionReward.from_callable(function, name="mine", timeout_s=timeout_s)
    (found,) = where(lambda: score_groups([group()], [reward], [1.0]))
    assert isinstance(found, Group)
    return found


THREADS = pytest.mark.parametrize("where", [in_main_thread, in_worker_thread])


@THREADS
@pytest.mark.parametrize(
    "function",
    [
        returning([True, False, True, False]),
        returning(np.array([1.0, 0.0, 1.0, 0.0])),
        returning([np.float16(1), np.bool_(False), np.int8(1), 0]),
        generator,
        coroutine,
        mutates,
    ],
)
def test_accepted(function: Callable[..., Any], where: Any) -> None:
    found = scored(function, where)
    assert found.rewards == (1.0, 0.0, 1.0, 0.0)
    assert found.prompt.columns["tests"] == ["a == b"]


@THREADS
def test_none_is_excluded(where: Any) -> None:
    found = scored(returning([1, 0, None, 0]), where)
    assert found.rewards == (1.0, 0.0, None, 0.0)
    assert {rollout.status for rollout in found.rollouts} == {"completed"}
    nothing = scored(returning(np.array([1.0, None, None, 0.0], dtype=object)), where)
    assert nothing.rewards == (1.0, None, None, 0.0)


@THREADS
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0], "returned 1 values for 4 completions"),
        (1.0, "returned a float"),
        ([1.0] * 5, "returned 5 values for 4 completions"),
        (["1", "0", "1", "0"], "returned '1' .* for completion 0"),
        ([1, 0, float("nan"), 0], "returned nan for completion 2"),
        ([1, 0, float("inf"), 0], "returned inf for completion 2"),
        ({"score": 1}, "returned a dict"),
        ({1, 0}, "returned a set"),
        (None, "returned a NoneType"),
        ([], "returned 0 values for 4 completions"),
    ],
)
def test_refused_with_function_row_and_value(returned: Any, message: str, where: Any) -> None:
    with pytest.raises(RewardError, match=rf"reward 'mine', prompt row 1: .*test_function_zoo\.py:\d+\) {message}"):
        scored(returning(returned), where)


@THREADS
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raises_on_row_2, "ZeroDivisionError: .*division by zero"),
        (generator_that_raises, "KeyError: 'row 1'"),
        (raises_without_words, "Mute"),
        (exits, "SystemExit: 0"),
    ],
)
def test_what_goes_wrong_while_judging_is_a_failure_and_never_0(function: Any, reason: str, where: Any) -> None:
    found = scored(function, where)
    assert found.rewards == (None,) * 4
    assert {rollout.status for rollout in found.rollouts} == {"failed"}
    for rollout in found.rollouts:
        assert rollout.scores[0].value is None
        assert re.search(reason, rollout.failure)


@THREADS
def test_one_that_sleeps_for_ever_is_a_failure_in_time(where: Any) -> None:
    FOREVER.clear()
    try:
        found = scored(sleeps, where, timeout_s=0.1)
    finally:
        FOREVER.set()
    assert {rollout.failure for rollout in found.rollouts} == {"reward mine: timed out after 0.1 s"}


@THREADS
def test_a_column_that_is_called_otherwise_is_found_before_a_model_is_loaded(where: Any) -> None:
    def right(completions: list[str], answers: list[int]) -> list[float]:
        return [1.0] * 4

    config = RewardConfig(name="right", function=right)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"reward 'right' needs the column 'answers'.*did you mean 'answer'\?"):
        where(lambda: build_rewards([config], columns=frozenset({"answer"})))
