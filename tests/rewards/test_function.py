"""User functions as rewards: every way they answer well, and every way they break the contract."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.rewards.judging import asked
from toishi.config import RewardConfig
from toishi.errors import ConfigError, DataError, RewardError
from toishi.rewards import FunctionReward, Judgement, build_rewards, check_prompts, check_rewards
from toishi.rewards.number import NumberReward
from toishi.rewards.scripted import answered
from toishi.types import Prompt

FOUR = [answered(text) for text in ("a", "b", "c", "d")]


def judged(function: Callable[..., Any], prompt: Prompt | None = None, timeout_s: float | None = 60.0) -> list[Judgement]:
    reward = FunctionReward.from_callable(function, name="mine", timeout_s=timeout_s)
    return [judgement for (judgement,) in reward.score_group(prompt or asked(), FOUR)]


def values(function: Callable[..., Any], **rest: Any) -> list[float | None]:
    return [judgement.value for judgement in judged(function, **rest)]


def returning(value: Any) -> Callable[..., Any]:
    def returns_it(completions: list[str], **kwargs: Any) -> Any:
        return value

    return returns_it


@pytest.mark.parametrize(
    "returned",
    [
        [1, 0, 1, 0],
        (1.0, 0.0, 1.0, 0.0),
        [True, False, True, False],
        np.array([1.0, 0.0, 1.0, 0.0]),
        np.array([1, 0, 1, 0], dtype=np.int8),
        np.array([True, False, True, False]),
        [np.float32(1), np.int64(0), np.bool_(True), np.array(0.0)],
        torch.tensor([1.0, 0.0, 1.0, 0.0], requires_grad=True),
        torch.tensor([1, 0, 1, 0], dtype=torch.bfloat16),
        list(torch.tensor([1.0, 0.0, 1.0, 0.0])),
    ],
)
def test_one_number_per_completion_is_accepted(returned: Any) -> None:
    assert values(returning(returned)) == [1.0, 0.0, 1.0, 0.0]
    assert all(type(value) is float for value in values(returning(returned)))


def test_none_abstains() -> None:
    results = judged(returning([1, 0, None, 0]))
    assert [(item.value, item.status) for item in results] == [(1.0, "ok"), (0.0, "ok"), (None, "abstained"), (0.0, "ok")]


def test_a_generator_is_accepted() -> None:
    def yields(completions: list[str]) -> Iterator[float]:
        yield from (float(text == "b") for text in completions)

    assert values(yields) == [0.0, 1.0, 0.0, 0.0]


def test_an_async_function_is_accepted() -> None:
    async def waits(completions: list[str]) -> list[float]:
        await asyncio.sleep(0)
        return [float(text == "c") for text in completions]

    assert values(waits) == [0.0, 0.0, 1.0, 0.0]
    assert values(functools.partial(waits)) == [0.0, 0.0, 1.0, 0.0]
    assert FunctionReward.from_callable(waits).concurrent
    assert not FunctionReward.from_callable(returning([])).concurrent


def test_async_calls_share_one_event_loop() -> None:
    loops = []

    async def remembers(completions: list[str]) -> list[float]:
        loops.append(asyncio.get_running_loop())
        return [0.0] * len(completions)

    values(remembers)
    values(remembers)
    assert loops[0] is loops[1]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0], r"returned 1 values for 4 completions: \[1\.0\]"),
        (1.0, r"returned a float: 1\.0"),
        ([1, 0, 1, 0, 1], "returned 5 values for 4 completions"),
        (["1", "0", "1", "0"], r"returned '1' \(a str\) for completion 0"),
        ([1, 0, float("nan"), 0], "returned nan for completion 2; return None where there is no score"),
        ([1, 0, float("inf"), 0], "returned inf for completion 2"),
        ({"score": 1}, r"returned a dict: \{'score': 1\}"),
        ([1, 0, {"score": 1}, 0], r"returned \{'score': 1\} \(a dict\) for completion 2"),
        (None, "returned a NoneType: None"),
        ("1010", "returned a str: '1010'"),
        (np.array(1.0), r"returned a ndarray of shape \(\)"),
        (np.ones((4, 1)), r"returned a ndarray of shape \(4, 1\)"),
        (torch.ones(4, 2), r"returned a Tensor of shape \(4, 2\)"),
        (np.array([1, 0, np.nan, 0]), "returned nan for completion 2"),
        ([1, 0, [1], 0], r"returned \[1\] \(a list\) for completion 2"),
        ([1, 0, 1j, 0], r"returned 1j \(a complex\) for completion 2"),
    ],
)
def test_everything_else_is_an_error_that_names_function_row_and_value(returned: Any, message: str) -> None:
    with pytest.raises(RewardError, match=rf"^reward 'mine', prompt row 1: .*returns_it \(.*test_function\.py:\d+\) {message}"):
        judged(returning(returned))


def test_a_generator_that_never_ends_is_cut() -> None:
    def endless(completions: list[str]) -> Iterator[float]:
        while True:
            yield 1.0

    with pytest.raises(RewardError, match="returned 5 values for 4 completions"):
        judged(endless)


def test_an_exception_is_a_failure_with_its_place_and_never_a_number() -> None:
    def raises(completions: list[str]) -> list[float]:
        return [1.0 if text != "c" else 1 / 0 for text in completions]

    for result in judged(raises):
        assert (result.value, result.status) == (None, "failed")
        assert result.reason.startswith("ZeroDivisionError: division by zero (")
        assert "test_function.py:" in result.reason


def test_leaving_the_program_is_a_failure() -> None:
    def exits(completions: list[str]) -> list[float]:
        sys.exit(3)

    async def exits_later(completions: list[str]) -> list[float]:
        sys.exit(3)

    async def answers(completions: list[str]) -> list[float]:
        return [1.0] * 4

    assert {result.status for result in judged(exits) + judged(exits_later)} == {"failed"}
    assert values(answers) == [1.0] * 4  # the loop is still there


def test_a_function_that_never_returns_is_a_failure() -> None:
    release = threading.Event()

    def sleeps(completions: list[str]) -> list[float]:
        release.wait()
        return [1.0] * 4

    async def sleeps_async(completions: list[str]) -> list[float]:
        await asyncio.sleep(1000)
        return [1.0] * 4

    try:
        results = judged(sleeps, timeout_s=0.05) + judged(sleeps_async, timeout_s=0.05)
    finally:
        release.set()
    assert {(result.value, result.status, result.reason) for result in results} == {(None, "failed", "timed out after 0.05 s")}


def test_a_late_failure_after_the_time_limit_harms_nothing() -> None:
    release, ended = threading.Event(), threading.Event()

    def raises_late(completions: list[str]) -> list[float]:
        release.wait()
        ended.set()
        raise ValueError("too late")

    assert judged(raises_late, timeout_s=0.05)[0].reason == "timed out after 0.05 s"
    release.set()
    assert ended.wait(5)
    time.sleep(0.01)


def test_without_a_limit_the_function_runs_in_the_calling_thread() -> None:
    threads = []

    def notes(completions: list[str]) -> list[float]:
        threads.append(threading.current_thread())
        return [0.0] * 4

    values(notes, timeout_s=None)
    values(notes)
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


def test_inputs_are_copies() -> None:
    tests = ["a == b"]
    prompt = Prompt(id="row 1", messages=({"role": "user", "content": "hi"},), columns={"tests": tests})

    def spoils(prompts: Any, completions: Any, completion_ids: Any, tests: Any) -> list[float]:
        tests[0].clear()
        tests[1].append("x")
        seen = [len(item) for item in tests]
        prompts[0][0]["content"] = "spoilt"
        completions[0][0]["content"] = "spoilt"
        completion_ids[0].clear()
        completions.clear()
        return [float(count) for count in seen]

    assert values(spoils, prompt=prompt) == [0.0, 2.0, 1.0, 1.0]
    assert (tests, prompt.messages) == (["a == b"], ({"role": "user", "content": "hi"},))
    assert FOUR[0].text == "a"


def test_what_the_function_is_given() -> None:
    given: dict[str, Any] = {}

    def everything(**kwargs: Any) -> list[float]:
        given.update(kwargs)
        return [0.0] * 4

    chat = Prompt(id="row 1", messages=({"role": "user", "content": "hi"},), columns={"answer": 7, "unit": "km"})
    values(everything, prompt=chat)
    assert given == {
        "prompts": [[{"role": "user", "content": "hi"}]] * 4,
        "completions": [[{"role": "assistant", "content": text}] for text in "abcd"],
        "completion_ids": [[0, 1]] * 4,
        "answer": [7] * 4,
        "unit": ["km"] * 4,
    }
    values(everything, prompt=Prompt(id="row 1", text="hi"))
    assert (given["prompts"], given["completions"]) == (["hi"] * 4, ["a", "b", "c", "d"])


def test_only_what_the_function_names_is_passed() -> None:
    def two(completions: list[str], answer: list[int], unit: str = "none") -> list[float]:
        return [float(number) if unit == "none" else -1.0 for number in answer]

    reward = FunctionReward.from_callable(two)
    assert (reward.name, reward.columns) == ("two", ("answer",))
    assert values(two, prompt=asked(columns={"answer": 7, "other": 1})) == [7.0] * 4


def test_a_callable_object_is_accepted() -> None:
    class Scorer:
        def __call__(self, completions: list[str]) -> list[float]:
            return [2.0] * len(completions)

    class AsyncScorer:
        async def __call__(self, completions: list[str]) -> list[float]:
            return [3.0] * len(completions)

    assert values(Scorer()) == [2.0] * 4
    assert values(AsyncScorer()) == [3.0] * 4

    class Silent:
        def __call__(self, completions: list[str]) -> list[float]:
            return []

    with pytest.raises(RewardError, match=r"Silent object at .* returned 0 values for 4 completions"):
        judged(Silent())


def test_a_missing_column_is_found_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def right(completions, answers):\n    return [1.0] * len(completions)\n")
    config = RewardConfig(name="right", function=f"{path}:right")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"reward 'right' needs the column 'answers'.*did you mean 'answer'\?"):
        build_rewards([config], columns=frozenset({"answer", "id"}))
    with pytest.raises(ConfigError, match="they have no columns besides the prompt"):
        build_rewards([config], columns=frozenset())
    assert build_rewards([config], columns=frozenset({"answers"}))[0].columns == ("answers",)


@pytest.mark.parametrize("argument", ["trainer_state", "log_extra", "log_metric"])
def test_what_only_trl_gives_is_named_with_the_remedy(tmp_path: Path, argument: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def right(completions, {argument}, **kwargs):\n    return [1.0] * len(completions)\n")
    config = RewardConfig(name="right", function=f"{path}:right")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=rf"asks for '{argument}', which TRL gives and toishi does not.*\({argument}=None\)"):
        build_rewards([config], columns=frozenset({"answer"}))
    assert build_rewards([config], columns=frozenset({argument}))  # a column of that name is a column
    path.write_text(f"def right(completions, {argument}=None, **kwargs):\n    return [1.0] * len(completions)\n")
    (reward,) = build_rewards([config], columns=frozenset())
    assert reward.columns == ()


@pytest.mark.parametrize(("argument", "meant"), [("completion", "completions"), ("prompt", "prompts")])
def test_a_misspelt_argument_is_not_taken_for_a_column_alone(tmp_path: Path, argument: str, meant: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def right({argument}):\n    return [1.0]\n")
    config = RewardConfig(name="right", function=f"{path}:right")  # type: ignore[call-arg]
    for columns in (frozenset[str](), frozenset({"answer"})):
        with pytest.raises(ConfigError, match=rf"column '{argument}'.*did you mean '{meant}'\?"):
            build_rewards([config], columns=columns)


def test_functions_are_loaded_by_path_and_by_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toishi_example_rewards.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
        "@dataclass\nclass Two:\n    value: float = 2.0\n\n"
        "class Box:\n    @staticmethod\n    def inner(completions):\n        return [Two().value for _ in completions]\n\n"
        "def outer(completions, **kwargs):\n    return Box.inner(completions)\n\nNUMBER = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for spec in ("toishi_example_rewards.py:outer", "toishi_example_rewards:outer", "toishi_example_rewards:Box.inner"):
        (reward,) = build_rewards([RewardConfig(name="function", function=spec)], columns=frozenset())  # type: ignore[call-arg]
        assert reward.name in ("outer", "inner")
        assert [judgement.value for (judgement,) in reward.score_group(asked(), FOUR)] == [2.0] * 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_colon", "expected 'path/to/file.py:name' or 'package.module:name', got 'no_colon'"),
        ("missing.py:f", "missing.py could not be loaded: FileNotFoundError"),
        ("broken.py:f", "broken.py could not be loaded: ZeroDivisionError"),
        ("no_such_module_at_all:f", "no_such_module_at_all could not be loaded: ModuleNotFoundError"),
        ("good.py:scroe", "good.py has no 'scroe'; did you mean 'score'"),
        ("good.py:NUMBER", "good.py:NUMBER is a int, not a function"),
        ("good.py:positional", "arguments are passed by name, and 'completions' of positional"),
        ("good.py:nothing", r"nothing .* takes no arguments; expected at least `completions`"),
        ("good.py:unseen", "the arguments of .* cannot be seen; wrap it in a def"),
    ],
)
def test_functions_that_cannot_be_used(spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "good.py").write_text(
        "def score(completions): ...\ndef positional(completions, /): ...\ndef nothing(): ...\nNUMBER = 3\nunseen = dict\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message) as caught:
        build_rewards([RewardConfig(name="mine", function=spec)], columns=frozenset())  # type: ignore[call-arg]
    assert "reward 'mine'.function" in str(caught.value)


def test_a_callable_in_a_python_made_recipe() -> None:
    def mine(completions: list[str]) -> list[float]:
        return [1.0] * len(completions)

    (reward,) = build_rewards([RewardConfig(name="function", function=mine, timeout_s=5)], columns=frozenset())  # type: ignore[call-arg]
    assert reward.name == "mine"


@pytest.mark.parametrize("column", ["prompts", "completions", "completion_ids"])
def test_a_column_with_the_name_of_an_argument_is_refused_before_the_start(column: str) -> None:
    takes_all = FunctionReward.from_callable(lambda completions, **columns: [1.0], name="all")
    with pytest.raises(ConfigError, match=f"reward 'all': the data has a column '{column}'.*rename the column"):
        check_rewards([takes_all], frozenset({column}))
    with pytest.raises(DataError, match=f"row 3: reward 'all': the column '{column}' has the name of an argument"):
        check_prompts([takes_all], [Prompt(id="row 3", text="?", columns={column: 1})])


def test_such_a_column_harms_no_reward_that_is_not_given_it() -> None:
    only = FunctionReward.from_callable(lambda completions: [1.0], name="only")
    check_rewards([only], frozenset({"prompts", "completion_ids"}))
    check_rewards([NumberReward()], frozenset({"completions"}))
    with pytest.raises(ConfigError, match="column 'completions'"):
        check_rewards([only], frozenset({"completions"}))
