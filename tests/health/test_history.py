from __future__ import annotations

import math

from toishi.config import Config
from toishi.health.history import History, Window, change_of


def test_windows_skip_what_was_not_measured() -> None:
    window = Window(
        [{"step": 1, "x": 1.0}, {"step": 2, "x": None}, {"step": 3}, {"step": 4, "x": math.nan}, {"step": 5, "x": 3}]
    )
    assert window.values("x") == [1.0, 3.0]
    assert window.mean("x") == 2.0
    assert window.mean("y") is None
    assert window.total("y") == 0.0
    assert not window.always("x", 1.0)
    assert window.first(1).always("x", 1.0)
    assert not Window([]).always("x", 1.0)


def test_blocks_are_full_and_follow_one_another() -> None:
    window = Window([{"step": step} for step in range(1, 26)])
    assert [str(block) for block in window.blocks(10)] == ["steps 1-10", "steps 11-20"]
    assert str(window.between(3, 5)) == "steps 4-5"
    assert str(window.last(1)) == "step 25"


def test_shares_need_something_to_divide_by() -> None:
    assert Window([{"step": 1, "part": 1, "whole": 4}]).share("part", "whole") == 0.25
    assert Window([{"step": 1, "part": 1, "whole": 0}]).share("part", "whole") is None


def test_a_change_against_its_noise() -> None:
    """Means 1 and 4, variances 2 and 8 over 2 values each: standard error sqrt(1 + 4)."""
    change = change_of(Window([{"x": 0.0}, {"x": 2.0}]), Window([{"x": 2.0}, {"x": 6.0}]), "x")
    assert change is not None
    assert (change.before, change.after) == (1.0, 4.0)
    assert math.isclose(change.standard_error, math.sqrt(5))
    assert change.is_beyond(1.3)
    assert not change.is_beyond(1.4)
    assert not change.is_beyond(-1.0)
    assert change_of(Window([{"x": 0.0}]), Window([{"x": 2.0}, {"x": 6.0}]), "x") is None


def history(*rewards: float) -> History:
    rows = [{"step": step, "reward/mean": reward} for step, reward in enumerate(rewards, start=1)]
    return History(Window(rows), [], Config(), "float32")


def test_a_reward_at_its_best_is_in_the_top_quarter_of_its_range() -> None:
    assert history(*[0.2] * 10, *[1.0] * 10).reward_is_at_best
    assert history(1.0, 0.2, *[0.8] * 10).reward_is_at_best
    assert not history(1.0, 0.2, *[0.79] * 10).reward_is_at_best
    assert not history(*[0.5] * 20).reward_is_at_best


def test_a_reward_rose_when_it_did_so_beyond_its_noise() -> None:
    assert history(0.1, 0.2, 0.1, 0.2, 0.1, 0.3, 0.4, 0.3, 0.4, 0.3).reward_rose
    assert not history(0.1, 0.9, 0.1, 0.9, 0.1, 0.3, 0.9, 0.3, 0.9, 0.3).reward_rose
