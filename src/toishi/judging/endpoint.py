"""A judge behind an OpenAI-style HTTP endpoint: many calls under way, retries, limits, costs, and a cache.

Decisions:
1. Each judge has one event loop in a thread of its own, and one client on it. So `ask` works from any thread and inside a
   running loop, all callers share the limits, and a time limit cuts a server that sends one byte a minute.
2. A rejected key, an unknown model, a used-up quota and a server without the log-probs that the recipe counts on stop the run
   at once: calls under way are cancelled and later ones raise the same error until `close`.
3. The same question asked twice at a time is sent once, where there is a cache: the second waits for the first's reply.
4. Sampled replies get a seed made from the call, so a server that honours it answers equal questions equally.
5. The key is read from the environment when the client is made, is kept nowhere else, and is cut out of every message.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import weakref
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toishi.judging import systemone
from toishi.judging.base import JudgeCall, JudgeFailure, JudgeRefused, JudgeReply, Usage
from toishi.judging.cache import digest_of
from toishi.judging.chat_request import (
    Answer,
    TryFailed,
    estimated_tokens,
    names_unknown_model,
    read_answer,
    rejected_field,
    request_of,
    usage_in,
)
from toishi.judging.connection import Connection
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.limits import pause_s, retry_after_s

T = TypeVar("T")
_PROBE = JudgeCall(messages=({"role": "user", "content": "Name one digit from 1 to 9."},), max_tokens=8)
_DIGITS = tuple("123456789")
_REMEDIES = {
    "no_connection": "Start the server, or mend judge.base_url",
    "timed_out": "Is the server overloaded? Raise judge.timeout_s or lower judge.concurrency",
    "rate_limited": "Lower judge.concurrency, or set judge.requests_per_minute and judge.tokens_per_minute",
    "server_error": "Look into the server's log",
}


class EndpointJudge:
    """Asks an OpenAI-style server: vLLM, llama.cpp, Ollama, `transformers serve`, hosted ones.

    Needs the extra `judge`. Nothing is contacted before the first `check` or `ask`.
    """

    def __init__(self, options: JudgeOptions) -> None:
        assert options.base_url is not None
        self.options = options
        self._usage = Usage(cost=None if options.prices is None else 0.0)
        self._dropped: set[str] = set()
        self._notes: list[str] = []
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._refused: JudgeRefused | None = None

    @property
    def name(self) -> str:
        return f"{self.options.model} at {self.options.base_url}"

    @property
    def gives_probabilities(self) -> bool:
        return self.options.probabilities is not False

    def ask(self, calls: Sequence[JudgeCall]) -> list[JudgeReply | JudgeFailure]:
        """One reply or failure for each call, in order. Raises JudgeRefused when no repeat can help."""
        if self._refused is not None:
            raise self._refused
        connection = self._open()
        return connection.run(self._ask_all(connection, calls))

    def usage(self) -> Usage:
        """Totals since the judge was made; tokens and cost of failed tries included, where the server counted them."""
        return self._usage

    def check(self) -> None:
        """Asks one small question, past the cache. Raises JudgeRefused with what was tried, what came back and a remedy."""
        probe = replace(_PROBE, choices=_DIGITS) if self.options.probabilities else _PROBE
        connection = self._open()
        said = connection.run(self._tries(connection, probe, "check"))
        if isinstance(said, JudgeFailure) and said.kind not in ("empty", "bad_reply" if probe.choices else "empty"):
            remedy = _REMEDIES.get(said.kind, "Mend judge.base_url or judge.model")
            raise JudgeRefused(f"the judge {self.name} does not answer: {said.message}. {remedy}")

    def notes(self) -> list[str]:
        """What the server did not understand, and whether the cache works."""
        problem = self._connection.cache.problem if self._connection is not None and self._connection.cache is not None else ""
        return [*self._notes, *([problem] if problem else [])]

    def close(self) -> None:
        """Ends the connections and lets go of the cache; the next `ask` opens them again."""
        with self._lock:
            connection, self._connection, self._refused = self._connection, None, None
        if connection is not None:
            connection.stop()

    def _open(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = Connection.open(self.options)
                weakref.finalize(self, self._connection.stop)
            return self._connection

    async def _ask_all(self, connection: Connection, calls: Sequence[JudgeCall]) -> list[JudgeReply | JudgeFailure]:
        tasks = [asyncio.ensure_future(self._ask_one(connection, call)) for call in calls]
        try:
            return list(await asyncio.gather(*tasks))
        except JudgeRefused as error:
            self._refused = error
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_one(self, connection: Connection, call: JudgeCall) -> JudgeReply | JudgeFailure:
        asked = {"model": self.options.model, "base_url": self.options.base_url, "seed": self.options.seed}
        asked |= {"continues": self.options.continues, "probabilities": self.options.probabilities}
        digest = digest_of(call, asked)
        if connection.cache is None:
            return self._counted(await self._tries(connection, call, digest))
        async with connection.lock_of(digest):
            found = connection.cache.get(digest)
            if found is None:
                said = await self._tries(connection, call, digest)
                if isinstance(said, JudgeReply):
                    connection.cache.put(digest, said)
                return self._counted(said)
        return self._counted(found)

    def _counted(self, said: JudgeReply | JudgeFailure) -> JudgeReply | JudgeFailure:
        cached = isinstance(said, JudgeReply) and said.cached
        self._usage = replace(self._usage, calls=self._usage.calls + 1, cached=self._usage.cached + cached)
        return said

    async def _tries(self, connection: Connection, call: JudgeCall, key: str) -> JudgeReply | JudgeFailure:
        spent_s = 0.0
        for failed in range(1, self.options.retries + 2):
            async with connection.slots:
                slot = connection.pace.reserve(estimated_tokens(call))
                await asyncio.sleep(connection.pace.wait_s(slot))
                begun = time.monotonic()
                try:
                    answer = await self._try(connection, call, key, self.options.total_timeout_s - spent_s)
                except TryFailed as error:
                    failure = error
                else:
                    slot.tokens = min(slot.tokens, (answer.prompt_tokens or 0) + (answer.completion_tokens or 0)) or slot.tokens
                    return JudgeReply(text=answer.text, finish_reason=answer.finish_reason, probabilities=answer.probabilities)
            spent_s += time.monotonic() - begun
            pause = pause_s(failed, key=key, retry_after_s=failure.retry_after_s)
            if not failure.retried or failed > self.options.retries:
                break
            if spent_s + pause >= self.options.total_timeout_s:
                waits = f"the next try is due in {pause:.0f} s, past judge.total_timeout_s={self.options.total_timeout_s:g}"
                return JudgeFailure(kind=failure.kind, message=f"{failure}; {waits} ({_times(failed)})")
            if failure.retry_after_s is not None:
                connection.pace.hold(failure.retry_after_s)
            await asyncio.sleep(pause)
            spent_s += pause
        return JudgeFailure(kind=failure.kind, message=f"{failure} ({_times(failed)})")

    async def _try(self, connection: Connection, call: JudgeCall, key: str, left_s: float) -> Answer:
        """One request and its answer; more than one request only where the server rejects a field by name."""
        import openai

        limit_s = max(0.001, min(self.options.timeout_s, left_s))
        if call.choices and self.options.probabilities == "systemone":
            return await self._decide(connection, call, limit_s)
        seed = int.from_bytes(hashlib.sha256(f"{self.options.seed} {key}".encode()).digest()[:4], "big") % 2**31
        while True:
            dropped = frozenset(self._dropped)  # others may add to it while this request is under way
            request = request_of(call, self.options, seed=seed, dropped=dropped)
            try:
                content = await self._within(limit_s, connection.send(request))
            except openai.APIStatusError as error:
                if error.status_code in (400, 422) and (name := rejected_field(_said(error), request, dropped)):
                    self._drop(name)
                    continue
                raise self._status_failure(error, connection) from None
            break
        prompt, completion = usage_in(content)
        self._spend(prompt or 0, completion or 0)
        return read_answer(content, call, self.options)

    def _drop(self, name: str) -> None:
        if name not in self._dropped:
            self._dropped.add(name)
            self._notes.append(f"the judge {self.name} rejects the field {name}; it is asked without")

    async def _decide(self, connection: Connection, call: JudgeCall, limit_s: float) -> Answer:
        """The same by a typed decision."""
        import openai

        try:
            body = await self._within(limit_s, connection.decide(systemone.PATH, systemone.decision_of(call, self.options)))
        except openai.APIStatusError as error:
            raise self._status_failure(error, connection) from None
        except ValueError as error:
            raise TryFailed("bad_reply", f"the server sent something that is no JSON ({error})") from None
        answer = systemone.read_decision(body, call)
        self._spend(answer.prompt_tokens or 0, answer.completion_tokens or 0)
        return answer

    async def _within(self, limit_s: float, answer: Awaitable[T]) -> T:
        """The server's answer, if it is whole within the limit. Raises TryFailed, and openai.APIStatusError for a status."""
        import openai

        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except (TimeoutError, openai.APITimeoutError):
            raise TryFailed("timed_out", f"no whole answer within {limit_s:g} s") from None
        except openai.APIConnectionError as error:
            raise TryFailed("no_connection", self._connection_words(error)) from None

    def _spend(self, prompt: int, completion: int) -> None:
        usage, prices = self._usage, self.options.prices
        cost = None if prices is None else (usage.cost or 0.0) + (prompt * prices[0] + completion * prices[1]) / 1e6
        self._usage = replace(
            usage,
            prompt_tokens=usage.prompt_tokens + prompt,
            completion_tokens=usage.completion_tokens + completion,
            cost=cost,
        )

    def _connection_words(self, error: Exception) -> str:
        cause = error.__cause__
        if type(cause).__name__ in ("RemoteProtocolError", "ReadError"):
            return f"the connection to {self.options.base_url} broke off before the answer was whole ({cause})"
        return f"no connection to {self.options.base_url} ({cause or error})"

    def _key_remedy(self) -> str:
        if self.options.key_env is None:
            return "Name the environment variable that holds the key as judge.key_env"
        return f"Put a valid key into the environment variable {self.options.key_env}"

    def _status_failure(self, error: Any, connection: Connection) -> Exception:
        """What a status means: JudgeRefused where no repeat can help, else the failed try."""
        status, said = int(error.status_code), connection.without_key(_said(error))
        if status in (401, 403):
            return JudgeRefused(f"key rejected by {self.options.base_url} ({status}): {said}. {self._key_remedy()}")
        if status == 402 or error.code == "insufficient_quota":
            return JudgeRefused(f"the quota at {self.options.base_url} is used up ({status}): {said}")
        if status == 404 or (status in (400, 422) and (error.code == "model_not_found" or names_unknown_model(said))):
            return JudgeRefused(
                f"{self.options.base_url} has no model '{self.options.model}', or is no OpenAI-style address ({status}): {said}"
                ". Mend judge.model (the server lists its models at /models) or judge.base_url (it mostly ends in /v1)"
            )
        if status == 429:
            after = retry_after_s(error.response.headers.get("retry-after"))
            return TryFailed("rate_limited", f"too many requests (429): {said}", retry_after_s=after)
        if status in (408, 409, 425) or status >= 500:
            after = retry_after_s(error.response.headers.get("retry-after"))
            return TryFailed("server_error", f"the server failed ({status}): {said}", retry_after_s=after)
        return TryFailed("refused", f"the server refuses this question ({status}): {said}", retried=False)


def _times(tries: int) -> str:
    return "1 try" if tries == 1 else f"{tries} tries"


def _said(error: Any) -> str:
    """What the server said of a failure, on one line."""
    message = error.body.get("message") if isinstance(error.body, dict) else None
    text = message if isinstance(message, str) else error.response.text
    return " ".join(text.split())[:400] or "no further words"
