"""Prompts by pass rate: counted by hand."""

from __future__ import annotations

import pytest

from tests.collecting.making import answer, asked, header
from toishi.collecting.right import Right, right_by
from toishi.collecting.selecting import Evaluated, SelectPlan, read_band, select
from toishi.config import Config
from toishi.errors import ConfigError

RIGHT = Right(reward="number", threshold=0.5)


def rated(number: int, values: str, prompt: str | None = None):  # type: ignore[no-untyped-def]
    """ "10-" is one right, one wrong, one without a score."""
    worth = {"1": 1.0, "0": 0.0, "-": None}
    return asked(number, [answer(f"a{place}", worth[sign]) for place, sign in enumerate(values)], prompt)


EIGHT = [rated(0, "0000"), rated(1, "1000"), rated(2, "1100"), rated(3, "1111"), rated(4, "11-0"), rated(5, "----")]


def test_never_and_always_right_go_and_everything_is_counted() -> None:
    report, rows = select(header(6), EIGHT, SelectPlan(right=RIGHT))
    assert [row["id"] for row in rows] == ["row 1", "row 2", "row 4"]
    assert report.dropped == {"unscored": 1, "never_right": 1, "always_right": 1}
    assert report.kept + sum(report.dropped.values()) == report.prompts == 6
    assert (report.answers, report.unscored) == (24, 5)
    assert report.rate == pytest.approx((0 + 0.25 + 0.5 + 1 + 2 / 3) / 5)
    assert report.rate_interval is None  # five prompts are too few to resample
    assert {one.name: (one.count, one.kept) for one in report.bins} == {
        "0": (1, 0), "0 to 0.25": (1, 1), "0.25 to 0.5": (1, 1), "0.5 to 0.75": (1, 1), "0.75 to 1": (0, 0), "1": (1, 0),
    }  # fmt: skip


def test_a_row_keeps_its_columns_and_says_where_its_rate_comes_from() -> None:
    _, rows = select(header(6), EIGHT, SelectPlan(right=RIGHT))
    row = rows[2]
    assert (row["gold"], row["prompt"]) == (4, "question number 4 of the set")
    assert row["pass_rate"] == pytest.approx(2 / 3)
    low, high = row["pass_rate_interval"]
    assert (low, high) == pytest.approx((0.2077, 0.9385), abs=1e-4)  # Wilson, 2 of 3
    source = row["pass_rate_source"]
    assert (source["right"], source["scored"], source["samples"], source["rule"]) == (2, 3, 4, "number >= 0.5")
    assert (source["model"]["fingerprint"], source["seed"], source["sampling"]["temperature"]) == ("f", 0, 1.0)


def test_a_band_includes_its_ends() -> None:
    report, rows = select(header(6), EIGHT, SelectPlan(right=RIGHT, band=(0.25, 0.5)))
    assert [row["id"] for row in rows] == ["row 1", "row 2"]
    assert report.dropped == {"unscored": 1, "too_hard": 1, "too_easy": 2}
    assert len(select(header(6), EIGHT, SelectPlan(right=RIGHT, band=(0.0, 1.0)))[1]) == 5


def test_duplicates_and_overlap_are_told_and_go_only_when_asked() -> None:
    rows = [rated(0, "0000", "the same words again and again"), rated(1, "10", "The same words again and again"),
            rated(2, "10", "the same words again and again"), rated(3, "10", "something else that is asked here")]  # fmt: skip
    held = [Evaluated(id="held", text="Something else that is asked here")]
    report, kept = select(header(4), rows, SelectPlan(right=RIGHT), held)
    assert len(kept) == 3
    assert {row for row, *_ in report.duplicates} == {"row 1", "row 2"}
    assert report.overlap == (("row 3", "held", "copy", 1.0),)
    assert len(report.notes) == 2
    strict = SelectPlan(right=RIGHT, drop_duplicates=True, drop_overlap=True)
    report, kept = select(header(4), rows, strict, held)
    assert [row["id"] for row in kept] == ["row 1"]  # row 0 is never right, so the first that is kept is row 1
    assert report.dropped == {"never_right": 1, "overlap": 1, "duplicate": 1}


def test_values_between_are_noted() -> None:
    rows = [asked(0, [answer("a", value) for value in (0.1, 0.6, 0.9)])]
    report, _ = select(header(1), rows, SelectPlan(right=RIGHT))
    assert report.rate == pytest.approx(2 / 3)
    assert "3 different values" in report.notes[0]


@pytest.mark.parametrize("text", ["0.8-0.2", "a-b", "0.5", "-0.1-0.5", "0-1.5", "nan-nan"])
def test_a_wrong_band_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="LOW-HIGH"):
        read_band(text)


def test_of_several_rewards_one_has_to_be_named() -> None:
    rewards = [{"name": "number"}, {"name": "format", "regex": "."}]
    many = Config.model_validate({"rewards": rewards})
    several = header()
    object.__setattr__(several, "config", many.model_dump(mode="json"))
    with pytest.raises(ConfigError, match="--reward NAME"):
        right_by(several, None, 0.5)
    with pytest.raises(ConfigError, match="did you mean 'number'"):
        right_by(several, "nmber", 0.5)
    assert right_by(several, "total", 1.5)(answer("a", 2.0)) is True
