"""A judge behind an OpenAI-style HTTP endpoint: many calls under way, retries, limits, costs, and a cache.

Decisions:
1. Each judge has one event loop in a thread of its own, and one client on it. So `ask` works from any thread and inside a
   running loop, all callers share the limits, and a time limit cuts a server that sends one byte a minute.
2. A rejected key, an unknown model, a used-up quota and a server without the log-probs that the recipe counts on stop the run
   at once: calls under way are cancelled and later ones raise the same error until `close`.
3. The same question asked twice at a time is sent once, where there is a cache: the second waits for the first's reply.
4. Sampled replies get a seed made from the call, so a server that honours it answers equal questions equally.
5. The key is read from the environment when the client is made, is kept nowhere else, and is cut out of every text that leaves
   this module (replies, failures, refusals), before a reply is cached. What cannot be seen in a failure's words is escaped.
6. Whatever goes wrong with one call in a way that nobody foresaw is a failure of that call: a long run is worth more. Only a
   refusal, an interrupt and the end of the process pass.
7. One `ask` works on a few calls at a time, not on a task for each: an interrupt ends a hundred thousand calls at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import weakref
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

from toishi.judging import systemone
from toishi.judging.base import JudgeCall, JudgeFailure, JudgeRefused, JudgeReply, Usage
from toishi.judging.cache import digest_of
from toishi.judging.chat_request import (
    Answer,
    TryFailed,
    estimated_tokens,
    json_object,
    read_answer,
    rejected_field,
    request_of,
    usage_in,
)
from toishi.judging.connection import Closed, Connection
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.limits import pause_s
from toishi.judging.refusals import said_in, status_failure
from toishi.judging.server_key import printable

T = TypeVar("T")
_WORKERS_PER_SLOT = 4  # most of them wait: for a slot, a pause, the cache
_CLOSED = JudgeFailure(kind="no_connection", message="the judge was closed before the answer came")
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
        try:
            return connection.run(self._ask_all(connection, calls))
        except Closed:
            return [_CLOSED] * len(calls)

    def usage(self) -> Usage:
        """Totals since the judge was made; tokens and cost of failed tries included, where the server counted them."""
        return self._usage

    def check(self) -> None:
        """Asks one small question, past the cache. Raises JudgeRefused with what was tried, what came back and a remedy."""
        probe = replace(_PROBE, choices=_DIGITS) if self.options.probabilities else _PROBE
        connection = self._open()
        try:
            said = connection.run(self._guarded(connection, self._tries(connection, probe, "check")))
        except Closed:
            said = _CLOSED
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
        said: dict[int, JudgeReply | JudgeFailure] = {}
        left = iter(enumerate(calls))

        async def work() -> None:
            for place, call in left:
                said[place] = self._counted(await self._guarded(connection, self._ask_one(connection, call)))

        workers = min(len(calls), _WORKERS_PER_SLOT * self.options.concurrency)
        tasks = [asyncio.ensure_future(work()) for _ in range(workers)]
        try:
            await asyncio.gather(*tasks)
        except JudgeRefused as error:
            self._refused = error
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [said[place] for place in range(len(calls))]

    async def _ask_one(self, connection: Connection, call: JudgeCall) -> JudgeReply | JudgeFailure:
        asked = {"model": self.options.model, "base_url": self.options.base_url, "seed": self.options.seed}
        asked |= {"continues": self.options.continues, "probabilities": self.options.probabilities}
        digest = digest_of(call, asked)
        if connection.cache is None:
            return await self._tries(connection, call, digest)
        async with connection.lock_of(digest):
            said: JudgeReply | JudgeFailure | None = await connection.cached(digest)
            if said is None:
                said = await self._tries(connection, call, digest)
                if isinstance(said, JudgeReply):
                    await connection.keep(digest, said)
            return said

    async def _guarded(self, connection: Connection, asking: Awaitable[JudgeReply | JudgeFailure]) -> JudgeReply | JudgeFailure:
        """Its outcome without the key; a failure where an exception that nobody foresaw comes out of it."""
        try:
            said = await asking
        except JudgeRefused as error:
            raise JudgeRefused(printable(connection.cutter.cut(str(error)))) from None
        except Exception as error:
            problem = f"the call could not be handled ({type(error).__name__}: {error})"
            if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
                problem = "the question holds half a character, which cannot be sent"
            said = JudgeFailure(kind="bad_reply", message=problem)
        if isinstance(said, JudgeFailure):
            return replace(said, message=printable(connection.cutter.cut(said.message)))
        return said

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
                    text = connection.cutter.cut(answer.text)
                    return JudgeReply(text=text, finish_reason=answer.finish_reason, probabilities=answer.probabilities)
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
                if error.status_code in (400, 422) and (name := rejected_field(said_in(error), request, dropped)):
                    self._drop(name)
                    continue
                raise status_failure(error, self.options) from None
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
            content = await self._within(limit_s, connection.decide(systemone.PATH, systemone.decision_of(call, self.options)))
        except openai.APIStatusError as error:
            raise status_failure(error, self.options) from None
        answer = systemone.read_decision(json_object(content), call)
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
            if isinstance(error.__cause__, TryFailed):  # from the HTTP client, wrapped by some versions of openai
                raise error.__cause__ from None
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


def _times(tries: int) -> str:
    return "1 try" if tries == 1 else f"{tries} tries"
