"""What is found before a model is loaded: everything at once, with rows and remedies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from toishi.config import load_config
from toishi.errors import ConfigError, DataError, MissingExtraError, RewardError
from toishi.packages import missing_packages
from toishi.preflight import preflight

ROWS = '{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "2 + 2?", "answer": 4}\n{"prompt": "3 + 3?", "answer": 6}\n'


def recipe(folder: Path, rows: str = ROWS, **changes: Any) -> Any:
    (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
    task = {"name": "file", "path": str(folder / "rows.jsonl"), "gold_column": "answer", "heldout": 1}
    return load_config({"task": task, "train": {"steps": 2}} | changes)


def test_a_sound_recipe_gives_task_and_rewards(tmp_path: Path) -> None:
    found = preflight(recipe(tmp_path))
    assert found.findings == []
    task, rewards = found.require()
    assert (task.num_train, [reward.name for reward in rewards]) == (2, ["number"])
    assert len(found.rows) == 3


def test_a_single_error_is_raised_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 2"):
        preflight(recipe(tmp_path, '{"prompt": "a?", "answer": 1}\n{"prompt": 5, "answer": 1}\n')).require()


def test_golds_that_cannot_be_read_are_listed_with_their_rows(tmp_path: Path) -> None:
    found = preflight(recipe(tmp_path, ROWS.replace("4", '"x+2"').replace("6", '"No"')))
    assert [finding.part for finding in found.errors] == ["rewards"]
    assert "'x+2'" in found.errors[0].message
    assert "'No'" in found.errors[0].message


def test_a_missing_column_is_found(tmp_path: Path) -> None:
    found = preflight(recipe(tmp_path, rewards=[{"name": "number", "gold_column": "answers"}]))
    assert "did you mean 'answer'?" in found.errors[0].message


def test_a_reward_that_breaks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(completions, **columns):\n    raise OSError('no disk')\n", encoding="utf-8")
    found = preflight(recipe(tmp_path, rewards=[{"name": "mine", "function": f"{tmp_path}/mine.py:f"}]))
    with pytest.raises(RewardError, match="no disk"):
        found.require()


def test_several_errors_become_one_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = preflight(recipe(tmp_path, rewards=[{"name": "nmber"}], model={"lora": {}}))
    assert [finding.part for finding in found.errors] == ["packages", "rewards"]
    with pytest.raises(ConfigError, match=r"(?s)2 things to mend.*1\. LoRA training needs.*2\. .*there is no reward 'nmber'"):
        found.require()


def test_rewards_are_looked_at_although_the_task_cannot_be_built(tmp_path: Path) -> None:
    found = preflight(recipe(tmp_path, task={"name": "smus"}, rewards=[{"name": "regex", "pattern": "("}]))
    assert [finding.part for finding in found.errors] == ["data", "rewards"]
    assert "not a regular expression" in found.errors[1].message
    sound = preflight(recipe(tmp_path, task={"name": "smus"}, rewards=[{"name": "number", "gold_column": "x"}]))
    assert [finding.part for finding in sound.errors] == ["data"]  # columns are not known, so not missed


def test_a_missing_package_is_named_once_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, extra in (("hub", "hub"), ("reasoning_gym", "gym")):
        missing = missing_packages(load_config({"task": {"name": name, "dataset": "x"}}))
        assert [str(error).rpartition("pip install ")[2] for error in missing] == [f"'toishi[{extra}]'"]
    assert isinstance(missing[0], MissingExtraError)


def test_nothing_held_out_is_a_warning_and_so_are_few_rows(tmp_path: Path) -> None:
    config = recipe(tmp_path)
    few = config.model_copy(update={"train": config.train.model_copy(update={"steps": 30})})
    found = preflight(few)
    assert [finding.level for finding in found.findings] == ["warning"]
    assert "training prompts: 2, each used about 60 times" in found.findings[0].message
    none = load_config(config.model_dump(mode="json"), {"task.heldout": 0})
    assert ["no prompt is held out" in finding.message for finding in preflight(none).findings] == [True]
    assert preflight(none).errors == []


def test_doubts_of_the_dry_run_are_warnings_and_few(tmp_path: Path) -> None:
    found = preflight(recipe(tmp_path, rewards=[{"name": "length", "target": 5}]))
    assert found.errors == []
    assert 1 <= len(found.findings) <= 3


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"algorithm": "reinforce", "train": {"group_size": 1, "refill_rounds": 3}}, "a group of one answer"),
        ({"rewards": [{"name": "number", "weight": 0.0}], "train": {"refill_rounds": 3}}, "every reward has weight 0"),
        ({"train": {"refill_rounds": 3}}, ""),
        ({"algorithm": "reinforce", "train": {"group_size": 1}}, ""),
    ],
)
def test_refilling_in_search_of_what_cannot_be_is_a_warning(tmp_path: Path, changes: dict[str, Any], warned: str) -> None:
    found = preflight(recipe(tmp_path, **changes))
    messages = [finding.message for finding in found.findings if "looks for mixed groups" in finding.message]
    assert [warned in message for message in messages] == ([True] if warned else [])
