"""What a failure status of the server means for a call, and for the run.

Decisions:
1. A rejected key, an unknown model and a used-up quota stop the run: no repeat can help.
2. A redirect is not followed: it may lead the questions, and the key, to another server, and most redirects would turn a
   question into a plain look at a page. The address it names is shown, so that it can be put into the recipe.
"""

from __future__ import annotations

from typing import Any

from toishi.judging.base import JudgeRefused
from toishi.judging.chat_request import TryFailed, error_words, names_unknown_model
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.limits import retry_after_s


def said_in(error: Any) -> str:
    """What the server said of a failure (an `openai.APIStatusError`), on one line."""
    return error_words(error.body if isinstance(error.body, dict) else error.response.text)


def status_failure(error: Any, options: JudgeOptions) -> JudgeRefused | TryFailed:
    """What an `openai.APIStatusError` means: JudgeRefused where no repeat can help, else the failed try."""
    status, said, place = int(error.status_code), said_in(error), options.base_url
    if status in (401, 403):
        return JudgeRefused(f"key rejected by {place} ({status}): {said}. {_key_remedy(options)}")
    if status == 402 or error.code == "insufficient_quota":
        return JudgeRefused(f"the quota at {place} is used up ({status}): {said}")
    if status == 404 or (status in (400, 422) and (error.code == "model_not_found" or names_unknown_model(said))):
        return JudgeRefused(
            f"{place} has no model '{options.model}', or is no OpenAI-style address ({status}): {said}"
            ". Mend judge.model (the server lists its models at /models) or judge.base_url (it mostly ends in /v1)"
        )
    if 300 <= status < 400:
        where = str(error.response.headers.get("location", "no address"))[:200]
        return TryFailed(
            "refused",
            f"the server sends questions on to {where!r} ({status}), and redirects are not followed; name the right address as "
            "judge.base_url",
            retried=False,
        )
    after = retry_after_s(error.response.headers.get("retry-after"))
    if status == 429:
        return TryFailed("rate_limited", f"too many requests (429): {said}", retry_after_s=after)
    if status in (408, 409, 425) or status >= 500:
        return TryFailed("server_error", f"the server failed ({status}): {said}", retry_after_s=after)
    return TryFailed("refused", f"the server refuses this question ({status}): {said}", retried=False)


def _key_remedy(options: JudgeOptions) -> str:
    if options.key_env is None:
        return "Name the environment variable that holds the key as judge.key_env"
    return f"Put a valid key into the environment variable {options.key_env}"
