"""The rewards `regex`, `contains`, `repetition` and `soft_overlong`, by hand."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.algorithms.rows import algorithm
from toishi.algorithms.shaping import shaped
from toishi.errors import ConfigError, DataError
from toishi.rewards import Judgement, check_prompts
from toishi.rewards.contains import ContainsReward
from toishi.rewards.regex import RegexReward
from toishi.rewards.repetition import RepetitionReward
from toishi.rewards.scripted import answered
from toishi.rewards.soft_overlong import SoftOverlongReward
from toishi.types import Completion, FinishReason, Rollout, RolloutId

ANSWER = RegexReward(pattern=r"Answer: (?P<word>\w+)", group="word")


@pytest.mark.parametrize(
    ("text", "gold", "value", "readable"),
    [
        ("Answer: Mars", "Mars", 1.0, True),
        ("Answer: Venus. Answer: Mars", "Mars", 1.0, True),
        ("Answer: Mars. Answer: Venus", "Mars", 0.0, True),
        ("Answer: mars", "Mars", 0.0, True),
        ("answer: Mars", "Mars", 0.0, False),
        ("Mars", "Mars", 0.0, False),
        ("", "Mars", 0.0, False),
        (" \n ", "Mars", 0.0, False),
        ("Answer: 12", 12, 1.0, True),
        ("Answer: １２", 12, 0.0, True),
        ("Answer: NaN", "nan", 0.0, True),
        ("Answer: cafe\u0301", "café", 1.0, True),  # an accent of its own is a part of the word, and unified
        ("Answer: 火星", "火星", 1.0, True),
    ],
)
def test_a_group_is_compared_with_the_gold(text: str, gold: Any, value: float, readable: bool) -> None:
    judgement = judge(ANSWER, text, asked(gold=gold))
    assert (judgement.value, judgement.status, judgement.readable) == (value, "ok", readable)


def test_listing_candidates_is_refused_where_one_is_asked_for() -> None:
    only = RegexReward(pattern=r"Answer: (\w+)", group=1, which="only")
    texts = ["Answer: Venus. Answer: Mars", "Answer: Mars. Answer: Mars"]
    assert [judge(only, text, asked(gold="Mars")).value for text in texts] == [0.0, 1.0]


def test_a_huge_answer_with_very_many_matches_is_read() -> None:
    text = "Answer: Venus. " * 100_000 + "Answer: Mars"
    assert judge(ANSWER, text, asked(gold="Mars")).value == 1.0
    assert judge(RegexReward(pattern="A"), text, asked()).value == 1.0


def test_a_pattern_without_a_group_is_a_form() -> None:
    part, whole = RegexReward(pattern=r"\d+ km"), RegexReward(pattern=r"(?i)yes|no", match="full")
    assert [judge(part, text, asked()).value for text in ("it is 3 km", "3 miles", "")] == [1.0, 0.0, 0.0]
    assert [judge(whole, text, asked()).value for text in (" Yes\n", "yes, no", "yesno")] == [1.0, 0.0, 0.0]
    assert judge(part, "3 km", asked(), "length").value == 0.0
    assert judge(RegexReward(pattern="a", require_stop=False), "a", asked(), "length").value == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "("}, r"reward 'regex'\.pattern: '\(' is not a regular expression"),
        ({"pattern": "a*"}, "matches the empty text, so silence would be paid"),
        ({"pattern": "(a)", "group": 2}, r"has no group 2; it has \[0, 1\]"),
        ({"pattern": "(?P<x>a)", "group": "y"}, r"has no group 'y'; it has \[0, 1, 'x'\]"),
        ({"pattern": "a", "gold_column": "g"}, "set group as well"),
    ],
)
def test_patterns_that_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RegexReward(**options)


@pytest.mark.parametrize("gold", [None, "", " ", True, ["Mars"], {"a": 1}])
def test_golds_that_are_no_text_are_found_before_the_start(gold: Any) -> None:
    with pytest.raises(DataError, match="row 1: reward 'regex': expected a gold that is text or a number"):
        check_prompts([ANSWER], [asked(gold=gold)])
    assert judge(ANSWER, "Answer: Mars", asked(gold=gold)).status == "failed"


def test_a_slow_pattern_fails_in_time_from_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.rewards.patterns.REGEX_LIMIT_S", 0.2)
    slow, found = RegexReward(pattern=r"(a|aa)+$"), list[Judgement]()
    started = time.perf_counter()
    thread = threading.Thread(target=lambda: found.append(judge(slow, "a" * 60 + "b", asked())))
    thread.start()
    thread.join()
    found.append(judge(slow, "a" * 60 + "b", asked()))
    assert time.perf_counter() - started < 10
    assert [(each.value, each.status, each.kind) for each in found] == [(None, "failed", "timed_out")] * 2


@pytest.mark.parametrize(
    ("options", "text", "value"),
    [
        ({"phrases": ("art",)}, "a work of art.", 1.0),
        ({"phrases": ("art",)}, "a fresh start", 0.0),
        ({"phrases": ("art",), "whole_words": False}, "a fresh start", 1.0),
        ({"phrases": ("art",)}, "ART!", 1.0),
        ({"phrases": ("art",), "ignore_case": False}, "ART!", 0.0),
        ({"phrases": ("New York",)}, "in new\n  york", 1.0),
        ({"phrases": ("New York",)}, "newyork", 0.0),
        ({"phrases": ("C++",)}, "C++ or C", 1.0),
        ({"phrases": ("C++",)}, "C or D", 0.0),
        ({"phrases": ("a.c",)}, "abc", 0.0),
        ({"phrases": ("3",)}, "13", 0.0),
        ({"phrases": ("x_1",)}, "x_12", 0.0),
        ({"phrases": ("北京",)}, "我在北京市", 1.0),
        ({"phrases": ("Москва",)}, "москва", 1.0),
        ({"phrases": ("Straße",)}, "STRASSE", 0.0),
        ({"phrases": ("café",)}, "cafe\u0301", 1.0),
        ({"phrases": ("a", "b")}, "a", 0.0),
        ({"phrases": ("a", "b")}, "b a", 1.0),
        ({"phrases": ("a", "b"), "need": "any"}, "b", 1.0),
        ({"phrases": ("a", "b"), "need": "any"}, "c", 0.0),
        ({"phrases": ("a", "b"), "need": "none"}, "c", 1.0),
        ({"phrases": ("a", "b"), "need": "none"}, "c a", 0.0),
        ({"phrases": ("a", "b"), "need": "none"}, "", 0.0),
        ({"phrases": ("a", "b"), "need": "none"}, " ...\n", 0.0),
        ({"phrases": ("a",)}, "", 0.0),
        ({"phrases": ("Paris",)}, "it is not Paris", 1.0),  # words are found, meaning is not
    ],
)
def test_contains(options: dict[str, Any], text: str, value: float) -> None:
    assert judge(ContainsReward(**options), text, asked()).value == value


def test_phrases_of_a_row() -> None:
    reward = ContainsReward(phrases_column="must")
    assert reward.columns == ("must",)
    assert judge(reward, "a b", asked(columns={"must": ["a", "b"]})).value == 1.0
    assert judge(reward, "a b", asked(columns={"must": "a b c"})).value == 0.0
    assert judge(reward, "it is 12", asked(columns={"must": 12})).value == 1.0
    assert judge(reward, "it is 123", asked(columns={"must": 12})).value == 0.0
    for bad in (None, [], [""], [1], {"a": 1}, " ", True, 1.5):
        with pytest.raises(DataError, match="the column 'must': expected"):
            check_prompts([reward], [asked(columns={"must": bad})])
        assert judge(reward, "a", asked(columns={"must": bad})).status == "failed"


@pytest.mark.parametrize("options", [{}, {"phrases": ("a",), "phrases_column": "b"}])
def test_phrases_come_from_one_place(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give either phrases or phrases_column"):
        ContainsReward(**options)
    with pytest.raises(ConfigError, match=r"phrases: expected phrases with something in them, got ' '"):
        ContainsReward(phrases=(" ",))


def test_a_cut_off_answer_is_not_paid_and_a_huge_one_is_read() -> None:
    assert judge(ContainsReward(phrases=("a",)), "a", asked(), "length").value == 0.0
    assert judge(ContainsReward(phrases=("needle",)), "hay " * 500_000 + "needle", asked()).value == 1.0


@pytest.mark.parametrize(
    ("options", "text", "value"),
    [
        ({"n": 1}, "a b c d", 0.0),
        ({"n": 1}, "a b a b", -0.5),
        ({"n": 1}, "A b a B", -0.5),
        ({"n": 2}, "a b a b", -1 / 3),  # ab, ba, ab
        ({"n": 3}, "a b a b", 0.0),  # aba, bab
        ({"n": 3}, "a b", 0.0),
        ({"n": 1}, "", 0.0),
        ({"n": 1}, " \n ", 0.0),
        ({"n": 1}, "! ! ! !", -0.75),
        ({"n": 1}, "!!!!", -0.75),
        ({"n": 1}, "你好你好", -0.5),
        ({"n": 2}, "你好你好", -1 / 3),
        ({"n": 1}, "12 12 12", -2 / 3),
        ({"n": 1}, "nan nan", -0.5),
        ({"n": 1}, "ha" * 50, -0.98),  # one "word" of 100 letters, of which 2 differ
        ({"n": 1}, "ha" * 20, 0.0),  # a word of 40 letters
        ({"n": 2, "unit": "characters"}, "abab", -1 / 3),
        ({"n": 2, "unit": "characters"}, "a b\na b", -1 / 3),
    ],
)
def test_repetition(options: dict[str, Any], text: str, value: float) -> None:
    assert judge(RepetitionReward(**options), text, asked()).value == pytest.approx(value, abs=1e-12)


def test_repetition_of_a_huge_text() -> None:
    judgement = judge(RepetitionReward(), "the same again " * 50_000, asked())
    assert judgement.value == pytest.approx(3 / 149_998 - 1)
    assert judgement.reason == "3 of 149998 3-grams differ"


def of_length(length: int, finish: FinishReason = "length") -> Completion:
    zeros = (0.0,) * length
    return Completion(
        token_ids=(1,) * length,
        loss_mask=(1,) * length,
        sampled_logprobs=zeros,
        entropies=zeros,
        text="",
        finish_reason=finish,
    )


@pytest.mark.parametrize(
    ("length", "value"), [(1, 0.0), (15, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (20, -1.0), (21, -1.0), (999, -1.0)]
)
def test_soft_overlong_is_dapo_s_equation_13(length: int, value: float) -> None:
    """0 up to L_max - L_cache = 16, ((L_max - L_cache) - length) / L_cache to 20, -1 beyond."""
    ((judgement,),) = SoftOverlongReward(max_tokens=20, ramp_tokens=4).score_group(asked(), [of_length(length)])
    assert judgement.value == value


def test_soft_overlong_equals_the_algorithm_s_own_penalty() -> None:
    row = algorithm("dapo").model_copy(update={"truncation": "soft_penalty", "soft_penalty_tokens": 7})
    reward = SoftOverlongReward(max_tokens=30, ramp_tokens=7)
    for length in range(1, 40):
        for finish in ("stop", "length"):
            completion = of_length(length, finish)
            rollout = Rollout(id=RolloutId(0, 0, 0), prompt=asked(), completion=completion, reward=0.0)
            ((judgement,),) = reward.score_group(asked(), [completion])
            assert judgement.value == shaped(rollout, row, 30).outcome


def test_soft_overlong_counts_tokens_with_loss_only() -> None:
    given = answered("one two three four")
    masked = Completion(
        token_ids=given.token_ids,
        loss_mask=(0, 0, 1, 1, 1),
        sampled_logprobs=given.sampled_logprobs,
        entropies=given.entropies,
        text=given.text,
        finish_reason="stop",
    )
    ((judgement,),) = SoftOverlongReward(max_tokens=5, ramp_tokens=5).score_group(asked(), [masked])
    assert judgement.value == pytest.approx(-0.6)


def test_a_ramp_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward 'soft_overlong'\.ramp_tokens: 21 is more than max_tokens=20"):
        SoftOverlongReward(max_tokens=20, ramp_tokens=21)
