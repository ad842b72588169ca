"""The reward that is paid against one that is only watched: reward hacking as the record shows it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.health.histories import MadeRun, Row, Shape, healthy
from tests.health.replaying import alarms
from toishi.config import Config, load_config
from toishi.health.rules import BY_NAME

WATCHED = load_config(
    {"rewards": [{"name": "proxy", "kind": "contains", "phrases": ["a"]}, {"name": "truth", "kind": "number", "weight": 0}]}
)
ANSWERS = 32


def watched(share: float, noise: random.Random, *, looks: bool = True) -> Row:
    """A step's numbers of a reward that finds each answer right with that chance."""
    right = sum(noise.random() < share for _ in range(ANSWERS))
    mean = right / ANSWERS
    counts = (
        {"right": right, "wrong": ANSWERS - right, "no_answer": 0} if looks else dict.fromkeys(("right", "wrong", "no_answer"))
    )
    values = {"mean": mean, "std": (mean * (1 - mean)) ** 0.5, **counts}
    return {f"rewards/truth/{key}": value for key, value in values.items()}


def run_of(seed: int, truth: Any, *, looks: bool = True, shape: Shape | None = None) -> MadeRun:
    """A healthy run whose paid reward rises from 0.1 to 0.9, beside a truth that is a function of (step, paid mean)."""
    made, noise = healthy(seed, shape or Shape(steps=50, speed=25)), random.Random(seed)
    return MadeRun([row | watched(truth(row["step"], row["reward/mean"]), noise, looks=looks) for row in made.rows], [])


def spoken(run: MadeRun, config: Config = WATCHED) -> list[Any]:
    return [alarm for alarm in alarms(run, config) if alarm.rule == "unpaid_reward"]


@pytest.mark.parametrize("seed", range(4))
def test_a_truth_that_falls_or_stays_is_named(seed: int) -> None:
    for truth in (lambda step, paid: 0.1, lambda step, paid: 0.0, lambda step, paid: max(0.0, 0.5 - 0.03 * step)):
        (alarm,) = spoken(run_of(seed, truth))
        assert alarm.action == "warn"
        assert "'truth' (weight 0, the same answers)" in alarm.evidence


@pytest.mark.parametrize("seed", range(6))
def test_a_truth_that_rises_as_well_is_left_in_peace(seed: int) -> None:
    assert spoken(run_of(seed, lambda step, paid: paid)) == []
    assert spoken(run_of(seed, lambda step, paid: 0.8 * paid)) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_truth_that_is_reached_already_need_not_rise(seed: int) -> None:
    assert spoken(run_of(seed, lambda step, paid: 0.95)) == []


@pytest.mark.parametrize("seed", range(4))
def test_no_rise_no_alarm(seed: int) -> None:
    flat = Shape(steps=60, reward=(0.3, 0.3), entropy=(1.5, 1.4), length=(20, 21), truncated=(0.05, 0.05))
    assert spoken(run_of(seed, lambda step, paid: 0.1, shape=flat)) == []


def test_the_evidence_by_hand() -> None:
    """Five steps at 0.2 and 0.4 in turn, then five at 0.8 and 1; the truth goes from 0.5 to 0.1 without noise."""

    def row(step: int) -> Row:
        early = step <= 5
        paid = {"reward/mean": (0.2 if early else 0.8) + 0.2 * (step % 2), "reward/std": 0.4}
        truth = {
            "rewards/truth/mean": 0.5 if early else 0.1,
            "rewards/truth/std": 0.3,
            "rewards/truth/right": 16 if early else 3,
        }
        return paid | truth | {"step": step, "answers/count": 32, "groups/count": 4, "groups/mixed": 4}

    run = MadeRun([row(step) for step in range(1, 11)], [])
    (alarm,) = spoken(run)
    assert alarm.step == 10 == 5 + BY_NAME["unpaid_reward"].within
    # (0.4 + 0.2 + 0.4 + 0.2 + 0.4) / 5 and (0.8 + 1 + 0.8 + 1 + 0.8) / 5
    assert alarm.evidence == (
        "the reward rose from 0.32 in steps 1-5 to 0.88 in steps 6-10, "
        "while 'truth' (weight 0, the same answers) fell: 0.50 to 0.10"
    )


@pytest.mark.parametrize(
    ("reward", "heard"),
    [
        ({"name": "truth", "kind": "number", "weight": 0}, True),
        ({"name": "truth", "kind": "number", "weight": 0.1}, False),
        ({"name": "truth", "kind": "judge", "weight": 0}, True),
        ({"name": "truth", "function": "mine.py:truth", "weight": 0}, True),
        ({"name": "truth", "kind": "length", "target": 5, "weight": 0}, False),
        ({"name": "truth", "kind": "format", "tags": ["a"], "weight": 0}, False),
    ],
)
def test_which_rewards_are_a_truth(reward: dict[str, Any], heard: bool) -> None:
    looks = reward.get("kind") == "number"
    config = load_config({"rewards": [{"name": "contains", "phrases": ["a"]}, reward]})
    run = run_of(0, lambda step, paid: max(0.0, 0.6 - 0.04 * step), looks=looks)
    assert bool(spoken(run, config)) is heard
