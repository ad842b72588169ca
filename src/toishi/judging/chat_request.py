"""What is sent to a chat endpoint for a call, and what its answer says. Pure: no network here.

Decisions:
1. A field that a server may not know (a JSON schema, a seed, `top_logprobs`) is left out once it has been rejected by name; the
   call is worth more than the field.
2. Where a server cannot go on with a begun reply, it is asked in words to begin like that, and the beginning is cut off.
3. Probabilities are sums over the listed spellings of a choice ("7", " 7"). A server lists the likeliest tokens only: a choice
   that is not listed counts as 0, which is refused when the unlisted choices together could weigh more than a tenth of the
   listed.
4. One answer is asked for. Another number of answers, an answer that is no text, or a body that is no JSON is a bad reply. So
   is a log-prob that is none (NaN, infinite, above 0 by more than rounding): nothing is guessed from it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toishi.judging.base import FailureKind, JudgeCall, JudgeRefused
from toishi.judging.judge_options import JudgeOptions
from toishi.types import FinishReason

TOP_LOGPROBS = 20
FEWER_LOGPROBS = 5
MAX_UNLISTED_SHARE = 0.1
MAX_TOKEN_COUNT = 10**12
ROUNDING = 1e-3
_CHARS_PER_TOKEN = 3
_WORDS = {"json_schema": "response_format", "max_completion_tokens": "max_tokens"}
_UNKNOWN_MODEL = re.compile(r"model.{0,200}(not found|not exist|unknown|not served|not available)|pinned to", re.I | re.S)


class TryFailed(Exception):
    """One try of a call gave no reply.

    kind           what it counts as
    retried        whether another try may help
    retry_after_s  what the server asked to wait, seconds; None = nothing
    """

    def __init__(self, kind: FailureKind, message: str, *, retried: bool = True, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.retried = retried
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one answer of the server says; token counts are None where the server gives none."""

    text: str
    finish_reason: FinishReason
    probabilities: Mapping[str, float] | None
    prompt_tokens: int | None
    completion_tokens: int | None


def request_of(call: JudgeCall, options: JudgeOptions, *, seed: int, dropped: Collection[str] = ()) -> dict[str, Any]:
    """The keyword arguments of `chat.completions.create`. `dropped` are fields that this server has rejected.

    >>> call = JudgeCall(messages=({"role": "user", "content": "Good?"},), max_tokens=5)
    >>> request_of(call, JudgeOptions(model="m", base_url="http://h/v1"), seed=3)["max_tokens"]
    5
    """
    messages = [dict(message) for message in call.messages]
    request: dict[str, Any] = {"model": options.model, "messages": messages, "temperature": call.temperature}
    if call.prefix and options.continues == "no":
        messages[-1]["content"] += f"\n\nBegin your reply with exactly this: {call.prefix}"
    elif call.prefix:
        messages.append({"role": "assistant", "content": call.prefix})
        if options.continues == "vllm":
            request["extra_body"] = {"add_generation_prompt": False, "continue_final_message": True}
    if call.temperature > 0 and "seed" not in dropped:
        request["seed"] = seed
    if _wants_probabilities(call, options):
        top = FEWER_LOGPROBS if "top_logprobs" in dropped else TOP_LOGPROBS
        request |= {"logprobs": True, "top_logprobs": top}
    elif call.json_schema is not None and "response_format" not in dropped:
        schema = {"name": "reply", "strict": True, "schema": dict(call.json_schema)}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    request["max_completion_tokens" if "max_tokens" in dropped else "max_tokens"] = _max_tokens(call, options)
    return request


def rejected_field(message: str, request: Mapping[str, Any], dropped: Collection[str]) -> str | None:
    """Which field of a refused request can be left out, going by what the server says; None when none is named.

    >>> rejected_field("Unknown parameter: 'seed'", {"seed": 1}, ())
    'seed'
    """
    said = message.lower()
    for name in ("response_format", "seed", "top_logprobs", "max_tokens"):
        words = [name, *(word for word, field in _WORDS.items() if field == name)]
        if name in request and name not in dropped and any(word in said for word in words):
            return name
    return None


