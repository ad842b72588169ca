"""Rewards from a recipe: names, kinds, columns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.config import RewardConfig
from toishi.errors import ConfigError
from toishi.rewards import REWARDS, Judgement, Reward, ScriptedReward, build_rewards


def configs(*entries: dict[str, Any]) -> list[RewardConfig]:
    return [RewardConfig(**entry) for entry in entries]


def test_each_reward_is_built_in_the_recipe_s_order() -> None:
    entries = configs(
        {"name": "number", "weight": 2},
        {"name": "text"},
        {"name": "format", "tags": ["think", "answer"]},
        {"name": "length", "target": 30},
        {"name": "json_keys", "keys": ["name", "color"]},
    )
    rewards = build_rewards(entries, columns=frozenset())
    assert [reward.name for reward in rewards] == ["number", "text", "format", "length", "json_keys"]
    assert all(isinstance(reward, Reward) for reward in rewards)
    assert set(REWARDS) > {reward.name for reward in rewards} | {"function"}


def test_two_of_a_kind_need_names_of_their_own() -> None:
    rewards = build_rewards(
        configs({"name": "short", "kind": "length", "target": 10}, {"name": "long", "kind": "length", "target": 90}),
        columns=frozenset(),
    )
    assert [reward.name for reward in rewards] == ["short", "long"]
    with pytest.raises(ConfigError, match="2 rewards are called 'length'"):
        build_rewards(configs({"name": "length", "target": 10}, {"name": "length", "target": 90}), columns=frozenset())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "numbr"}, "there is no reward 'numbr'; did you mean 'number'"),
        ({"name": "mine", "kind": "lenght"}, "there is no reward 'lenght'; did you mean 'length'"),
        ({"name": "mine", "kind": 3}, "there is no reward '3'"),
        ({"name": "length"}, r"reward 'length'\.target: this option is required"),
        ({"name": "length", "target": 30, "scale": 0}, r"reward 'length'\.scale: .*greater than 0, got 0"),
        ({"name": "json_keys", "keys": []}, r"reward 'json_keys'\.keys: "),
        ({"name": "json_keys", "keys": [1]}, r"reward 'json_keys'\.keys: .*string"),
        ({"name": "number", "gold_column": "anser"}, "needs the column 'anser'.*did you mean 'answer'"),
        ({"name": "function"}, r"reward 'function'\.function: this option is required"),
    ],
)
def test_wrong_entries_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_rewards(configs(entry), columns=frozenset({"answer"}))


def test_at_least_one_reward() -> None:
    with pytest.raises(ConfigError, match="at least one reward"):
        build_rewards([], columns=frozenset())


def test_the_scripted_reward_says_what_it_is_told() -> None:
    by_text = ScriptedReward(values=lambda prompt, completion: float(completion.text == prompt.gold))
    assert judge(by_text, "7", asked(gold="7")).value == 1.0
    said = Judgement(value=0.5, reason="half")
    assert judge(ScriptedReward(values=(said,)), "", asked()) is said


def test_all_wrong_rewards_are_named_at_once_and_without_columns_too() -> None:
    wrong = configs({"name": "nmber"}, {"name": "text"}, {"name": "regex", "pattern": "("}, {"name": "length", "target": 0})
    with pytest.raises(ConfigError) as caught:
        build_rewards(wrong, columns=None)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["rewards", "reward 'regex'.pattern", "reward 'length'.target"]
    assert "did you mean 'number'? Your own" in lines[0]
    assert [reward.name for reward in build_rewards(configs({"name": "number", "gold_column": "x"}), columns=None)] == [
        "number"
    ]


def test_a_gate_by_name_alone_is_told_how_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"write \{reward: format\}"):
        configs({"name": "number", "gate": "format"})
