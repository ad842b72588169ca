"""Log-probs of a chat endpoint read as probabilities of choices; expected numbers by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.judging.stub_server import chat
from toishi.judging.base import JudgeCall, JudgeRefused
from toishi.judging.chat_request import TryFailed, read_answer, request_of
from toishi.judging.judge_options import JudgeOptions

OPTIONS = JudgeOptions(model="m", base_url="http://h/v1", probabilities=True, continues="vllm")
IN_WORDS = JudgeOptions(model="m", base_url="http://h/v1", probabilities=True)
CALL = JudgeCall(messages=({"role": "user", "content": "?"},), prefix="Rating: [[", choices=("1", "2", "3"))


def token(text: str, p: float = 1.0, top: dict[str, float] | None = None) -> dict[str, Any]:
    entries = [{"token": other, "logprob": math.log(q)} for other, q in (top or {}).items()]
    return {"token": text, "logprob": math.log(p), "top_logprobs": entries}


def read(*tokens: dict[str, Any], options: JudgeOptions = OPTIONS, call: JudgeCall = CALL) -> dict[str, float]:
    text = "".join(one["token"] for one in tokens)
    answer = read_answer(chat(text, logprobs={"content": list(tokens)}).body, call, options)
    assert answer.text == ""
    assert answer.probabilities is not None
    return dict(answer.probabilities)


def test_two_tokens_and_the_likeliest_twenty_are_asked_for() -> None:
    request = request_of(CALL, OPTIONS, seed=0)
    assert (request["logprobs"], request["top_logprobs"], request["max_tokens"]) == (True, 20, 2)
    assert request_of(CALL, OPTIONS, seed=0, dropped={"top_logprobs"})["top_logprobs"] == 5
    assert request_of(CALL, IN_WORDS, seed=0)["max_tokens"] == CALL.max_tokens
    assert "logprobs" not in request_of(CALL, JudgeOptions(model="m", base_url="http://h/v1"), seed=0)


def test_spellings_of_a_choice_are_added_up() -> None:
    found = read(token("2", 0.4, {"2": 0.4, " 2": 0.1, "1": 0.2, "3": 0.05, "\n3": 0.01, "well": 0.2}), token("]]"))
    assert found == pytest.approx({"1": 0.2, "2": 0.5, "3": 0.06})


def test_the_token_that_was_taken_counts_though_it_is_not_in_the_list() -> None:
    assert read(token("2", 0.1, {"1": 0.5, "3": 0.3}))["2"] == pytest.approx(0.1)


def test_a_blank_that_stands_alone_passes_its_weight_on() -> None:
    found = read(token(" ", 0.5, {" ": 0.5, "1": 0.1, "2": 0.2, "3": 0.1}), token("3", 0.8, {"3": 0.8, "1": 0.1, "2": 0.1}))
    assert found == pytest.approx({"1": 0.1 + 0.05, "2": 0.2 + 0.05, "3": 0.1 + 0.4})


@pytest.mark.parametrize("first", ["", "\n"])
def test_where_the_reply_repeats_its_beginning_the_next_token_counts(first: str) -> None:
    tokens = [token(piece, 0.9, {"1": 0.1}) for piece in (f"{first}Rating", ":", " [[")]
    found = read(*tokens, token("3", 0.7, {"3": 0.7, "2": 0.2, "1": 0.1}), token("]]"), options=IN_WORDS)
    assert found == pytest.approx({"1": 0.1, "2": 0.2, "3": 0.7})


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([token("The"), token(" rating"), token(" is"), token(" 3")], "does not begin with"),
        ([token("Rating"), token(":"), token(" [[3"), token("]]")], "no token begins right after"),
    ],
)
def test_a_reply_without_its_beginning_gives_no_probabilities(tokens: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(TryFailed, match=message) as failed:
        read(*tokens, options=IN_WORDS)
    assert (failed.value.kind, failed.value.retried) == ("bad_reply", False)


def test_choices_that_are_not_listed_are_unknown_and_may_not_weigh() -> None:
    """Listed 0.9 + 0.05, smallest 0.05: the unlisted third choice could have 0.05, a nineteenth of what is known. At 0.2, 0.1
    it could have 0.1 of 0.3: refused."""
    assert read(token("1", 0.9, {"1": 0.9, "2": 0.05})) == pytest.approx({"1": 0.9, "2": 0.05, "3": 0.0})
    with pytest.raises(TryFailed, match=r"those not listed could add 0.1"):
        read(token("1", 0.2, {"1": 0.2, "2": 0.1, "a": 0.4}))
    with pytest.raises(TryFailed, match="none is listed"):
        read(token("a", 0.9, {"a": 0.9, "b": 0.05}))


@pytest.mark.parametrize("logprobs", [None, {}, {"content": []}, {"content": [{"token": "1"}]}, {"content": ["1"]}])
def test_a_server_without_logprobs_stops_the_run(logprobs: object) -> None:
    with pytest.raises(JudgeRefused, match=r"judge\.probabilities is true"):
        read_answer(chat("1", logprobs=logprobs).body, CALL, OPTIONS)


def test_token_counts_that_are_missing_or_odd_count_as_unknown() -> None:
    body = json.loads(chat("7").body)
    for usage in (None, {}, {"prompt_tokens": "12", "completion_tokens": -1}):
        answer = read_answer(json.dumps(body | {"usage": usage}).encode(), JudgeCall(messages=CALL.messages), OPTIONS)
        assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("7", None, None)
