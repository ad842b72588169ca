"""Typed decisions: what is sent, and answers that are no probabilities of the choices."""

from __future__ import annotations

import pytest

from toishi.judging.base import JudgeCall
from toishi.judging.chat_request import TryFailed
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.systemone import decision_of, read_decision

CALL = JudgeCall(
    messages=({"role": "system", "content": "Judge."}, {"role": "user", "content": "Good?"}), prefix="[[", choices=("1", "2")
)


def answer(probabilities: object) -> dict[str, object]:
    return {
        "answers": {"reply": {"type": "choice", "probabilities": probabilities}},
        "usage": {"input_tokens": 12, "output_tokens": 0},
    }


def test_the_whole_chat_and_every_choice_are_sent() -> None:
    assert decision_of(CALL, JudgeOptions(model="m", base_url="http://h/v1")) == {
        "model": "m",
        "state": "Judge.\n\nGood?",
        "questions": {"reply": {"type": "choice", "instructions": "Which reply is right?", "criteria": {"1": None, "2": None}}},
    }


def test_probabilities_and_tokens_are_read() -> None:
    found = read_decision(answer({"2": 0.75, "1": 0.25}), CALL)
    assert (found.text, found.probabilities, found.prompt_tokens) == ("", {"1": 0.25, "2": 0.75}, 12)


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], {}, {"answers": None}, {"answers": {"reply": {}}}, answer(None), answer([0.5, 0.5])),
        *(answer({"1": 1.0}), answer({"1": 0.5, "2": 0.4}), answer({"1": 1.5, "2": -0.5}), answer({"1": "0.5", "2": 0.5})),
        answer({"1": 0.3, "2": 0.3, "3": 0.4}),
    ],
)
def test_what_is_no_probability_for_each_choice_is_a_bad_reply(body: object) -> None:
    with pytest.raises(TryFailed) as failed:
        read_decision(body, CALL)
    assert failed.value.kind == "bad_reply"
