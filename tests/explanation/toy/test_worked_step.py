"""Every number of the step that was worked by hand, beside what `toishi explain toy --json` prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import run_command

CLOSE = 1e-6


@pytest.fixture(scope="module")
def printed() -> Any:
    ended = run_command("explain", "toy", "--json")
    assert ended.code == 0
    return json.loads(ended.out)


def at(printed: Any, path: str) -> Any:
    """`rows[dapo].loss`: keys, positions, and entries of a list by name."""
    found = printed
    for part in path.replace("[", ".[").split("."):
        if part.startswith("["):
            name = part[1:-1]
            found = found[int(name)] if name.lstrip("-").isdigit() else next(row for row in found if name in row.values())
        else:
            found = [item[part] for item in found] if isinstance(found, list) else found[part]
    return found


BY_HAND: dict[str, float | list[float]] = {
    # set-up
    "world.first": [0.4, 0.3, 0.2, 0.1],
    "world.second": [0.1, 0.1, 0.2, 0.6],
    "world.scores": [8, 6, 3, 3],
    "answers.reward": [0.8, 0.6, 0.3, 0.3],
    # advantages
    "mean": 0.5,
    "std": 0.212132,
    "answers.advantage": [1.414214, 0.471405, -0.942809, -0.942809],
    "rows[trl].advantages": [1.224245, 0.408082, -0.816163, -0.816163],
    "rows[dr_grpo].advantages": [0.3, 0.1, -0.2, -0.2],
    "rows[rloo].advantages": [0.4, 0.133333, -0.266667, -0.266667],
    # first update: loss, both gradients
    "updates[0].loss": 0.0,
    "updates[0].gradient.first": [-0.223917, -0.094281, 0.094281, 0.223917],
    "updates[0].gradient.second": [0.011785, 0.011785, 0.023570, -0.047140],
    "updates[0].autograd.first": [-0.223917, -0.094281, 0.094281, 0.223917],
    "updates[0].autograd.second": [0.011785, 0.011785, 0.023570, -0.047140],
    "rows[grpo].loss": 0.0,
    "rows[grpo].gradient.first": [-0.223917, -0.094281, 0.094281, 0.223917],
    "rows[dapo].loss": -0.134687,
    "rows[dapo].gradient.first": [-0.202031, -0.067344, 0.134687, 0.134687],
    "rows[dapo].gradient.second": [0.013469, 0.013469, 0.026937, -0.053875],
    "rows[dr_grpo].loss": -0.025,
    "rows[dr_grpo].gradient.first": [-0.0375, -0.0125, 0.025, 0.025],
    "rows[dr_grpo].gradient.second": [0.0025, 0.0025, 0.005, -0.01],
    "rows[trl].loss": -0.116595,
    "rows[trl].gradient.first": [-0.174892, -0.058297, 0.116595, 0.116595],
    "rows[trl].gradient.second": [0.011659, 0.011659, 0.023319, -0.046638],
    "updates[0].tokens.ratio": [1.0] * 7,
    "updates[0].tokens.push": [0.176777, 0.176777, 0.058926, 0.058926, -0.117851, -0.117851, -0.235702],
    # plain SGD
    "updates[0].step.lr": 2.0,
    "updates[0].step.after.probabilities.first": [0.514035, 0.297477, 0.136013, 0.052475],
    "updates[0].step.after.probabilities.second": [0.093424, 0.093424, 0.182496, 0.630656],
    "before.expected_reward": 0.59,
    "updates[0].step.after.expected_reward": 0.646261,
    "updates[0].step.after.kl_from_start[0]": 0.040142,
    "before.entropy[0]": 1.279854,
    "updates[0].step.after.entropy[0]": 1.128750,
    # second update
    "updates[1].tokens.ratio": [1.285089, 1.051093, 0.991591, 1.051093, 0.680064, 1.051093, 0.524746],
    "updates[1].clip_fraction": 0.428571,
    "updates[1].loss": -0.111592,
    "updates[1].gradient.first": [0.030035, -0.041048, 0.007947, 0.003066],
    "updates[1].gradient.second": [0.011573, 0.011573, 0.022606, -0.045752],
    "kl_rows[k3].per_token": [0.028984, 0.001221, 0.000036, 0.001221, 0.084882, 0.001221, 0.260843],
    "kl_rows[k3].token_mean": 0.054058,
    "kl_rows[k3].coef": 0.04,
    "kl_rows[k3].loss": -0.108396,
    "kl_rows[k3].gradient.first": [0.036461, -0.038014, 0.007002, -0.005448],
    "kl_rows[ratio_k3].loss": -0.109729,
    "kl_rows[ratio_k3].gradient.first": [0.033253, -0.040161, 0.007061, -0.000154],
    "rows[gspo].second_ratios": [1.162217, 1.162217, 1.020909, 1.020909, 0.845465, 0.845465, 0.524746],
    "rows[gspo].second_loss": -0.000330,
    "rows[gspo].second_gradient.first": [0.0] * 4,
    "rows[gspo].second_gradient.second": [0.0] * 4,
    "rows[cispo].second_loss": -0.072051,
    "rows[cispo].second_gradient.first": [-0.175257, -0.017952, 0.113920, 0.079289],
    "rows[cispo].second_clip_fraction": 0.0,
    # the same prompt under SFT
    "sft.nll": 0.713558,
    "sft.gradient.first": [-0.3, 0.15, 0.1, 0.05],
    "sft.gradient.second": [0.05, 0.05, 0.1, -0.2],
    "sft.step.lr": 2.0,
    "sft.step.after.probabilities.first": [0.604691, 0.184387, 0.135853, 0.075070],
    "sft.step.after.probabilities.second": [0.072982, 0.072982, 0.132074, 0.721962],
    "sft.nll_after": 0.414410,
    "sft.step.after.expected_reward": 0.657661,
    # the identity
    "identity.factors": [1.414214 / 4, 0.471405 / 4, -0.942809 / 4, -0.942809 / 4],
    "identity.total.first": [-0.223917, -0.094281, 0.094281, 0.223917],
    # Adam
    "beside_step.change.first": [0.1, 0.1, -0.1, -0.1],
    # a value model, and a judge that is not sure
    "value_model.values": [0.5, 0.7],
    "value_model.delta": [0.2, 0.1],
    "value_model.advantages": [0.295, 0.1],
    "value_model.returns": [0.795, 0.8],
    "value_model.advantages_lam_0": [0.2, 0.1],
    "value_model.advantages_lam_1": [0.3, 0.1],
    "judge.probabilities": [0.05, 0.25, 0.55, 0.10],
    "judge.mass": 0.95,
    "judge.most_likely": 8,
    "judge.expected": 7.736842,
    "judge.std": 0.713929,
}


@pytest.mark.parametrize("path", BY_HAND)
def test_number(path: str, printed: Any) -> None:
    assert at(printed, path) == pytest.approx(BY_HAND[path], abs=CLOSE)


def test_what_the_numbers_say(printed: Any) -> None:
    assert at(printed, "updates[0].tokens.clip") == ["free"] * 7
    assert at(printed, "updates[1].tokens.clip") == ["held_high", "free", "free", "free", "held_low", "free", "held_low"]
    assert at(printed, "moves.surprising") == [False, True, False, False]
    assert all(row["adam_change"]["first"] == pytest.approx([0.1, 0.1, -0.1, -0.1], abs=CLOSE) for row in printed["rows"])
    assert printed["identity"]["holds"] is True


def test_why_ok_loses_although_it_was_pushed_up(printed: Any) -> None:
    """e^.188562 = 1.207513 for `ok`; .4·1.564861 + .3·1.207513 + .2·.828148 + .1·.639034 = 1.217753 for all words together."""
    ok = printed["moves"][1]
    assert ok["advantage"] == pytest.approx(0.471405, abs=CLOSE)
    assert ok["change"] == pytest.approx(2 * 0.094281, abs=CLOSE)
    assert ok["growth"] == pytest.approx(1.207513, abs=2e-6)
    assert ok["total"] == pytest.approx(1.217753, abs=2e-6)
    assert ok["after"] == pytest.approx(0.3 * 1.207513 / 1.217753, abs=2e-6)


def test_both_roads_to_every_gradient_agree(printed: Any) -> None:
    differences = [printed["sft"]["max_difference"], printed["identity"]["max_difference"]]
    for part in ("updates", "kl_rows", "rows"):
        differences += at(printed, f"{part}.max_difference")
    assert max(differences) < 1e-14


def test_population_spread_is_only_the_default() -> None:
    options = ("--set", "std_ddof=1", "--set", "std_epsilon=1e-4")
    printed = json.loads(run_command("explain", "toy", "--json", *options).out)
    assert at(printed, "answers.advantage") == pytest.approx([1.224245, 0.408082, -0.816163, -0.816163], abs=CLOSE)
    assert printed["rows"][0]["name"] == "grpo*"
