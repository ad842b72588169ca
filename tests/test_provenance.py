"""Prompts and rewards are named by what is in them: any change is seen, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toishi.config import RewardConfig, TaskConfig
from toishi.errors import DataError
from toishi.provenance import changed_rewards, data_fingerprints, require_same_data, reward_sources
from toishi.rewards import build_rewards
from toishi.rewards.function import FunctionReward
from toishi.rewards.scripted import ScriptedReward
from toishi.tasks import build_task
from toishi.tasks.scripted import ScriptedTask
from toishi.types import Prompt

TEXTS = ("one", "two", "three")


class Rows:
    """A task of given prompts, the last of them held out."""

    name = "rows"
    columns = frozenset({"a"})
    gold_column = None

    def __init__(self, prompts: list[Prompt]) -> None:
        self.prompts = prompts
        self.num_train = len(prompts) - 1

    def train_prompt(self, index: int) -> Prompt:
        return self.prompts[index % self.num_train]

    def heldout_prompts(self) -> list[Prompt]:
        return self.prompts[-1:]


def prompts(place: int | None = None, **changes: Any) -> list[Prompt]:
    rows: list[dict[str, Any]] = [{"id": text, "text": text, "gold": 1, "columns": {"a": [1, {"b": None}]}} for text in TEXTS]
    if place is not None:
        rows[place] |= changes
    return [Prompt(**row) for row in rows]


def run_of(task: Any) -> dict[str, Any]:
    counts = {"num_train": task.num_train, "num_heldout": len(task.heldout_prompts())}
    return {"task": {"name": task.name, **counts, "fingerprints": data_fingerprints(task)}}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {"text": "other"},
        {"text": None, "messages": ({"role": "user", "content": "one"},)},
        {"id": "x"},
        {"gold": 2},
        {"gold": "1"},
        {"columns": {"a": [1, {"b": 0}]}},
        {"columns": {"a": [1, {"b": None}], "c": date(2030, 1, 2)}},
    ],
)
def test_any_change_of_a_row_is_seen_and_named(place: int, changes: dict[str, Any]) -> None:
    run = run_of(Rows(prompts()))
    require_same_data(run, Rows(prompts()))
    part = "held-out prompts \\(1 then, 1 now\\)" if place == 2 else "training prompts \\(2 then, 2 now\\)"
    with pytest.raises(DataError, match=f"the {part} are not the same"):
        require_same_data(run, Rows(prompts(place, **changes)))


def test_more_rows_are_seen_also_past_the_first_2000() -> None:
    many = [Prompt(id=str(number), text="x") for number in range(2300)]
    with pytest.raises(DataError, match=r"training prompts \(2298 then, 2299 now\)"):
        require_same_data(run_of(Rows(many[:-1])), Rows(many[:-2] + many[:1] + many[-2:-1]))


def test_a_run_without_fingerprints_is_not_judged() -> None:
    require_same_data({"task": {"name": "rows"}}, Rows(prompts()))
    require_same_data({}, Rows(prompts()))


def test_objects_in_columns_do_not_make_the_data_look_changed() -> None:
    one, other = (Rows(prompts(0, columns={"a": object(), "b": {3, 1}})) for _ in range(2))
    require_same_data(run_of(one), other)


def test_fingerprints_are_the_same_in_every_process() -> None:
    code = """
from toishi.config import TaskConfig
from toishi.provenance import data_fingerprints
from toishi.tasks import build_task
print(data_fingerprints(build_task(TaskConfig(), seed=3))["train"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == data_fingerprints(build_task(TaskConfig(), seed=3))["train"]
    assert done.stdout.strip() != data_fingerprints(build_task(TaskConfig(), seed=4))["train"]
    assert len(data_fingerprints(ScriptedTask(TEXTS, heldout=["four"]))["heldout"]) == 64


def short(completions: list[str]) -> list[float]:
    return [-float(len(text)) for text in completions]


def test_sources_of_own_rewards_only() -> None:
    found = reward_sources([ScriptedReward(values=(1.0,)), FunctionReward.from_callable(short)])
    assert list(found) == ["short"]
    assert len(found["short"] or "") == 64
    assert reward_sources([FunctionReward.from_callable(partial(short), name="partly")]) == {"partly": found["short"]}
    typed_in: dict[str, Any] = {}
    exec("def typed(completions):\n    return []\n", typed_in)
    assert reward_sources([FunctionReward.from_callable(typed_in["typed"])]) == {"typed": None}


def test_a_changed_file_is_seen_and_an_unknown_source_is_not_blamed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("LIMIT = 3\ndef score(completions):\n    return [LIMIT] * len(completions)\n")
    config = RewardConfig.model_validate({"name": "mine", "kind": "function", "function": f"{path}:score"})

    def built() -> Any:
        return build_rewards([config], columns=frozenset())

    run = {"rewards": reward_sources(built())}
    assert changed_rewards(run, built()) == []
    path.write_text(path.read_text().replace("LIMIT = 3", "LIMIT = 4"))
    assert changed_rewards(run, built()) == ["mine"]
    assert changed_rewards({"rewards": {"mine": None}}, built()) == []
    assert changed_rewards({}, built()) == []
