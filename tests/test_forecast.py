"""The forecast, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from tests.making import group
from toishi.forecast import forecast, judge, mixed_share, success_rates

# Probability p^G + (1-p)^G that a group is tied, by hand: 0.3^4 + 0.7^4 = 0.0081 + 0.2401 and so on.
TIED = {(4, 0.3): 0.2482, (4, 0.5): 0.125, (8, 0.1): 0.43046722, (8, 0.5): 0.0078125, (64, 0.01): 0.525596}


@pytest.mark.parametrize(("size", "rate"), TIED)
def test_mixed_share_of_one_prompt(size: int, rate: float) -> None:
    assert mixed_share([rate], size) == pytest.approx(1 - TIED[size, rate], abs=1e-6)


def test_mixed_share_is_the_mean_over_prompts_and_not_that_of_the_mean_rate() -> None:
    assert mixed_share([0.0, 0.5], 4) == pytest.approx((0 + 0.875) / 2)
    assert mixed_share([0.25], 4) > mixed_share([0.0, 0.5], 4)


def test_rates_are_pulled_to_the_common_rate_by_one_answer() -> None:
    # 3 of 8 right in all: (2 + 3/8) / 5, (1 + 3/8) / 5
    assert success_rates([[1, 1, 0, 0], [1, 0, 0, 0]]) == pytest.approx((0.475, 0.275))
    assert success_rates([[-1, 1], [1, 1]]) == pytest.approx(((1 + 0.75) / 3, (2 + 0.75) / 3))
    assert success_rates([[1.0, 1.0]]) == ()


@pytest.mark.parametrize(
    ("mixed", "rewards", "compares", "verdict"),
    [
        (0.5, [0, 1], True, "go"),
        (0.49, [0, 1], True, "doubtful"),
        (0.2, [0, 0, 0, 1], True, "doubtful"),
        (0.19, [0, 0, 0, 1], True, "no-go"),
        (0.0, [0, 1], False, "go"),
        (0.0, [0, 0], False, "no-go"),
        (0.0, [], True, "no-go"),
    ],
)
def test_verdicts(mixed: float, rewards: list[float], compares: bool, verdict: str) -> None:
    assert judge(mixed, rewards, compares=compares)[0] == verdict


def test_the_remedy_fits_the_trouble() -> None:
    assert "easier prompts" in judge(0.1, [0, 0, 0, 1], compares=True)[1]
    assert "harder prompts" in judge(0.1, [0, 1, 1, 1], compares=True)[1]
    assert "as if all were right" in judge(0.0, [1, 1], compares=True)[1]


def test_forecast_of_groups() -> None:
    groups = [group(0, [5], [[6, 4], [7, 4]], [1.0, 0.0]), group(1, [5], [[6, 4], [7, 4]], [0.0, None])]
    found = forecast(groups, group_size=2, compares=True)
    assert found.mixed.value == 0.5
    assert found.mixed.low < 0.5 < found.mixed.high
    assert (found.num_groups, found.unscored, found.truncated) == (2, 1, 0.0)
    assert found.reward_mean == pytest.approx(1 / 3)
    assert set(found.mixed_by_group_size) == {4, 8, 16, 32, 64}
    assert found.verdict == "go"
