"""The task `sums`: golds, the split, and prompts as a function of (seed, index) alone."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toishi.config import TaskConfig
from toishi.errors import ConfigError
from toishi.tasks import Task, build_task
from toishi.types import Prompt


def sums(seed: int = 0, **options: Any) -> Task:
    return build_task(TaskConfig(name="sums", **options), seed=seed)


def terms_of(prompts: list[Prompt]) -> list[tuple[int, ...]]:
    return [prompt.columns["terms"] for prompt in prompts]


def train_prompts(task: Task, count: int | None = None) -> list[Prompt]:
    return [task.train_prompt(index) for index in range(count or task.num_train or 0)]


def test_the_default_task() -> None:
    task = sums()
    assert isinstance(task, Task)
    assert (task.name, task.gold_column, task.columns) == ("sums", "answer", frozenset({"answer", "terms"}))
    for prompt in [*train_prompts(task), *task.heldout_prompts()]:
        a, b = prompt.columns["terms"]
        assert 1 <= a <= 20
        assert 1 <= b <= 20
        assert prompt.messages == ({"role": "user", "content": f"What is {a} + {b}? Answer with just the number."},)
        assert prompt.gold == prompt.columns["answer"] == a + b
        assert prompt.id == f"sums/{a}+{b}"


def test_held_out_sums_and_their_commuted_twins_are_not_trained_on() -> None:
    task = sums()
    held, train = terms_of(list(task.heldout_prompts())), terms_of(train_prompts(task))
    assert len(held) == len({tuple(sorted(pair)) for pair in held}) == 64
    assert len(train) == len(set(train)) == task.num_train
    assert not {tuple(sorted(pair)) for pair in held} & {tuple(sorted(pair)) for pair in train}
    doubles = sum(a == b for a, b in held)
    assert len(train) == 400 - (2 * 64 - doubles)  # each held-out a+b takes b+a with it, a+a only itself


def test_commuted_twins_may_be_ignored_and_never_matter_for_subtraction() -> None:
    assert sums(commuted="ignore").num_train == 400 - 64
    assert sums(operation="subtract").num_train == 400 - 64
    assert sums(operation="multiply").num_train != 400 - 64


@pytest.mark.parametrize(
    ("options", "terms", "question", "gold"),
    [
        ({"operation": "subtract", "terms": 3, "template": "{expression} ="}, (5, 7, 2), "5 - 7 - 2 =", -4),
        ({"operation": "multiply", "terms": 2, "template": "{a} times {b}?"}, (3, 4), "3 times 4?", 12),
        ({"operation": "add", "terms": 4, "template": "{expression}"}, (1, 2, 3, 4), "1 + 2 + 3 + 4", 10),
        ({"operation": "add", "low": -9, "template": "{expression}"}, (-3, -4), "-3 + (-4)", -7),
    ],
)
def test_questions_and_golds_by_hand(options: dict[str, Any], terms: tuple[int, ...], question: str, gold: int) -> None:
    from toishi.tasks.sums import Sums

    made = Sums(**options)
    assert (made.question(terms), made.answer(terms)) == (question, gold)


def test_plain_text_prompts() -> None:
    prompt = sums(as_chat=False).train_prompt(0)
    assert prompt.messages is None
    assert prompt.text is not None
    assert prompt.text.startswith("What is ")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), index=st.integers(0, 10**6), huge=st.booleans())
def test_a_prompt_is_a_function_of_seed_and_index(seed: int, index: int, huge: bool) -> None:
    options: dict[str, Any] = {"high": 10**6 if huge else 12, "heldout": 8}
    task = sums(seed, **options)
    expected = task.train_prompt(index)
    train_prompts(task, 5)  # what was asked before makes no difference
    assert task.train_prompt(index) == expected == sums(seed, **options).train_prompt(index)


def test_the_order_is_the_same_in_another_process() -> None:
    code = (
        "from toishi.config import TaskConfig; from toishi.tasks import build_task;"
        "t = build_task(TaskConfig(name='sums'), seed=5); print([t.train_prompt(i).id for i in range(300, 306)])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str([sums(5).train_prompt(index).id for index in range(300, 306)])


def test_each_epoch_shows_every_problem_once_in_an_order_of_its_own() -> None:
    task = sums(high=6, heldout=4)
    count = task.num_train
    assert count is not None
    epochs = [terms_of([task.train_prompt(epoch * count + place) for place in range(count)]) for epoch in range(3)]
    assert set(epochs[0]) == set(epochs[1]) == set(epochs[2])
    assert len(set(epochs[0])) == count
    assert epochs[0] != epochs[1] != epochs[2]


def test_seeds_differ_in_split_and_order() -> None:
    assert terms_of(list(sums(0).heldout_prompts())) != terms_of(list(sums(1).heldout_prompts()))
    assert terms_of(train_prompts(sums(0), 10)) != terms_of(train_prompts(sums(1), 10))


def test_a_huge_space_is_never_listed_and_stays_disjoint() -> None:
    task = sums(low=0, high=9_999, terms=3)
    assert task.num_train is None
    held, train = terms_of(list(task.heldout_prompts())), terms_of(train_prompts(task, 500))
    assert len(set(held)) == 64
    assert len(set(train)) > 490
    assert not {tuple(sorted(terms)) for terms in held} & {tuple(sorted(terms)) for terms in train}


def test_a_drawn_training_problem_is_drawn_again_when_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.tasks.sums.LISTED_MAX", 10)
    task = sums(high=4, heldout=5)
    held = {tuple(sorted(terms)) for terms in terms_of(list(task.heldout_prompts()))}
    train = {tuple(sorted(terms)) for terms in terms_of(train_prompts(task, 200))}
    assert task.num_train is None
    assert len(held) == len(train) == 5  # 10 different sums of 1..4, half of them held out
    assert not held & train


def test_without_held_out_problems() -> None:
    task = sums(heldout=0)
    assert (list(task.heldout_prompts()), task.num_train) == ([], 400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hihg": 9}, r"task\.hihg: unknown option; did you mean 'high'\?"),
        ({"high": "20"}, r"task\.high: .*valid integer, got '20'"),
        ({"heldout": -1}, r"task\.heldout: .*greater than or equal to 0, got -1"),
        ({"heldout": True}, r"task\.heldout: .*valid integer, got True"),
        ({"terms": 1}, r"task\.terms: .*greater than or equal to 2, got 1"),
        ({"operation": "divide"}, r"task\.operation: .*got 'divide'"),
        ({"low": 5, "high": 4}, r"task\.low=5 is above task\.high=4"),
        ({"template": "What is {sum}?"}, r"task\.template: .*cannot be filled.*\{expression\}"),
        ({"template": "What is {?"}, r"task\.template: .*cannot be filled"),
        ({"template": "What is it?"}, r"task\.template: .*does not show the problem"),
        ({"high": 3, "heldout": 5}, r"task\.heldout: 5 of 6 different problems is more than half"),
        ({"high": 3, "heldout": 5, "commuted": "ignore"}, r"task\.heldout: 5 of 9 different problems is more than half"),
        ({"low": 0, "high": 2, "terms": 16, "heldout": 77}, r"task\.heldout: 77 of 153 different problems is more than half"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sums(**options)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"there is no task 'flie'; did you mean 'file'"):
        build_task(TaskConfig(name="flie"), seed=0)


def test_written_is_a_task_option_of_sums() -> None:
    from toishi.tasks.sums import Sums

    task = Sums(written=True).build(seed=0)
    for index in range(50):
        columns = task.train_prompt(index).columns
        assert columns["completion"] == columns["chosen"] == str(columns["answer"])
        assert 1 <= abs(int(columns["rejected"]) - columns["answer"]) <= 9
