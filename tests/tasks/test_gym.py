"""The task `reasoning_gym`: purity, disjointness, small spaces, options."""

from __future__ import annotations

from typing import Any

import pytest

from toishi.config import TaskConfig
from toishi.errors import ConfigError, DataError
from toishi.tasks import Task, build_task

reasoning_gym = pytest.importorskip("reasoning_gym")
SMALL = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def gym(seed: int = 0, dataset: str = "chain_sum", **options: Any) -> Task:
    return build_task(TaskConfig(name="reasoning_gym", dataset=dataset, **({"config": SMALL} | options)), seed=seed)  # type: ignore[call-arg]


def test_entries_become_prompts_that_the_package_can_score() -> None:
    task = gym(heldout=4)
    prompt = task.train_prompt(3)
    assert isinstance(task, Task)
    assert (task.gold_column, task.num_train) == ("answer", None)
    assert task.columns == frozenset(prompt.columns) == frozenset({"answer", "entry", "dataset_config"})
    assert prompt.columns["dataset_config"] == SMALL
    assert prompt.shown.startswith("State the final answer to the following arithmetic problem: ")
    assert prompt.gold == prompt.columns["answer"] == prompt.columns["entry"]["answer"]
    score = reasoning_gym.get_score_answer_fn("chain_sum")
    assert (score(prompt.gold, prompt.columns["entry"]), score("no", prompt.columns["entry"])) == (1.0, 0.0)


def test_a_prompt_is_a_function_of_seed_and_index() -> None:
    task = gym(heldout=4)
    expected = task.train_prompt(11)
    task.train_prompt(0)
    assert task.train_prompt(11) == expected == gym(heldout=4).train_prompt(11)
    assert expected != gym(seed=1, heldout=4).train_prompt(11)


def test_training_and_held_out_texts_are_disjoint_in_a_small_space() -> None:
    task = gym(heldout=64)  # 2 terms of one digit with two signs: about 200 problems, so collisions are many
    held = [prompt.shown for prompt in task.heldout_prompts()]
    train = {task.train_prompt(index).shown for index in range(300)}
    assert len(set(held)) == len(held) == 64
    assert not train & set(held)
    assert len(train) > 100


def test_plain_prompts() -> None:
    assert gym(heldout=0, as_chat=False).train_prompt(0).messages is None


def test_a_space_that_is_too_small() -> None:
    with pytest.raises(DataError, match=r"task\.heldout: 'coin_flip' gave only \d+ different problems"):
        gym(dataset="coin_flip", config={"min_trials": 3, "max_trials": 3}, heldout=200)


def test_nothing_left_to_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.tasks.gym.TRIES", 5)
    task = gym(heldout=1)
    held = task.heldout_prompts()[0]
    monkeypatch.setattr(type(task), "_made", lambda *key: held)
    with pytest.raises(DataError, match="5 training problems in a row were held-out ones"):
        task.train_prompt(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "chain_sums"}, r"task\.dataset: reasoning_gym has no 'chain_sums'; did you mean 'chain_sum'"),
        ({"config": {"min_term": 2}}, r"task\.config\.min_term: unknown option of 'chain_sum'; did you mean 'min_terms'"),
        ({"config": {"seed": 2}}, r"task\.config\.seed: unknown option of 'chain_sum'"),
        ({"config": {"min_terms": 5, "max_terms": 2}}, r"task\.config: 'chain_sum' refuses \{'min_terms': 5, 'max_terms': 2\}"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gym(**options)
