"""Historical variance by hand, and the prompts that `toishi select --history` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import run_command
from tests.tiny import save_tiny
from toishi.collecting.history import history
from toishi.config import Config, load_config
from toishi.errors import ConfigError, DataError
from toishi.loop import train
from toishi.record.reader import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model")))


def recipe(tiny: str, **values: object) -> Config:
    given: dict[str, object] = {
        "model": {"name": tiny, "dtype": "float32"},
        "task": {"name": "sums", "heldout": 2, "pool": 2},
        "rewards": [{"name": "random", "probability": 0.5}],
        "sampling": {"max_new_tokens": 4},
        "train": {"steps": 4, "prompts_per_step": 2, "group_size": 2},
        "evaluation": {"prompts": 0},
    }
    return load_config(given, values)


@pytest.fixture(scope="module")
def run(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run.open(train(recipe(tiny), tmp_path_factory.mktemp("runs") / "run").folder)


def by_hand(run: Run) -> dict[str, list[float]]:
    """Shares of rewards of 1 by prompt and step, straight from the record's rows."""
    rates: dict[str, list[float]] = {}
    for step in run.steps:
        rows = run.rollout_rows(step)
        for prompt in dict.fromkeys(row["prompt_id"] for row in rows):
            earned = [row["reward"] for row in rows if row["prompt_id"] == prompt]
            rates.setdefault(prompt, []).append(sum(earned) / len(earned))
    return rates


def test_prompts_are_ranked_by_the_variance_of_their_success(run: Run) -> None:
    rule, lived = history(run)
    rates = by_hand(run)
    assert rule.words == "random >= 0.5"
    assert {one.asked.id: list(one.rates) for one in lived} == rates
    assert all(len(seen) == 4 for seen in rates.values())
    for one in lived:
        mean = sum(one.rates) / 4
        assert one.variance == pytest.approx(sum((rate - mean) ** 2 for rate in one.rates) / 4)
    assert [one.variance for one in lived] == sorted((one.variance for one in lived), reverse=True)


def test_the_command_writes_the_first(run: Run, tmp_path: Path) -> None:
    ended = run_command("select", "--history", run.folder, "-o", tmp_path / "one.jsonl", "--json")
    assert ended.code == 0
    (row,) = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text("utf-8").splitlines()]
    (_, first), *_ = [history(run)]
    assert row["id"] == first[0].asked.id
    assert row["answer"] == sum(row["terms"])
    assert row["historical_variance"] == first[0].variance
    assert json.loads(ended.out)["prompts"] == 2
    told = run_command("select", "--history", run.folder, "-o", tmp_path / "two.jsonl", "--prompts", "2")
    assert "2 of 2 prompts written" in told.out
    assert len((tmp_path / "two.jsonl").read_text("utf-8").splitlines()) == 2


def test_a_run_that_asked_nothing_twice_is_refused(tiny: str, tmp_path: Path) -> None:
    once = train(recipe(tiny, **{"train.steps": 1}), tmp_path / "run").folder
    with pytest.raises(DataError, match="no prompt was asked twice in its 1 steps"):
        history(Run.open(once))
    with pytest.raises(ConfigError, match="there is no reward 'right'"):
        history(Run.open(once), reward="right")