def names_unknown_model(message: str) -> bool:
    """Whether a refusal says that the server does not have the model.

    >>> names_unknown_model("The model `x` does not exist."), names_unknown_model("the prompt is too long for the model")
    (True, False)
    """
    return _UNKNOWN_MODEL.search(message) is not None


def estimated_tokens(call: JudgeCall) -> int:
    """Tokens counted against a rate before the server has counted them: the prompt by its length, the reply by its limit."""
    return sum(len(message["content"]) for message in call.messages) // _CHARS_PER_TOKEN + call.max_tokens


def read_answer(content: bytes, call: JudgeCall, options: JudgeOptions) -> Answer:
    """What the body of a successful response says. Raises TryFailed when it says nothing usable, JudgeRefused when
    probabilities are wanted and the server gives none."""
    body = json_object(content)
    choices = body.get("choices")
    if not choices and body.get("error"):
        raise TryFailed("server_error", f"the server answered with an error (in a 200): {error_words(body['error'])}")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        count = len(choices) if isinstance(choices, list) else "no list of"
        raise TryFailed("bad_reply", f"the server gave {count} answers, expected one")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("content") or "", str):
        raise TryFailed("bad_reply", f"the answer holds no text: {str(choice)[:200]}")
    if message.get("refusal") or choice.get("finish_reason") == "content_filter":
        said = error_words(message.get("refusal") or "content filter")
        raise TryFailed("refused", f"the judge refused to answer: {said}", retried=False)
    text = message.get("content") or ""
    finish: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
    if not text.strip():
        raise TryFailed("empty", _why_empty(message, finish))
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise TryFailed("bad_reply", f"the reply holds half a character, which no text can: {text[:80]!r}")
    probabilities = _probabilities(choice, call, options) if _wants_probabilities(call, options) else None
    text = "" if probabilities is not None else text.lstrip().removeprefix(call.prefix) if call.prefix else text
    prompt, completion = _usage(body)
    return Answer(
        text=text, finish_reason=finish, probabilities=probabilities, prompt_tokens=prompt, completion_tokens=completion
    )


def usage_in(content: bytes) -> tuple[int | None, int | None]:
    """Prompt and reply tokens that a body counts, also when its answer cannot be used; None where it counts none."""
    try:
        return _usage(json_object(content))
    except TryFailed:
        return None, None


def token_count(usage: object, name: str) -> int | None:
    """A count in the server's `usage`; None when there is none that can be true.

    >>> token_count({"prompt_tokens": 12}, "prompt_tokens"), token_count(None, "prompt_tokens")
    (12, None)
    """
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count <= MAX_TOKEN_COUNT else None


def error_words(error: object) -> str:
    """What an error of a server says, on one line of at most 400 characters.

    >>> error_words({"message": "no such\\nthing", "code": 5}), error_words({"code": 5}), error_words("")
    ('no such thing', '{"code": 5}', 'no further words')
    """
    said = error.get("message") if isinstance(error, dict) and isinstance(error.get("message"), str) else error
    return " ".join((said if isinstance(said, str) else json.dumps(said)).split())[:400] or "no further words"


def _wants_probabilities(call: JudgeCall, options: JudgeOptions) -> bool:
    return bool(call.choices) and options.probabilities is True


def _max_tokens(call: JudgeCall, options: JudgeOptions) -> int:
    """Two for probabilities: a blank may come first."""
    begun = not call.prefix or options.continues != "no"
    return 2 if _wants_probabilities(call, options) and begun else call.max_tokens


