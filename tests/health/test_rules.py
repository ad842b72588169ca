"""Every rule names its fault within the steps it states, and healthy runs are left in peace."""

from __future__ import annotations

import pytest

from tests.health.faults import FAULTS, Fault
from tests.health.histories import Shape, healthy, plant
from tests.health.replaying import alarms, replay
from toishi.health import RULES
from toishi.health.rules import BY_NAME
from toishi.metrics import METRICS, REWARDS_OWN

STOPS = {"not_finite", "sampler_gap_at_start", "failed_rewards", "gradient_zero"}
NOTES = {"loss_near_zero", "solved"}

HEALTHY_SHAPES = {
    "slow rise over 200 steps": Shape(),
    "as fast as the demo": Shape(speed=25, steps=80),
    "one prompt, four answers": Shape(prompts=1, group_size=4, steps=120),
    "four updates a step": Shape(inner_updates=4, steps=80),
    "learns nothing, keeps trying": Shape(
        reward=(0.3, 0.3), entropy=(1.5, 1.4), length=(20, 21), truncated=(0.05, 0.05), steps=100
    ),
    "solves everything": Shape(reward=(0.3, 0.995), entropy=(2.0, 0.02), steps=120),
}


def test_made_up_runs_hold_every_metric_of_a_step() -> None:
    known = {name.replace("<name>", "number") for name in METRICS if name not in REWARDS_OWN}
    assert set(healthy(0).rows[0]) == known | {"step"}


@pytest.mark.parametrize("shape", HEALTHY_SHAPES.values(), ids=HEALTHY_SHAPES)
def test_at_most_one_of_twenty_healthy_runs_is_disturbed(shape: Shape) -> None:
    heard = [alarms(healthy(seed, shape)) for seed in range(20)]
    assert sum(bool(found) for found in heard) <= 1, [alarm.text for found in heard for alarm in found]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_fault_is_named_within_the_stated_steps(fault: Fault, seed: int) -> None:
    rule = BY_NAME[fault.rule]
    last = fault.begins + rule.within - 1
    spoken = replay(plant(healthy(seed, Shape(steps=last)), fault.at, fault.change))
    named = next((alarm for alarm in spoken if alarm.rule == fault.rule), None)
    assert named is not None
    assert named.step >= fault.begins
    assert named.action == rule.action
    assert not [alarm.rule for alarm in spoken if alarm.action == "stop" and alarm.rule != fault.rule]


def test_each_rule_speaks_once_even_when_the_fault_stays_or_returns() -> None:
    truncated = {"answers/truncated_share": 0.6}
    run = plant(healthy(1), 60, lambda row, age: truncated if age < 30 or age > 90 else {})
    assert [alarm.rule for alarm in alarms(run)] == ["truncation"]


def test_every_rule_has_a_planted_fault() -> None:
    tried_elsewhere = {"loss_near_zero", "heldout_flat", "unpaid_reward"}
    assert {fault.rule for fault in FAULTS} | tried_elsewhere == set(BY_NAME)


def test_names_are_unique_and_actions_are_as_the_policy_says() -> None:
    assert len(BY_NAME) == len(RULES)
    assert {rule.name for rule in RULES if rule.action == "stop"} == STOPS
    assert {rule.name for rule in RULES if rule.action == "note"} == NOTES


def test_evidence_holds_the_numbers_of_the_fault() -> None:
    fault = next(fault for fault in FAULTS if fault.rule == "entropy_collapse")
    run = plant(healthy(0), fault.at, fault.change)
    for row in run.rows[:10]:
        row["entropy/mean_nats"] = 2.1
    for row in run.rows[10:19]:
        row["entropy/mean_nats"] = 1.0
    said = next(alarm for alarm in alarms(run) if alarm.rule == "entropy_collapse")
    assert said.evidence == "entropy fell from 2.10 to 0.03 nats in 12 steps, and the prompts are not solved"
