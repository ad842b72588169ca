"""What is open while a server is asked: an event loop in a thread of its own, the client on it, the limits, the cache.

Decisions:
1. The client lives on the loop's thread alone; other threads hand it work and wait.
2. `stop` cancels what is under way, closes the client and ends the thread: no socket, file or thread stays. What is handed over
   afterwards raises `Closed`, as does what was under way.
3. The cache is read and written in threads of its own, so that a file that another process holds delays no other call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from toishi.errors import ConfigError, MissingExtraError
from toishi.judging.base import JudgeReply
from toishi.judging.cache import ReplyCache, open_cache
from toishi.judging.http_client import http_client
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.limits import Pace
from toishi.judging.server_key import KeyCutter, key_in

T = TypeVar("T")


class Closed(Exception):
    """The connection was closed while an answer was waited for, or before."""


@dataclass(eq=False)
class Connection:
    """An open way to a server.

    client  `openai.AsyncOpenAI`, without retries or time limits of its own: both are counted where a call is asked
    cutter  cuts the server's key out of texts
    slots   so many requests may be under way
    locks   one for each question under way, by digest, so that equal questions wait for one another
    """

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    client: Any
    cutter: KeyCutter
    slots: asyncio.Semaphore
    pace: Pace
    cache: ReplyCache | None
    locks: weakref.WeakValueDictionary[str, asyncio.Lock] = field(default_factory=weakref.WeakValueDictionary)
    _gate: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False
    _running: set[asyncio.Task[Any]] = field(default_factory=set)

    @classmethod
    def open(cls, options: JudgeOptions) -> Connection:
        """Sends nothing yet. Raises MissingExtraError without the package, ConfigError for a key or address of no use."""
        try:
            import openai
        except ImportError:
            raise MissingExtraError("openai", extra="judge", purpose="a judge behind an endpoint") from None
        key = key_in(options.key_env) if options.key_env else None
        for name in ("base_url", "model"):
            if key is not None and key in str(getattr(options, name)):
                raise ConfigError(f"judge.{name}: it holds the server's key, which would be written into the record; remove it")
        try:  # the key is in the HTTP client alone, which sets all headers
            client = openai.AsyncOpenAI(
                api_key="none", base_url=options.base_url, http_client=http_client(key), max_retries=0, timeout=None
            )
        except Exception as error:
            raise ConfigError(f"judge.base_url: {options.base_url!r} is no address: {error}") from None
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True, name="toishi-judge")
        thread.start()
        return cls(
            loop=loop,
            thread=thread,
            client=client,
            cutter=KeyCutter(key),
            slots=asyncio.Semaphore(options.concurrency),
            pace=Pace(requests=options.requests_per_minute, tokens=options.tokens_per_minute),
            cache=open_cache(options.cache),
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, computed on the loop; cancelled when the waiting thread is interrupted. Raises Closed."""
        with self._gate:
            if self._is_closed:
                coroutine.close()
                raise Closed
            future = asyncio.run_coroutine_threadsafe(self._tracked(coroutine), self.loop)
        return _result(future)

    async def _tracked(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await coroutine
        finally:
            self._running.discard(task)

    async def send(self, request: dict[str, Any]) -> bytes:
        """The body of the server's answer. Raises what the client raises for a failure."""
        response = await self.client.chat.completions.with_raw_response.create(**request)
        return bytes(response.content)

    async def decide(self, path: str, body: dict[str, Any]) -> bytes:
        """The body of the server's answer to a body sent to `path`. Raises what the client raises for a failure."""
        return bytes(await self.client.post(path, cast_to=bytes, body=body))

    async def cached(self, digest: str) -> JudgeReply | None:
        """The kept reply of a question, if there is one."""
        return None if self.cache is None else await asyncio.to_thread(self.cache.get, digest)

    async def keep(self, digest: str, reply: JudgeReply) -> None:
        """Keeps a reply."""
        if self.cache is not None:
            await asyncio.to_thread(self.cache.put, digest, reply)

    def lock_of(self, digest: str) -> asyncio.Lock:
        """The lock of a question; it is forgotten when nobody holds it any more."""
        lock = self.locks.get(digest)
        if lock is None:
            self.locks[digest] = lock = asyncio.Lock()
        return lock

    def stop(self) -> None:
        """Cancels, closes and ends everything; a second call does nothing."""
        with self._gate:
            if self._is_closed:
                return
            self._is_closed = True
            future = asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        _result(future)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        if self.cache is not None:
            self.cache.close()

    async def _end(self) -> None:
        tasks = list(self._running)  # not the tasks that these began: they end them in their own order
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()


def _result(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise Closed from None
    except BaseException:
        future.cancel()
        raise
