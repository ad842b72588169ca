"""Listed tasks: the split, disjointness, and the fake."""

from __future__ import annotations

from typing import Any

import pytest

from toishi.config import TaskConfig
from toishi.errors import ConfigError, DataError
from toishi.tasks import ListedTask, ScriptedTask, Task, build_task
from toishi.tasks.listed import split_heldout
from toishi.tasks.order import epoch_position, keyed_hash, keyed_order, text_key
from toishi.tasks.topics import THINGS
from toishi.types import Prompt


def prompts(*texts: str) -> tuple[Prompt, ...]:
    return tuple(Prompt(id=f"row {number}", text=text) for number, text in enumerate(texts, start=1))


def test_orders_are_permutations_that_depend_on_their_key() -> None:
    assert sorted(keyed_order(50, 1, "x")) == list(range(50))
    assert keyed_order(50, 1, "x") != keyed_order(50, 2, "x")
    assert keyed_order(0, 1, "x") == ()
    assert keyed_hash(1, "2") != keyed_hash("1", 2)
    assert sorted(epoch_position(index, 7, seed=3) for index in range(70, 77)) == list(range(7))


def test_the_hash_is_the_same_on_every_machine() -> None:
    # printf "(0, 'train', 1)" | b2sum -l 64
    assert keyed_hash(0, "train", 1) == 0x9BE4B8339AF71A06


def test_texts_are_compared_without_case_width_and_spacing() -> None:
    chat = Prompt(id="a", messages=({"role": "user", "content": "ＨＥＬＬＯ  there\n"},))
    same = Prompt(id="b", messages=({"role": "user", "content": "hello there"},))
    other = Prompt(id="c", messages=({"role": "system", "content": ""}, {"role": "user", "content": "hello there"}))
    assert text_key(chat) == text_key(same) != text_key(other)
    assert text_key(Prompt(id="d", text="hello there")) != text_key(same)


def test_the_split_keeps_copies_in_training() -> None:
    rows = prompts("a", "b", "A ", "c", "b", "d")
    train, heldout = split_heldout(rows, 2, seed=0, where="task")
    assert {prompt.text for prompt in heldout} == {"c", "d"}
    assert [prompt.id for prompt in train] == ["row 1", "row 2", "row 3", "row 5"]


def test_the_split_is_decided_by_the_seed() -> None:
    rows = prompts(*map(str, range(40)))
    splits = [split_heldout(rows, 10, seed=seed, where="task")[1] for seed in range(5)]
    assert len({frozenset(prompt.id for prompt in heldout) for heldout in splits}) == 5
    assert split_heldout(rows, 10, seed=3, where="task") == split_heldout(rows, 10, seed=3, where="task")


@pytest.mark.parametrize(
    ("texts", "heldout", "most"), [(("a", "b"), 64, 1), (("a", "b"), 2, 1), (("a",), 1, 0), (("a", "A", "b"), 2, 1)]
)
def test_more_held_out_than_there_is(texts: tuple[str, ...], heldout: int, most: int) -> None:
    with pytest.raises(
        DataError, match=rf"task\.heldout: {heldout} prompts to hold out of {len(texts)} rows .* to at most {most}"
    ):
        split_heldout(prompts(*texts), heldout, seed=0, where="task")


def test_a_text_on_both_sides_is_an_error_that_names_the_rows() -> None:
    train, heldout = prompts("a", "b", "What is 2?"), (Prompt(id="test 1", text="what is  2?"),)
    with pytest.raises(DataError, match=r"1 training prompts have the same text .*row 3 = test 1"):
        ListedTask(name="x", columns=frozenset(), train=train, heldout=heldout)


def test_nothing_to_train_on() -> None:
    with pytest.raises(DataError, match="no training prompt"):
        ListedTask(name="x", columns=frozenset(), train=())


def test_the_scripted_task_gives_what_it_was_given() -> None:
    given = Prompt(id="mine", text="?", gold=1, columns={"answer": 1})
    task = ScriptedTask([given, "plain"], heldout=["held"], gold_column="answer")
    assert isinstance(task, Task)
    assert [task.train_prompt(index) for index in (0, 2)] == [given, given]
    assert (task.columns, task.num_train, task.gold_column, task.name) == (frozenset({"answer"}), 2, "answer", "scripted")
    assert [prompt.id for prompt in task.heldout_prompts()] == ["heldout-0"]


@pytest.mark.parametrize(
    ("name", "options", "question"),
    [
        ("describe", {}, "Describe an owl in one sentence."),
        ("json_keys", {}, 'Write a JSON object with the keys "name" and "color" for an owl. Answer with just the JSON.'),
        ("json_keys", {"keys": ["name"], "template": "{thing}: {keys}, {x}"}, 'an owl: "name", {x}'),
        ("json_keys", {"keys": ["a", "b", "c"], "template": "{keys}, {thing}"}, '"a", "b" and "c", an owl'),
    ],
)
def test_topics(name: str, options: dict[str, Any], question: str) -> None:
    task = build_task(TaskConfig(name=name, **options), seed=0)
    every = [task.train_prompt(index) for index in range(task.num_train or 0)] + list(task.heldout_prompts())
    assert question in {prompt.shown for prompt in every}
    assert sorted(prompt.columns["thing"] for prompt in every) == sorted(THINGS)
    assert len(task.heldout_prompts()) == 64
    assert task.gold_column is None


def test_topics_need_a_place_for_the_thing() -> None:
    with pytest.raises(ConfigError, match=r"task\.template: 'Say hi' must have \{thing\}"):
        build_task(TaskConfig(name="describe", template="Say hi"), seed=0)  # type: ignore[call-arg]


def test_things_are_different_words() -> None:
    assert len(THINGS) == len(set(THINGS)) > 150
