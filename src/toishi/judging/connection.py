"""What is open while a server is asked: an event loop in a thread of its own, the client on it, the limits, the cache.

Decisions:
1. The client lives on the loop's thread alone; other threads hand it work and wait.
2. `stop` cancels what is under way, closes the client and ends the thread: no socket, file or thread stays.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from toishi.errors import ConfigError, MissingExtraError
from toishi.judging.cache import ReplyCache, open_cache
from toishi.judging.judge_options import JudgeOptions
from toishi.judging.limits import Pace

T = TypeVar("T")


@dataclass(eq=False)
class Connection:
    """An open way to a server.

    client  `openai.AsyncOpenAI`, without retries or time limits of its own: both are counted where a call is asked
    slots   so many requests may be under way
    locks   one for each question under way, by digest, so that equal questions wait for one another
    """

    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    client: Any
    key: str
    slots: asyncio.Semaphore
    pace: Pace
    cache: ReplyCache | None
    locks: weakref.WeakValueDictionary[str, asyncio.Lock] = field(default_factory=weakref.WeakValueDictionary)

    @classmethod
    def open(cls, options: JudgeOptions) -> Connection:
        """Sends nothing yet. Raises MissingExtraError without the package, ConfigError without the key's variable."""
        try:
            import openai
        except ImportError:
            raise MissingExtraError("openai", extra="judge", purpose="a judge behind an endpoint") from None
        key = os.environ.get(options.key_env, "") if options.key_env else "none"
        if not key:
            raise ConfigError(
                f"judge.key_env: the environment variable {options.key_env} is not set; put the server's key there"
            )
        client = openai.AsyncOpenAI(api_key=key, base_url=options.base_url, max_retries=0, timeout=None)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True, name="toishi-judge")
        thread.start()
        return cls(
            loop=loop,
            thread=thread,
            client=client,
            key=key,
            slots=asyncio.Semaphore(options.concurrency),
            pace=Pace(requests=options.requests_per_minute, tokens=options.tokens_per_minute),
            cache=open_cache(options.cache),
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, computed on the loop; cancelled when the waiting thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def send(self, request: dict[str, Any]) -> bytes:
        """The body of the server's answer. Raises what the client raises for a failure."""
        response = await self.client.chat.completions.with_raw_response.create(**request)
        return bytes(response.content)

    async def decide(self, path: str, body: dict[str, Any]) -> object:
        """The JSON that the server answers to a body sent to `path`. Raises what the client raises, ValueError for no JSON."""
        return await self.client.post(path, cast_to=object, body=body)

    def lock_of(self, digest: str) -> asyncio.Lock:
        """The lock of a question; it is forgotten when nobody holds it any more."""
        lock = self.locks.get(digest)
        if lock is None:
            self.locks[digest] = lock = asyncio.Lock()
        return lock

    def without_key(self, text: str) -> str:
        """The text with the server's key cut out."""
        return text.replace(self.key, "***") if len(self.key) > 4 else text

    def stop(self) -> None:
        """Cancels, closes and ends everything; a second call does nothing."""
        if self.loop.is_closed():
            return
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        if self.cache is not None:
            self.cache.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()
