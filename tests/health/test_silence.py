"""What looks like a fault and is none, rule by rule."""

from __future__ import annotations

import pytest

from tests.health.faults import MIXED, RIGHT, WRONG, both, constant, rewards
from tests.health.histories import MadeRun, Shape, healthy, plant
from tests.health.replaying import alarms, replay
from toishi.config import Config, load_config

LONG = Shape(steps=90)


def rules(run: MadeRun, config: Config | None = None) -> set[str]:
    return {alarm.rule for alarm in alarms(run, config)}


def test_low_entropy_is_fine_when_the_prompts_are_solved() -> None:
    solved = rewards(RIGHT, RIGHT, RIGHT, MIXED)
    sure = constant(entropy__mean_nats=0.01, answers__distinct_share=1 / 8)
    assert rules(plant(plant(healthy(0, LONG), 40, solved), 50, sure)) == set()


def test_half_marks_for_ever_are_no_success() -> None:
    """Every answer gets 0.5 where 0.9 had been reached: the ties are above 0, and yet nothing is solved."""
    half = rewards(*[[0.5] * 8] * 4)
    run = plant(healthy(0, LONG), 40, both(half, constant(entropy__mean_nats=0.01, answers__distinct_share=1 / 8)))
    assert {"tied_groups", "entropy_collapse", "identical_answers", "constant_reward"} <= rules(run)
    assert "solved" not in {alarm.rule for alarm in replay(run)}


def test_a_model_that_begins_sure_of_itself_has_not_collapsed() -> None:
    run = plant(healthy(0, LONG), 1, constant(entropy__mean_nats=0.04))
    assert "entropy_collapse" not in rules(run)


def test_growing_answers_are_fine_while_the_reward_rises() -> None:
    run = plant(healthy(0, LONG), 1, lambda row, age: {"answers/mean_tokens": 20.0 + 0.5 * age})
    assert rules(run) == set()


def test_shrinking_answers_are_fine_while_the_reward_rises() -> None:
    run = plant(healthy(0, LONG), 1, lambda row, age: {"answers/mean_tokens": max(2.0, 20.0 - age)})
    assert rules(run) == set()


def test_many_cut_answers_are_fine_while_they_become_fewer() -> None:
    run = plant(healthy(0, LONG), 1, lambda row, age: {"answers/truncated_share": max(0.0, 0.9 - 0.02 * age)})
    assert rules(run) == set()


def test_cut_answers_that_stay_are_named() -> None:
    run = plant(healthy(0, LONG), 1, lambda row, age: {"answers/truncated_share": 0.4 + 0.05 * (age % 2)})
    assert rules(run) == {"truncation"}


def test_a_reward_that_stays_at_its_best_value_is_mastered() -> None:
    mastered = constant(rewards__format__mean=1.0, rewards__format__std=0.0)
    learning = constant(rewards__format__mean=0.7, rewards__format__std=0.4)
    run = plant(plant(healthy(0, LONG), 1, learning), 30, mastered)
    assert rules(run) == set()


@pytest.mark.parametrize("name", ["raft", "reinforce_pp"])
def test_ties_do_not_matter_to_algorithms_that_do_not_compare_siblings(name: str) -> None:
    run = plant(healthy(0, LONG), 1, rewards(RIGHT, WRONG, RIGHT, WRONG))
    assert "tied_groups" in rules(run)
    assert "tied_groups" not in rules(run, load_config({"algorithm": name}))


def test_tight_sequence_level_bounds_clip_on_purpose() -> None:
    run = plant(healthy(0, LONG), 1, constant(update__clip_low_share=0.4, update__clip_high_share=0.3))
    assert rules(run) == {"clipping"}
    assert rules(run, load_config({"algorithm": "gspo"})) == set()


def test_ratios_of_whole_answers_are_not_held_to_the_bounds_of_tokens() -> None:
    run = plant(healthy(0, LONG), 1, constant(update__ratio_mean=3.0, update__ratio_max=90.0))
    assert rules(run) == {"policy_jump"}
    assert rules(run, load_config({"algorithm": "rloo"})) == set()


def test_a_reference_term_gives_a_zero_gradient_in_tied_first_steps() -> None:
    """The policy is the reference then, so k3 has gradient 0; no group differed, so nothing else could teach."""
    tied = rewards(WRONG, WRONG, WRONG, WRONG)
    run = plant(healthy(0, Shape(steps=5)), 1, lambda row, age: tied(row, age) | {"update/count": 1})
    assert rules(run) == set()


def test_steps_without_updates_are_explained_by_ties_not_twice() -> None:
    run = plant(healthy(0, LONG), 40, rewards(RIGHT, RIGHT, RIGHT, RIGHT))
    assert "skipped_updates" not in rules(run)
    without_comparison = load_config({"algorithm": "raft"})
    assert "skipped_updates" in rules(run, without_comparison)


def test_unmeasured_metrics_say_nothing() -> None:
    rows = [{"step": step, "reward/mean": 0.5} for step in range(1, 80)]
    assert rules(MadeRun(rows, [])) == set()
    empty = [dict.fromkeys(healthy(0, Shape(steps=1)).rows[0]) | {"step": step} for step in range(1, 80)]
    assert rules(MadeRun(empty, [])) == set()


def test_a_critic_may_know_nothing_while_it_learns_alone_and_when_all_is_solved() -> None:
    alone = load_config({"algorithm": "ppo", "critic": {"warmup_steps": 10}})
    still = {"critic/explained_variance": -0.2, "update/count": 0}
    run = plant(healthy(0, Shape(steps=15)), 1, lambda row, age: still if age < 10 else {"critic/explained_variance": -0.2})
    assert not {"blind_critic", "skipped_updates"} & rules(run, alone)
    solved = plant(healthy(0, LONG), 40, rewards(RIGHT, RIGHT, RIGHT, MIXED))
    assert "blind_critic" not in rules(plant(solved, 60, constant(critic__explained_variance=-0.2)))
