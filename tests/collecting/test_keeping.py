"""Rejection sampling: every dropped answer under the first reason that holds."""

from __future__ import annotations

import pytest

from tests.collecting.making import answer, asked, header
from toishi.collecting.keeping import REASONS, KeepPlan, keep, kept_of
from toishi.collecting.right import Right
from toishi.errors import ConfigError

RIGHT = Right(reward="number", threshold=0.5)
ANSWERS = [
    answer("It is 4", 1.0),
    answer("", 1.0),
    answer("It is 4", 1.0),
    answer("It is 5", 0.0),
    answer("Four it is", 1.0, 9),
    answer("It is 4 and so", 1.0, cut=True),
    answer("hm", None),
    answer("unread", 1.0, readable=False),
]


def test_each_answer_is_kept_or_counted_once() -> None:
    report, rows = keep(header(1), [asked(0, ANSWERS)], KeepPlan(right=RIGHT, max_tokens=8))
    assert [row["completion"] for row in rows] == ["It is 4"]
    assert report.dropped == {
        "unscored": 1, "truncated": 1, "empty": 1, "unreadable": 1, "wrong": 1, "too_long": 1, "copy": 1,
    }  # fmt: skip
    assert report.kept + sum(report.dropped.values()) == report.answers == 8
    assert list(report.dropped) == [reason for reason in REASONS if reason in report.dropped]


def test_rows_are_what_sft_reads() -> None:
    _, rows = keep(header(1), [asked(0, ANSWERS)], KeepPlan(right=RIGHT))
    row = rows[1]
    assert (row["prompt"], row["completion"], row["reward"], row["scores"]) == (
        "question number 0 of the set", "Four it is", 1.0, {"number": 1.0},
    )  # fmt: skip
    assert (row["source"]["id"], row["source"]["member"], row["source"]["samples"]) == ("row 0", 4, 4)
    chat = asked(0, ANSWERS)
    object.__setattr__(chat, "prompt", ({"role": "user", "content": "2 + 2?"},))
    (first, *_) = keep(header(1), [chat], KeepPlan(right=RIGHT))[1]
    assert "prompt" not in first
    assert first["messages"] == [{"role": "user", "content": "2 + 2?"}]


def test_best_and_top_take_the_highest_and_of_equals_the_first() -> None:
    answers = [answer("a", 0.2), answer("b", 0.9, 50), answer("c", 0.9, 2), answer("d", 0.5)]
    one = asked(0, answers)
    assert kept_of(one, KeepPlan(keep="best"))[0] == [1]
    assert kept_of(one, KeepPlan(keep="top", top=3)) == ([1, 2, 3], ["not_best"])
    assert kept_of(one, KeepPlan(keep="best", min_reward=0.95)) == ([], ["low_reward"] * 4)
    assert kept_of(one, KeepPlan(keep="all", min_tokens=10)) == ([1], ["too_short"] * 3)


def test_near_copies_go_when_asked() -> None:
    text = "first we add three and four and then we have seven which is the answer"
    one = asked(0, [answer(text, 1.0), answer(text + " here", 1.0), answer("seven", 1.0)])
    assert kept_of(one, KeepPlan(keep="all", dedup="near")) == ([0, 2], ["alike"])
    assert kept_of(one, KeepPlan(keep="all", dedup="exact")) == ([0, 1, 2], [])
    twice = asked(0, [answer("a", 1.0), answer("a", 1.0)])
    assert kept_of(twice, KeepPlan(keep="all", dedup="off")) == ([0, 1], [])


def test_exact_is_sign_for_sign_and_the_looser_sense_has_a_name() -> None:
    right, wrong = "if x:\n    a()\nb()", "if x:\n    a()\n    b()"
    one = asked(0, [answer(right, 1.0), answer(wrong, 0.0), answer(right, 1.0), answer(right.upper(), 0.5)])
    assert kept_of(one, KeepPlan(keep="all")) == ([0, 1, 3], ["copy"])
    stays, reasons = kept_of(one, KeepPlan(keep="all", dedup="words"))
    assert (stays, sorted(reasons)) == ([0], ["copy", "same_words", "same_words"])
    assert kept_of(one, KeepPlan(keep="all", dedup="near"))[0] == [0]


def test_another_language_goes_and_an_untellable_one_stays() -> None:
    one = asked(0, [answer("The sum of both is 12.", 1.0), answer("答案是十二。", 1.0), answer("12", 1.0)])
    report, rows = keep(header(1), [one], KeepPlan(keep="all", language="en"))
    assert [row["completion"] for row in rows] == ["The sum of both is 12.", "12"]
    assert report.dropped == {"language": 1}
    with pytest.raises(ConfigError, match="language"):
        keep(header(1), [one], KeepPlan(language="xx"))


def test_what_was_cut_or_unreadable_may_stay() -> None:
    one = asked(0, [answer("a", 1.0, cut=True), answer("b", 1.0, readable=False)])
    assert kept_of(one, KeepPlan(keep="all", truncated=True, unreadable=True))[0] == [0, 1]
