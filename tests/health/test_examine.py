"""Actions, limits, precision, and what is said only once."""

from __future__ import annotations

import pytest

from tests.health.faults import MIXED, constant, rewards
from tests.health.histories import Row, Shape, healthy, plant
from tests.health.replaying import alarms, replay
from toishi.config import Config, HealthConfig, load_config
from toishi.errors import ConfigError
from toishi.health import already_said, check_settings, examine

CUT = plant(healthy(0, Shape(steps=80)), 60, constant(answers__truncated_share=0.6))


def first_step(**changes: float) -> list[Row]:
    return plant(healthy(0, Shape(steps=1)), 1, constant(**changes)).rows


def test_nothing_is_said_before_the_first_step() -> None:
    assert examine([], [], Config()) == []


def test_a_recipe_turns_a_rule_off_or_into_a_stop() -> None:
    assert [alarm.action for alarm in alarms(CUT)] == ["warn"]
    assert [alarm.action for alarm in alarms(CUT, load_config({"health": {"actions": {"truncation": "stop"}}}))] == ["stop"]
    assert alarms(CUT, load_config({"health": {"actions": {"truncation": "off"}}})) == []


def test_a_recipe_moves_a_limit() -> None:
    assert alarms(CUT, load_config({"health": {"limits": {"truncation": 0.7}}})) == []


def test_said_rules_are_silent() -> None:
    rows = first_step(update__loss=float("nan"))
    assert "not_finite" in {alarm.rule for alarm in examine(rows, [], Config())}
    assert "not_finite" not in {alarm.rule for alarm in examine(rows, [], Config(), {"not_finite"})}


@pytest.mark.parametrize(
    ("dtype", "gap", "stops"),
    [
        ("float32", 0.9e-3, False),
        ("float32", 1.1e-3, True),
        ("float64", 1.1e-3, True),
        ("bfloat16", 0.045, False),
        ("bfloat16", 0.11, True),
        ("auto", 0.045, False),
        ("auto", 0.11, True),
    ],
)
def test_the_limit_of_the_sampler_gap_follows_the_precision(dtype: str, gap: float, stops: bool) -> None:
    said = examine(first_step(sampler_gap__mean_abs=gap), [], Config(), dtype=dtype)
    assert ("sampler_gap_at_start" in {alarm.rule for alarm in said}) == stops


def test_the_recipe_gives_the_precision_and_may_set_the_gap_itself() -> None:
    rows = first_step(sampler_gap__mean_abs=0.01)
    assert "sampler_gap_at_start" in {a.rule for a in examine(rows, [], load_config({"model": {"dtype": "float32"}}))}
    allowed = load_config({"model": {"dtype": "float32"}, "health": {"max_sampler_gap": 0.02}})
    assert "sampler_gap_at_start" not in {a.rule for a in examine(rows, [], allowed)}


def test_the_share_of_failed_rewards_is_the_recipes() -> None:
    rows = first_step(rewards__number__failed=8)
    assert "failed_rewards" not in {alarm.rule for alarm in examine(rows, [], Config())}
    strict = load_config({"health": {"max_failed_share": 0.2}})
    stop = next(alarm for alarm in examine(rows, [], strict) if alarm.rule == "failed_rewards")
    assert stop.action == "stop"
    assert stop.evidence == "reward 'number' failed on 8 of 32 answers (health.max_failed_share is 0.2)"


def test_failures_are_told_by_kind() -> None:
    rows = first_step(**{"rewards/number/failed": 20, "rewards/number/failed/timed_out": 4, "rewards/number/failed/raised": 16})
    stop = next(alarm for alarm in examine(rows, [], Config()) if alarm.rule == "failed_rewards")
    assert "failed on 20 of 32 answers: 16 raised, 4 timed_out (" in stop.evidence


@pytest.mark.parametrize(("share", "stops"), [(0.2, True), (0.25, False)])
def test_a_reward_may_have_a_share_of_its_own(share: float, stops: bool) -> None:
    config = load_config({"rewards": [{"name": "number", "max_failed_share": share}], "health": {"max_failed_share": 0.9}})
    found = [alarm for alarm in examine(first_step(rewards__number__failed=8), [], config) if alarm.rule == "failed_rewards"]
    assert bool(found) is stops
    if found:
        assert found[0].evidence == "reward 'number' failed on 8 of 32 answers (its max_failed_share is 0.2)"


def test_a_reward_about_length_may_pay_for_length() -> None:
    rows = [{"step": step, "rewards/brief/mean": 0.5, "rewards/brief/length_correlation": -0.9} for step in range(1, 11)]
    rewards = [{"name": "brief", "kind": "length", "target": 5}]
    assert "pays_length" in {alarm.rule for alarm in examine(rows, [], Config())}
    assert "pays_length" not in {alarm.rule for alarm in examine(rows, [], load_config({"rewards": rewards}))}


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({}, True),
        ({"algorithm": "rloo"}, True),
        ({"algorithm": "dapo"}, True),
        ({"algorithm": "reinforce"}, False),
        ({"algorithm": "cispo"}, False),
        ({"algorithm": "raft_pp"}, False),
        ({"algorithm": "entropy_only"}, False),
        ({"algorithm": {"name": "grpo", "entropy_coef": 0.01}}, False),
    ],
)
def test_loss_near_zero_is_said_where_it_is_true(recipe: dict[str, object], said: bool) -> None:
    rows = plant(healthy(0, Shape(steps=1)), 1, rewards(MIXED, MIXED, MIXED, MIXED)).rows
    assert [alarm.rule for alarm in examine(rows, [], load_config(recipe))] == (["loss_near_zero"] if said else [])


def test_loss_near_zero_waits_for_the_first_update() -> None:
    run = plant(
        healthy(0, Shape(steps=4)), 1, lambda row, age: {"update/grad_norm": 0.0 if age < 2 else 0.7, "update/loss": 1e-9}
    )
    notes = [(alarm.step, alarm.action) for alarm in replay(run) if alarm.rule == "loss_near_zero"]
    assert notes == [(3, "note")]


def test_an_alarm_as_a_line_of_the_record() -> None:
    alarm = examine(first_step(update__loss=float("inf")), [], Config())[-1]
    assert alarm.as_record() | {"remedy": ""} == {
        "rule": "not_finite", "action": "stop", "step": 1, "message": "update/loss is inf", "remedy": "",
    }  # fmt: skip
    assert alarm.text.startswith("step 1, not_finite (stopping): update/loss is inf.\n  What to do: ")


def test_stops_may_speak_again_after_a_resume() -> None:
    events = [
        {"kind": "health", "rule": "truncation", "action": "warn"},
        {"kind": "health", "rule": "gradient_zero", "action": "stop"},
        {"kind": "checkpoint", "message": "step_000010"},
    ]
    assert already_said(events) == {"truncation"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actions": {"truncaton": "off"}}, "health.actions.truncaton: no such rule; did you mean 'truncation'?"),
        ({"limits": {"entropy": 1.0}}, "health.limits.entropy: no such rule"),
        ({"limits": {"failed_rewards": 0.1}}, "health.limits.failed_rewards: .* health.max_failed_share"),
        ({"limits": {"not_finite": 1.0}}, "health.limits.not_finite: this rule has no limit to set here$"),
    ],
)
def test_settings_that_name_no_rule_are_refused(settings: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_settings(HealthConfig.model_validate(settings))


def test_settings_that_name_rules_pass() -> None:
    check_settings(HealthConfig(actions={"truncation": "off", "not_finite": "warn"}, limits={"truncation": 0.2}))
