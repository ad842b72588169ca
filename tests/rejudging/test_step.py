"""A recorded step judged again: what is compared, what is expected, what is refused. Judges of known noise, runs on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import run_command
from tests.record.builders import RUN_FIELDS
from tests.rejudging.noisy import NoisyReward
from toishi.algorithms.apply import assign_advantages
from toishi.config import load_config
from toishi.errors import ConfigError, RecordError
from toishi.given import Given
from toishi.ops.noise import flip_probability
from toishi.record import Run, RunWriter
from toishi.rejudging.step import rejudge
from toishi.rewards import REWARDS, Reward, build_rewards
from toishi.rewards.scripted import ScriptedReward, answered
from toishi.scoring import score_groups
from toishi.types import Group, Prompt, Rollout, RolloutId, StepReport

GROUPS, SIZE = 40, 4
TEXTS = ("aeiou", "aeibb", "abbbb", "abbbb")  # truths 1, .6, .2, .2


@pytest.fixture(autouse=True)
def _noisy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REWARDS, "noisy", NoisyReward)


def write(folder: Path, rewards: Sequence[dict[str, Any]], *, algorithm: str = "grpo", asked: Reward | None = None) -> Run:
    """A run of one step whose rewards and advantages are computed by the stages of training."""
    config = load_config({"rewards": rewards, "algorithm": algorithm, "train": {"group_size": SIZE}})
    groups = []
    for number in range(GROUPS):
        prompt = Prompt(id=f"p{number}", text=f"{number}?", columns={"a": number}, gold=number)
        rollouts = tuple(
            Rollout(id=RolloutId(1, number, member), prompt=prompt, completion=answered(text))
            for member, text in enumerate(TEXTS)
        )
        groups.append(Group(prompt=prompt, rollouts=rollouts))
    built = build_rewards(config.rewards, columns=frozenset({"a"})) if asked is None else (asked,)
    scored = score_groups(groups, built, config.rewards)
    done = assign_advantages(scored, config.algorithm, max_new_tokens=config.sampling.max_new_tokens)
    writer = RunWriter.create(folder, {**RUN_FIELDS, "config": json.loads(config.model_dump_json())})
    report = StepReport(step=1, groups=done, updates=(), metrics={}, timings_s={"step": 1.0})
    writer.write_step(report, lambda ids: ["t"] * len(ids))
    return Run.open(folder)


def noisy(noise_sd: float, **options: Any) -> list[dict[str, Any]]:
    return [{"name": "noisy", "noise_sd": noise_sd, **options}]


def truths(noise_sd: float) -> list[float]:
    """Chance of a flip of each member by the definition, from the truths of TEXTS."""
    return [flip_probability(truth - 0.5, noise_sd, SIZE) for truth in (1.0, 0.6, 0.2, 0.2)]


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "rloo"])
def test_signs_change_as_often_as_the_noise_says(tmp_path: Path, algorithm: str) -> None:
    found = rejudge(write(tmp_path / "run", noisy(0.3), algorithm=algorithm), 1, 5)
    assert found.noise["noisy"] == pytest.approx(0.3, rel=0.1)
    assert found.reward_noise == found.noise["noisy"]
    assert (found.compared, found.no_score, found.gained) == (GROUPS * SIZE * 5, 0, 0)
    # two askings differ in sign with chance 2 p (1 - p)
    expected = np.mean([2 * p * (1 - p) for p in truths(0.3)])
    error = 4 * math.sqrt(expected * (1 - expected) / (GROUPS * SIZE))
    assert found.share == pytest.approx(expected, abs=error)
    assert found.expected == pytest.approx(found.share, abs=0.02)
    assert "asked 5 times more" in found.sentence
    assert "were to be expected" in found.sentence


def test_the_numbers_of_an_answer_follow_from_the_askings(tmp_path: Path) -> None:
    run = write(tmp_path / "run", noisy(0.3), algorithm="dr_grpo")
    found = rejudge(run, 1, 3)
    reward = NoisyReward(noise_sd=0.3)
    first = [one for one in found.answers if one.group == 7]
    prompt, completions = Prompt(id="p7", text="7?"), [answered(text) for text in TEXTS]
    for repeat in (1, 2, 3):
        said = [judgement.value or 0.0 for (judgement,) in reward.score_group_again(prompt, completions, repeat)]
        assert [one.rewards[repeat - 1] for one in first] == pytest.approx(said)
        assert [one.advantages[repeat - 1] for one in first] == pytest.approx([value - np.mean(said) for value in said])
    for one, before in zip(first, run.step(1).groups[7].rollouts, strict=True):
        assert (one.reward, one.advantage) == (before.reward, before.advantage)
        assert one.changed == sum((advantage or 0.0) * one.advantage <= 0 for advantage in one.advantages)
        assert one.sd == pytest.approx(np.std(np.array(one.rewards, dtype=float), ddof=1))


def test_a_reward_without_noise_changes_nothing(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"name": "length", "target": 3}])
    found = rejudge(run, 1, 2)
    assert found.sentence == "no noise: asked 2 times more, nothing changes"
    assert (found.changed, found.reward_noise) == (0, 0.0)


def test_tied_groups_get_signs_from_noise_alone(tmp_path: Path) -> None:
    """A rounded record: everyone had 0, and the asking again hands out advantages."""
    run = write(tmp_path / "run", noisy(0.3), asked=ScriptedReward(name="noisy", values=(0.5,)))
    found = rejudge(run, 1, 2)
    assert (found.compared, found.share, found.expected) == (0, None, None)
    assert found.gained == GROUPS * SIZE * 2
    assert "320 advantages came where there was none" in found.sentence


def test_only_the_named_reward_is_asked(tmp_path: Path) -> None:
    rewards = [*noisy(0.2, weight=2.0), {"name": "other", "kind": "noisy", "noise_sd": 0.5, "seed": 1}]
    run = write(tmp_path / "run", rewards)
    found = rejudge(run, 1, 2, reward="noisy")
    assert list(found.noise) == ["noisy"]
    assert found.reward_noise == pytest.approx(2 * (found.noise["noisy"] or 0.0))
    assert list(rejudge(run, 1, 2).noise) == ["noisy", "other"]


def test_askings_without_a_score_are_counted_and_left_out(tmp_path: Path) -> None:
    run = write(tmp_path / "run", noisy(0.2, fails=5))
    before = [rollout for rollout in run.step(1).rollouts if rollout.status == "failed"]
    found = rejudge(run, 1, 4)
    assert len(before) > 10
    assert found.no_score == sum(reward is None for one in found.answers for reward in one.rewards)
    assert found.no_score == pytest.approx(GROUPS * SIZE * 4 / 5, rel=0.3)
    assert all((one.compared == 0) == (one.advantage == 0) for one in found.answers)
    lost = next(one for one in found.answers if None in one.rewards and one.compared)
    assert lost.compared == 4 - lost.rewards.count(None)


def test_one_asking_gives_no_expectation(tmp_path: Path) -> None:
    found = rejudge(write(tmp_path / "run", noisy(0.3)), 1, 1)
    assert (found.expected, found.reward_noise) == (None, None)
    assert "asked 1 time more" in found.sentence


def test_the_noise_floor_of_the_recipe_holds_again(tmp_path: Path) -> None:
    """With a stated noise that explains every difference, nothing is paid and nothing flips."""
    found = rejudge(write(tmp_path / "run", noisy(0.3, noise=5.0)), 1, 2)
    assert (found.compared, found.gained) == (0, 0)


def test_python_objects_have_to_be_given_again(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [{"name": "noisy", "python": "made.here:NoisyReward"}], asked=NoisyReward(noise_sd=0.3))
    with pytest.raises(ConfigError, match="'noisy' came as Python objects"):
        rejudge(run, 1, 2)
    assert rejudge(run, 1, 2, given=Given(rewards=(NoisyReward(noise_sd=0.3),))).changed > 0


def test_mistakes_are_named(tmp_path: Path) -> None:
    run = write(tmp_path / "run", noisy(0.3))
    with pytest.raises(ConfigError, match="did you mean 'noisy'"):
        rejudge(run, 1, 2, reward="nosy")
    with pytest.raises(ConfigError, match="at least 1 asking"):
        rejudge(run, 1, 0)
    with pytest.raises(RecordError, match="step 9 is not on record"):
        rejudge(run, 9, 2)


def test_the_command(tmp_path: Path) -> None:
    run = write(tmp_path / "run", noisy(0.3))
    ended = run_command("explain", run.folder, "--step", "1", "--rejudge", "3")
    assert ended.code == 0
    found = rejudge(run, 1, 3)
    assert found.sentence in " ".join(ended.out.split())
    assert max(map(len, ended.out.splitlines())) <= 80
    said = json.loads(run_command("explain", run.folder, "--step", "1", "--rejudge", "3", "--json").out)
    assert said["changed"] == found.changed
    assert len(said["answers"]) == GROUPS * SIZE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rejudge", "2"), "add --step N"),
        (("--step", "1", "--reward", "noisy"), "--rejudge M"),
        (("--step", "1", "--rejudge", "2", "--group", "0"), "whole step"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    run = write(tmp_path / "run", noisy(0.3))
    ended = run_command("explain", run.folder, *options, width=200)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())
