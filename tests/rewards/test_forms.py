"""The rewards `format`, `length` and `json_keys`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.errors import ConfigError
from toishi.rewards.format import FormatReward
from toishi.rewards.json_keys import JsonKeysReward
from toishi.rewards.length import LengthReward, text_tokens
from toishi.rewards.scripted import answered
from toishi.types import Completion, FinishReason

BOTH = FormatReward(tags=("think", "answer"))
R1 = FormatReward(tags=("think",), outside="after")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<think>a</think><answer>4</answer>", "has the form"),
        ("<think>a</think>\n\n<answer>\n4\n</answer>\n", "has the form"),
        ("", "<think> stands 0 times, expected once"),
        ("...", "<think> stands 0 times, expected once"),
        ("<think></think><answer>4</answer>", "nothing inside <think>"),
        ("<think> \n </think><answer>4</answer>", "nothing inside <think>"),
        ("<think>a</think><answer></answer>", "nothing inside <answer>"),
        ("<answer>4</answer><think>a</think>", "the tags are not in the order <think> </think> <answer> </answer>"),
        ("<think>a</think><answer>4</answer><answer>5</answer>", "<answer> stands 2 times, expected once"),
        ("<think>a<answer>4</answer></think>", "the tags are not in the order <think> </think> <answer> </answer>"),
        ("<think>a</think>4<answer>4</answer>", "text before or between the tags; outside='anything' allows it"),
        ("so <think>a</think><answer>4</answer>", "text before or between the tags; outside='anything' allows it"),
        ("<think>a</think><answer>4</answer> 5", "text after </answer>; outside='after' asks for it"),
        ("<think>a</think><answer>4", "</answer> stands 0 times, expected once"),
        ("<Think>a</Think><Answer>4</Answer>", "<think> stands 0 times, expected once"),
    ],
)
def test_tags(text: str, reason: str) -> None:
    judgement = judge(BOTH, text, asked())
    assert (judgement.value, judgement.reason) == (float(reason == "has the form"), reason)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a</think>4", 1.0), ("</think>4", 0.0), ("<think>a</think>4", 0.0), ("a</think>", 0.0), ("a", 0.0)],
)
def test_a_prefilled_tag_counts(text: str, value: float) -> None:
    assert judge(R1, text, asked(prefill="<think>\n")).value == value


def test_text_outside_may_be_allowed_anywhere() -> None:
    anything = FormatReward(tags=("answer",), outside="anything")
    assert judge(anything, "so <answer>4</answer>!", asked()).value == 1.0
    assert judge(R1, "so <think>a</think>4", asked()).value == 0.0


def test_regex() -> None:
    full = FormatReward(regex=r"Answer: \d+")
    assert [judge(full, text, asked()).value for text in ("Answer: 4", " Answer: 4\n", "The Answer: 4")] == [1.0, 1.0, 0.0]
    part = FormatReward(regex=r"\\boxed\{.+\}", match="search")
    assert [judge(part, text, asked()).value for text in ("so \\boxed{4}.", "\\boxed{}", "4")] == [1.0, 0.0, 0.0]


def test_a_cut_off_answer_has_no_form_unless_asked_for() -> None:
    assert judge(BOTH, "<think>a</think><answer>4</answer>", asked(), "length").value == 0.0
    open_ended = FormatReward(regex="a+", require_stop=False)
    assert judge(open_ended, "aaa", asked(), "length").value == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either tags"),
        ({"tags": ("a",), "regex": "a"}, "give either tags"),
        ({"tags": ("<think>",)}, "must be a bare name"),
        ({"tags": ("a", "a")}, "listed once"),
        ({"regex": "("}, "is not a regular expression"),
    ],
)
def test_impossible_forms_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FormatReward(**options)


@pytest.mark.parametrize(
    ("num_tokens", "finish_reason", "value"),
    [
        (31, "stop", 0.0),  # 30 tokens of text and the stop token
        (1, "stop", -0.9),  # nothing said: -(0 - 30)^2 / 1000
        (41, "stop", -0.1),
        (30, "length", 0.0),
        (64, "length", -1.156),  # -(34^2) / 1000
    ],
)
def test_length(num_tokens: int, finish_reason: FinishReason, value: float) -> None:
    streams = (0.0,) * num_tokens
    completion = Completion(
        token_ids=(1,) * num_tokens,
        loss_mask=(1,) * num_tokens,
        sampled_logprobs=streams,
        entropies=streams,
        text="",
        finish_reason=finish_reason,
    )
    ((judgement,),) = LengthReward(target=30).score_group(asked(), [completion])
    assert judgement.value == pytest.approx(value, abs=1e-12)


def test_length_needs_no_columns_and_scales() -> None:
    reward = LengthReward(target=1, scale=10.0)
    assert (reward.columns, judge(reward, "one two three", asked()).value) == ((), -0.4)
    assert text_tokens(answered("")) == 0


@pytest.mark.parametrize(
    ("text", "reason", "readable"),
    [
        ('{"name": "Rex", "color": "brown"}', "the asked-for keys", True),
        ('```json\n{"name": "Rex",\n "color": "brown"}\n```', "the asked-for keys", True),
        ('```\n{"color": "brown", "name": "Rex"}\n```\n', "the asked-for keys", True),
        ("", "not JSON", False),
        ("...", "not JSON", False),
        ("二", "not JSON", False),
        ("NaN", "not JSON: NaN", False),
        ('{"name": NaN, "color": "x"}', "not JSON: NaN", False),
        ("1e309", "not JSON: the number 1e309 is too large", False),
        ('Sure! {"name": "Rex", "color": "brown"}', "not JSON", False),
        ('{"name": "Rex", "color": "brown"} {"name": "Max", "color": "red"}', "not JSON", False),
        ('[{"name": "Rex", "color": "brown"}]', "JSON, but a list and not an object", True),
        ('{"name": "Rex", "name": "Max", "color": "red"}', "not JSON with each key once", False),
        ('{"name": "Rex"}', "keys ['name'], asked for ['color', 'name']", True),
        ('{"name": "Rex", "color": "red", "age": "3"}', "keys ['age', 'color', 'name'], asked for ['color', 'name']", True),
        ('{"name": "", "color": "red"}', "the value of 'name' is not a non-empty text", True),
        ('{"name": "Rex", "color": ["red"]}', "the value of 'color' is not a non-empty text", True),
        ("[" * 50_000, "not JSON", False),
    ],
)
def test_json_keys(text: str, reason: str, readable: bool) -> None:
    reward = JsonKeysReward(keys=("name", "color"))
    judgement = judge(reward, text, asked())
    assert (judgement.value, judgement.reason, judgement.readable) == (float(reason == "the asked-for keys"), reason, readable)
    assert reward.columns == ()


def test_json_keys_cut_off() -> None:
    text = '{"name": "Rex"}'
    assert judge(JsonKeysReward(keys=("name",)), text, asked(), "length").value == 0.0
    assert judge(JsonKeysReward(keys=("name",), require_stop=False), text, asked(), "length").value == 1.0


@pytest.mark.parametrize(
    ("prefill", "text", "value"),
    [
        ("<think>\n", "x</think>y", 1.0),
        ("<think>\n", "x</think>", 1.0),
        ("", "<think>x</think> y", 1.0),
        ("", "so <think>x</think> y", 0.0),
        ("<think>\n", "</think>y", 0.0),
        ("<think>\n", "<think>x</think>y", 0.0),
        ("<think>\n", "x", 0.0),
    ],
)
def test_after_a_single_tag_the_answer_may_follow(prefill: str, text: str, value: float) -> None:
    assert judge(FormatReward(tags=("think",)), text, asked(prefill=prefill)).value == value


def test_the_reason_says_how_text_after_the_tags_is_allowed() -> None:
    strict = FormatReward(tags=("think",), outside="nothing")
    judgement = judge(strict, "<think>x</think> y", asked())
    assert (judgement.value, judgement.reason) == (0.0, "text after </think>; outside='after' asks for it")


def test_a_regex_that_takes_for_ever_fails_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.rewards.patterns.REGEX_LIMIT_S", 0.2)
    slow = FormatReward(regex=r"(a|aa)+$")
    started = time.perf_counter()
    judgement = judge(slow, "a" * 60 + "b", asked())
    assert time.perf_counter() - started < 5
    assert (judgement.status, judgement.value) == ("failed", None)
    assert "took longer than 0.2 s on 61 characters" in judgement.reason
