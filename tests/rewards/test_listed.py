"""Rewards as a recipe lists them: built from options, tried on made-up answers, and steps through to their tokens' credit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rewards.test_reward_model import save_classifier
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import algorithm
from toishi.config import RewardConfig
from toishi.errors import ConfigError
from toishi.packages import missing_packages
from toishi.rewards import Reward, build_rewards, check_prompts
from toishi.rewards.hooks import prepare_rewards
from toishi.rewards.scripted import answered
from toishi.rewards.steps import StepsReward
from toishi.scoring import dry_run, score_groups
from toishi.tasks.gym import Gym
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId


def entries(model: Path) -> list[dict[str, Any]]:
    return [
        {"name": "soft_overlong", "max_tokens": 64, "ramp_tokens": 16},
        {"name": "repetition", "n": 4},
        {"name": "language", "language": "en", "weight": 0.2},
        {"name": "json_schema", "schema": {"type": "object"}, "where": "last"},
        {"name": "regex", "pattern": "-?[0-9]+", "group": 0},
        {"name": "contains", "phrases": ["a", "b"], "need": "any"},
        {"name": "steps", "known": True, "wrong": -1},
        {"name": "gym", "where": "last_line"},
        {"name": "reward_model", "model": str(model), "centre": "group"},
    ]


def built(listed: Sequence[dict[str, Any]]) -> tuple[Reward, ...]:
    return build_rewards([RewardConfig(**entry) for entry in listed], columns=frozenset({"answer", "entry"}))


def test_each_is_built_from_a_recipe_s_words_and_tried_on_made_up_answers(tmp_path: Path) -> None:
    listed = entries(save_classifier(tmp_path, "llama"))
    rewards = built(listed)
    assert [reward.name for reward in rewards] == [entry["name"] for entry in listed]
    task = Gym(dataset="chain_sum", config={"max_terms": 2}, heldout=0).build(seed=0)
    prompts = [task.train_prompt(index) for index in range(2)]
    check_prompts(rewards, prompts)
    assert prepare_rewards(rewards, prompts) == []
    found = dry_run(rewards, [entry.get("weight", 1.0) for entry in listed], prompts)
    assert found.errors == ()
    of_the_gold = next(row for row in found.rows if row.answer == "the gold")
    assert {score.reward: score.value for score in of_the_gold.scores if score.reward in ("gym", "regex")} == {
        "gym": 1.0,
        "regex": 1.0,
    }
    for row in found.rows:
        assert {score.status for score in row.scores} <= {"ok", "abstained"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "soft_overlong", "max_tokens": 8}, r"reward 'soft_overlong'\.ramp_tokens: this option is required"),
        ({"name": "soft_overlong", "max_tokens": True, "ramp_tokens": 1}, r"max_tokens: "),
        ({"name": "repetition", "n": 0}, r"reward 'repetition'\.n: .*greater than or equal to 1"),
        ({"name": "language", "lang": "en"}, r"reward 'language'\.lang: unknown option; did you mean 'language'\?"),
        ({"name": "contains", "phrases": []}, r"reward 'contains'\.phrases: "),
        ({"name": "contains", "phrases": [""]}, r"reward 'contains'\.phrases: "),
        ({"name": "contains", "phrases": "a"}, r"reward 'contains'\.phrases: "),
        ({"name": "steps", "right": float("nan")}, r"reward 'steps'\.right: "),
        ({"name": "steps", "tag": "<step>"}, r"reward 'steps'\.tag: "),
        ({"name": "gym", "binary": 1}, r"reward 'gym'\.binary: "),
        ({"name": "reward_model"}, r"reward 'reward_model'\.model: this option is required"),
        ({"name": "reward_model", "model": "a/b", "dtype": "fp16"}, r"reward 'reward_model'\.dtype: "),
    ],
)
def test_wrong_options_are_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built([entry])


def test_missing_packages_are_found_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    from toishi.config import Config

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = Config.model_validate({"rewards": [{"name": "shape", "kind": "json_schema", "schema": {}}, {"name": "gym"}]})
    said = [str(error) for error in missing_packages(config)]
    assert any("the reward 'json_schema' needs the package 'jsonschema'" in text and "toishi[schema]" in text for text in said)
    assert any("the reward 'gym' needs the package 'reasoning_gym'" in text and "toishi[gym]" in text for text in said)


def spelt(text: str) -> Completion:
    """One token a character, and a token that stops."""
    ids = (*map(ord, text), 0)
    zeros = (0.0,) * len(ids)
    return Completion(
        token_ids=ids, loss_mask=(1,) * len(ids), sampled_logprobs=zeros, entropies=zeros, text=text, finish_reason="stop"
    )


def test_the_tokens_of_a_step_get_its_credit() -> None:
    """Step rewards 1, 0 and 1, mean 2/3. A token adds the centred rewards of the steps that end at or after it."""
    prompt = Prompt(id="a", text="?")
    rollouts = tuple(
        Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=spelt(text))
        for member, text in enumerate(["1+1=2\n2+2=5", "1+2=3"])
    )
    reward = StepsReward().with_decode(lambda ids: "".join(chr(id) for id in ids if id))
    scored = score_groups([Group(prompt=prompt, rollouts=rollouts)], [reward], [1.0])
    assert [[score.span for score in rollout.scores] for rollout in scored[0].rollouts] == [[(0, 5), (6, 11)], [(0, 5)]]
    (group,) = assign_advantages(scored, algorithm("dr_grpo"), max_new_tokens=16)
    first, second = (rollout.advantage_per_token for rollout in group.rollouts)
    assert first == pytest.approx([-1 / 3] * 5 + [-2 / 3] * 6 + [0.0])
    assert second == pytest.approx([1 / 3] * 5 + [0.0])


def test_an_answer_without_steps_is_worth_nothing_and_stays_in_the_baseline() -> None:
    prompt = Prompt(id="a", text="?")
    rollouts = tuple(
        Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=answered(text))
        for member, text in enumerate(["two", "1+1=2"])
    )
    (group,) = score_groups([Group(prompt=prompt, rollouts=rollouts)], [StepsReward()], [1.0])
    assert group.rewards == (0.0, 1.0)
