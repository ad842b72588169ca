"""Probabilities of choices from `/v1/systemone`, the typed decisions of `transformers serve`.

Decisions:
1. `transformers serve` ignores `logprobs` in chats, but it answers a question with given options by their probabilities, in one
   forward pass. So a small served model can judge by probabilities, which it does far better than in words.
2. The server writes the question into a prompt of its own (the options as a lettered list), so the judge sees the chat as
   one text, and `prefix` is not sent. The probabilities are shares among the options: they always add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from toishi.judging.base import JudgeCall
from toishi.judging.chat_request import Answer, TryFailed, token_count
from toishi.judging.judge_options import JudgeOptions

PATH = "/systemone"
_NAME = "reply"


def decision_of(call: JudgeCall, options: JudgeOptions) -> dict[str, Any]:
    """The body of the request for a call with choices.

    >>> call = JudgeCall(messages=({"role": "user", "content": "Good?"},), choices=("1", "2"))
    >>> decision_of(call, JudgeOptions(model="m", base_url="http://h/v1"))["questions"]["reply"]["criteria"]
    {'1': None, '2': None}
    """
    question = {"type": "choice", "instructions": "Which reply is right?", "criteria": dict.fromkeys(call.choices)}
    state = "\n\n".join(message["content"] for message in call.messages)
    return {"model": options.model, "state": state, "questions": {_NAME: question}}


def read_decision(body: object, call: JudgeCall) -> Answer:
    """The probabilities in the server's answer. Raises TryFailed when they are not one for each choice, adding up to 1."""
    answers = body.get("answers") if isinstance(body, Mapping) else None
    reply = answers.get(_NAME) if isinstance(answers, Mapping) else None
    found = reply.get("probabilities") if isinstance(reply, Mapping) else None
    if not isinstance(found, Mapping) or set(found) != set(call.choices):
        raise TryFailed("bad_reply", f"expected a probability for each of {', '.join(call.choices)}, got {str(body)[:200]}")
    numbers = all(isinstance(p, int | float) and not isinstance(p, bool) and 0 <= p <= 1 for p in found.values())
    if not numbers or abs(math.fsum(found.values()) - 1) > 1e-3:
        raise TryFailed("bad_reply", f"the probabilities do not add up to 1: {dict(found)}")
    usage = body.get("usage") if isinstance(body, Mapping) else None
    return Answer(
        text="",
        finish_reason="stop",
        probabilities={choice: float(found[choice]) for choice in call.choices},
        prompt_tokens=token_count(usage, "input_tokens"),
        completion_tokens=token_count(usage, "output_tokens"),
    )
