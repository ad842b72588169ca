"""Every reward's health, by hand; and what rewards used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.test_scoring import group_of, scripted
from toishi.algorithms.terms import Gate, Term
from toishi.errors import RewardError
from toishi.rewards.base import Judgement, Reward
from toishi.scoring import score_groups, scoring_summary, usage_since


def health(*said: Any, texts: tuple[str, ...] = ("a", "b c", "d e f", "g")) -> Mapping[str, Any]:
    found = scoring_summary(score_groups([group_of(*texts[: len(said)])], [scripted("r", *said)], [1.0]))
    return {key.removeprefix("rewards/r/"): value for key, value in found.items()}


def test_saturation_is_the_share_at_the_steps_extremes() -> None:
    found = health(1.0, 1.0, 0.25, 1.0)
    assert (found["at_max"], found["at_min"]) == (0.75, 0.25)
    nothing = health(None, None)
    assert (nothing["at_max"], nothing["at_min"]) == (None, None)


def test_correlation_with_length() -> None:
    """Lengths 2, 3, 4 (a word is a token, and one stops): with 1, 2, 3 it is 1; with 1, 0, 1 it is 0; constant: undefined."""
    assert health(1.0, 2.0, 3.0)["length_correlation"] == pytest.approx(1.0)
    assert health(1.0, 0.0, 1.0)["length_correlation"] == pytest.approx(0.0)
    assert health(3.0, 2.0, 1.5)["length_correlation"] == pytest.approx(-0.9819805)  # -1.5 / sqrt(2 * 7/6)
    assert health(1.0, 1.0, 1.0)["length_correlation"] is None
    assert health(1.0)["length_correlation"] is None


def failed(kind: str = "") -> Judgement:
    return Judgement(value=None, status="failed", kind=kind)


def test_failures_are_counted_by_kind() -> None:
    found = health(failed("timed_out"), failed("unreadable"), failed("timed_out"), failed())
    assert (found["failed"], found["failed/timed_out"], found["failed/unreadable"]) == (4, 2, 1)


def test_outcomes_are_right_wrong_and_no_answer() -> None:
    read = [Judgement(value=value, readable=True) for value in (1.0, 0.5, 0.0)]
    found = health(*read, Judgement(value=0.0, readable=False))
    assert (found["right"], found["wrong"], found["no_answer"]) == (2, 1, 1)
    assert health(1.0)["right"] is None


def test_what_was_done_to_a_reward_is_counted_and_its_value_is_as_judged() -> None:
    terms = [Term(name="right"), Term(name="style", gate=Gate(reward="right"), cap=(0.0, 0.5))]
    groups = score_groups(
        [group_of("a", "b", "c")], [scripted("right", 1.0, 0.0, 1.0), scripted("style", 0.8, 0.8, 0.2)], terms
    )
    found = scoring_summary(groups)
    assert [found[f"rewards/style/{use}"] for use in ("gated", "capped", "levelled", "left_out")] == [1, 1, 0, 0]
    assert found["rewards/style/mean"] == pytest.approx(0.6)


@dataclass
class Counting:
    """Says how often it was asked, under a name of its own."""

    name: str = "judge"
    columns: tuple[str, ...] = ()
    totals: dict[str, float] = field(default_factory=dict)

    def usage(self) -> Mapping[str, float]:
        return self.totals

    def score_group(self, prompt: Any, completions: Any) -> list[tuple[Judgement, ...]]:
        return [(Judgement(value=1.0),)] * len(completions)


def test_usage_is_what_was_added_since() -> None:
    rewards: list[Reward] = [Counting(totals={"calls": 7.0, "cost": 0.5}), scripted("plain", 1.0)]
    assert usage_since({"rewards/judge/calls": 3.0}, rewards) == {"rewards/judge/calls": 4.0, "rewards/judge/cost": 0.5}


@pytest.mark.parametrize("totals", [{"mean": 1.0}, {"failed": 1.0}, {"calls": float("nan")}])
def test_usage_under_a_name_of_ours_or_without_a_number_is_refused(totals: dict[str, float]) -> None:
    with pytest.raises(RewardError, match="usage"):
        usage_since({}, [Counting(totals=totals)])
