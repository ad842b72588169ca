"""Rates hold in every window of a minute, whatever arrives when; pauses grow and differ between calls."""

from __future__ import annotations

import random

import pytest

from toishi.judging.limits import LONGEST_PAUSE_S, Pace, pause_s, retry_after_s


@pytest.mark.parametrize("seed", range(5))
def test_no_window_of_a_minute_holds_more_than_the_limits(seed: int) -> None:
    rng = random.Random(seed)
    now = [0.0]
    pace = Pace(requests=5, tokens=100, clock=lambda: now[0])
    starts: list[tuple[float, int]] = []
    for _ in range(60):
        now[0] += rng.choice([0.0, 0.0, 1.0, 30.0])
        tokens = rng.randint(1, 60)
        slot = pace.reserve(tokens)
        assert slot.start_s >= now[0]
        starts.append((slot.start_s, tokens))
    assert starts == sorted(starts, key=lambda start: start[0])
    for end, _ in starts:
        inside = [tokens for start, tokens in starts if end - 60 < start <= end]
        assert len(inside) <= 5
        assert sum(inside) <= 100


def test_without_limits_nothing_waits_and_a_hold_holds_all() -> None:
    now = [10.0]
    pace = Pace(clock=lambda: now[0])
    assert [pace.reserve(10**9).start_s for _ in range(3)] == [10.0] * 3
    pace.hold(5.0)
    assert pace.wait_s(pace.reserve(1)) == 5.0


def test_one_request_larger_than_a_minute_is_sent_alone() -> None:
    now = [0.0]
    pace = Pace(tokens=100, clock=lambda: now[0])
    assert [pace.reserve(tokens).start_s for tokens in (1, 500, 1)] == [0.0, 60.0, 120.0]


def test_tokens_that_were_not_used_are_given_back() -> None:
    now = [0.0]
    pace = Pace(tokens=100, clock=lambda: now[0])
    slot = pace.reserve(90)
    slot.tokens = 10
    assert pace.reserve(90).start_s == 0.0


def test_pauses_double_up_to_a_limit_and_differ_between_calls() -> None:
    assert [0.25 * 2**n <= pause_s(n + 1, key="a") <= 0.5 * 2**n for n in range(6)] == [True] * 6
    assert LONGEST_PAUSE_S / 2 <= pause_s(30, key="a") <= LONGEST_PAUSE_S
    assert len({pause_s(1, key=str(key)) for key in range(20)}) == 20
    assert pause_s(3, key="a") == pause_s(3, key="a")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *((None, None), ("", None), ("3", 3.0), (" 0.5 ", 0.5), ("-1", None), ("nan", None), ("inf", None), ("0x10", None)),
        *(("1_0", None), ("1e5", None), ("\u0663", None), ("9" * 20, 86_400.0), ("9" * 400, None), ("Mon, 99 Foo", None)),
        *(("Mon, 01 Jan 0001 00:00:00 GMT", 0.0), ("Mon, 01 Jan 0001 00:00:00 -0000", 0.0), ("1 Jan 99999", None)),
        *(("Thu, 01 Jan 1970 00:00:09 -0000", 0.0), ("Thu, 01 Jan 2099 00:00:00 GMT", 86_400.0)),
        ("Fri, 31 Dec 9999 23:59:59 -1200", 86_400.0),
    ],
)
def test_retry_after_is_read_or_ignored(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header) == seconds


def test_a_date_without_a_zone_is_of_greenwich() -> None:
    assert retry_after_s("Thu, 01 Jan 1970 00:01:40 -0000", now_s=90.0) == 10.0
