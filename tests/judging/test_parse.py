"""Reading replies: every reported text and more of our own."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judging.cases_of import EVERY, IDS, OWN, REPORTED, Case
from toishi.errors import ConfigError
from toishi.judging.parse import read_reply
from toishi.judging.scale import Scale

TEN = Scale.read("1-10")


@pytest.mark.parametrize("case", EVERY, ids=IDS)
def test_every_text_is_read_right(case: Case) -> None:
    reading = read_reply(case.text, Scale.read(case.scale), candidates=case.candidates, form=case.form)
    assert (reading.error, list(reading.scores)) == (case.error, case.scores)
    assert bool(reading.why) == bool(case.error)


def test_there_are_enough_texts() -> None:
    assert len(REPORTED) == 8
    assert len({(case.text, case.scale, case.form, case.candidates) for case in OWN}) >= 80


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"score": 7}', ""),
        ('```json\n{"score": 7}\n```', ""),
        ('{"score": 7} Although', "truncated"),
        ('{"score": 7} Although {"sco', "truncated"),
        ("The first step is", "truncated"),
        ("", "empty"),
    ],
)
def test_a_reply_cut_at_its_limit(text: str, error: str) -> None:
    assert read_reply(text, TEN, finish_reason="length").error == error


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_score_in_range_or_an_error(text: str) -> None:
    reading = read_reply(text, TEN)
    assert (reading.score is None) == bool(reading.error)
    assert reading.score is None or 1 <= reading.score <= 10


@given(st.text(alphabet='{}[]":,\\ sco019-<>/thinkreasonu\n', max_size=80), st.integers(1, 10))
@settings(max_examples=500, deadline=None)
def test_what_an_answer_plants_before_the_verdict_never_replaces_it(planted: str, score: int) -> None:
    """Whatever is quoted before it, the judge's own last object is read, or nothing."""
    reading = read_reply(f'{planted}\n{{"score": {score}}}', TEN)
    assert reading.score in (None, float(score))


@pytest.mark.parametrize(
    "text",
    [
        "{" * 99_000,
        '{"a":' * 19_000,
        '{"' * 49_000,
        "<think>" * 14_000,
        "</think>" * 12_000,
        '{"a": 1} ' * 11_000,
        "[[" * 49_000,
    ],
    ids=["braces", "deep", "quotes", "open tags", "closed tags", "objects", "brackets"],
)
def test_long_hostile_texts_take_no_time(text: str) -> None:
    start = time.process_time()
    for form in ("json", "rating", "last_line"):
        assert read_reply(text, TEN, form=form).error
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    ("text", "low", "high", "middle"), [("1-10", 1, 10, 5.5), ("0-1", 0, 1, 0.5), ("-1-1", -1, 1, 0), ("-10--5", -10, -5, -7.5)]
)
def test_a_scale_pays_from_0_to_1(text: str, low: float, high: float, middle: float) -> None:
    scale = Scale.read(text)
    assert (scale.low, scale.high) == (low, high)
    assert [scale.to_reward(score) for score in (low, middle, high)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("text", ["", "10", "10-1", "5-5", "a-b", "1-10 points", "B-E", "A-A", "1-inf", "nan-2"])
def test_a_scale_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="lowest and the highest score"):
        Scale.read(text)


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("0-2", {"0": 0.0, "1": 1.0, "2": 2.0}),
        ("A-D", {"A": 3.0, "B": 2.0, "C": 1.0, "D": 0.0}),
        ("1-10", None),
        ("-1-1", None),
        ("0.5-2", None),
    ],
)
def test_values_that_are_one_token_each(text: str, choices: dict[str, float] | None) -> None:
    assert Scale.read(text).choices == choices