def json_object(content: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises TryFailed for any other."""
    if not content.strip():
        raise TryFailed("empty", "the server sent an empty body")
    try:
        body = json.loads(content)
    except RecursionError:
        raise TryFailed("bad_reply", "the server sent JSON that is nested too deep to be read") from None
    except ValueError:
        shown = content[:80].decode("utf-8", "replace")
        raise TryFailed("bad_reply", f"the server sent something that is no JSON: {shown!r}") from None
    if not isinstance(body, dict):
        raise TryFailed("bad_reply", f"the server sent a {type(body).__name__}, expected a JSON object")
    return body


def _why_empty(message: Mapping[str, Any], finish: FinishReason) -> str:
    if message.get("reasoning_content") or message.get("reasoning"):
        cut = " and was cut at its limit: raise max_tokens" if finish == "length" else ""
        return f"the reply is reasoning only{cut}"
    return "the reply is empty"


def _usage(body: Mapping[str, Any]) -> tuple[int | None, int | None]:
    usage = body.get("usage")
    return token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")


def _probabilities(choice: Mapping[str, Any], call: JudgeCall, options: JudgeOptions) -> dict[str, float]:
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not tokens or not all(_is_token(token) for token in tokens):
        raise JudgeRefused(
            f"the server of model '{options.model}' gave no log-probs, and judge.probabilities is true. Set it to false, or "
            "use a server that gives log-probs in chat completions (vLLM and llama.cpp do)"
        )
    _check_numbers(tokens)
    listed = _listed(tokens[_start(tokens, call.prefix) :])
    found = {choice: math.fsum(p for token, p in listed if token.strip() == choice) for choice in call.choices}
    if math.fsum(found.values()) > 1 + ROUNDING:
        raise TryFailed("bad_reply", f"the probabilities of the choices add up to more than 1: {_shown(found)}")
    unlisted = sum(p == 0 for p in found.values()) * min(p for _, p in listed)
    if unlisted > MAX_UNLISTED_SHARE * math.fsum(found.values()):
        raise TryFailed(
            "bad_reply",
            f"the choices have too little weight among the {len(listed)} likeliest tokens ({_shown(found)}): those not listed "
            f"could add {unlisted:.2g}",
            retried=False,
        )
    return found


def _is_token(token: object) -> bool:
    return isinstance(token, dict) and isinstance(token.get("token"), str) and token.get("logprob") is not None


def _check_numbers(tokens: Sequence[Mapping[str, Any]]) -> None:
    """Raises TryFailed unless every entry is a text with the logarithm of a probability."""
    for token in tokens:
        others = token.get("top_logprobs") or []
        for entry in (token, *others) if isinstance(others, list) else (others,):
            if not _is_token(entry) or not _is_logprob(entry["logprob"]):
                raise TryFailed("bad_reply", f"the server sent a log-prob that is none: {str(entry)[:200]}")


def _is_logprob(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value <= ROUNDING


def _start(tokens: Sequence[Mapping[str, Any]], prefix: str) -> int:
    """The first token after `prefix`, where the reply repeats it; 0 where the server went on after it."""
    text = "".join(token["token"] for token in tokens)
    if not prefix or not text.lstrip().startswith(prefix):
        if prefix and len(tokens) > 2:
            raise TryFailed("bad_reply", f"the reply does not begin with {prefix!r}: {text[:80]!r}", retried=False)
        return 0
    end, at = text.index(prefix) + len(prefix), 0
    for place, token in enumerate(tokens):
        if at == end:
            return place
        at += len(token["token"])
    raise TryFailed("bad_reply", f"no token begins right after {prefix!r} in the reply {text[:80]!r}", retried=False)


def _listed(tokens: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """(token, probability) of what may come next; after a blank that stands alone, of what may follow it as well."""
    first = _distribution(tokens[0])
    if tokens[0]["token"].strip() or len(tokens) < 2:
        return first
    blank = math.exp(tokens[0]["logprob"])
    return first + [(token, blank * p) for token, p in _distribution(tokens[1])]


def _distribution(token: Mapping[str, Any]) -> list[tuple[str, float]]:
    top = {entry["token"]: entry["logprob"] for entry in (token, *(token.get("top_logprobs") or []))}
    return [(text, math.exp(min(0.0, logprob))) for text, logprob in top.items()]


def _shown(found: Mapping[str, float]) -> str:
    return ", ".join(f"{choice}: {p:.2g}" for choice, p in found.items() if p > 0) or "none is listed"
