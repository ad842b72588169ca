"""Training reward against held-out value."""

from __future__ import annotations

import random

import pytest

from tests.health.histories import MadeRun, Shape, healthy, made_evaluation
from tests.health.replaying import alarms
from toishi.evaluate import Evaluation
from toishi.health.rules import BY_NAME


def stuck(level: float, seed: int, *, prompts: int = 32, steps: int = 60, slope: float = 0.0) -> list[Evaluation]:
    """Held-out values at a level that moves by `slope` per step; prompts near the edge go either way each time."""
    noise = random.Random(seed)

    def at(step: int) -> dict[str, float]:
        edge = level + slope * step
        return {f"p{prompt}": float((prompt + 0.5) / prompts + noise.gauss(0.0, 0.02) < edge) for prompt in range(prompts)}

    return [made_evaluation(step, at(step)) for step in range(0, steps + 1, 10)]


def spoken(seed: int, evaluations: list[Evaluation], shape: Shape | None = None) -> list[tuple[str, int]]:
    run = MadeRun(healthy(seed, shape or Shape(steps=60)).rows, evaluations)
    return [(alarm.rule, alarm.step) for alarm in alarms(run)]


@pytest.mark.parametrize("seed", range(5))
def test_a_held_out_value_that_stays_while_the_reward_rises(seed: int) -> None:
    assert spoken(seed, stuck(0.15, seed)) == [("heldout_flat", BY_NAME["heldout_flat"].within)]


@pytest.mark.parametrize("seed", range(5))
def test_a_held_out_value_that_falls_while_the_reward_rises(seed: int) -> None:
    assert [rule for rule, _ in spoken(seed, stuck(0.95, seed, slope=-0.012))] == ["heldout_flat"]


@pytest.mark.parametrize("seed", range(5))
def test_sampled_reward_catching_up_with_greedy_answers_is_fine(seed: int) -> None:
    assert spoken(seed, stuck(0.95, seed)) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_flat_held_out_value_is_fine_while_the_training_reward_is_flat_too(seed: int) -> None:
    assert spoken(seed, stuck(0.1, seed), Shape(steps=60, reward=(0.3, 0.3), truncated=(0.05, 0.05))) == []


def test_fewer_than_four_evaluations_are_no_trend() -> None:
    assert spoken(0, stuck(0.02, 0)[:3]) == []


def test_the_wider_first_evaluation_is_compared_on_the_shared_prompts() -> None:
    """64 prompts at first, 32 during: the other 32 are all wrong, so a plain comparison would see a jump."""
    evaluations = stuck(0.02, 0)
    extra = {f"q{prompt}": 1.0 for prompt in range(32)}
    evaluations[0] = made_evaluation(0, evaluations[0].by_prompt | extra)
    text = next(a.evidence for a in alarms(MadeRun(healthy(0, Shape(steps=60)).rows, evaluations)))
    start = sum(evaluations[0].by_prompt[f"p{prompt}"] for prompt in range(32)) / 32
    assert f"held-out value (greedy) went from {start:.2f} to" in text
