"""Tracers of inferences at work, each in a thread of its own.

Decisions:
1. Sampling hands over plain values and goes on: a tracer that is slow, hangs or raises costs it nothing.
2. What a tracer raises is said once, and that tracer is off. At the end tracers have a few seconds to send what is left.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from toishi.spans.told import SpanTracer, Told

FINISH_S = 20.0
"""So long is waited for tracers at the end."""


class Telling:
    """Tracers that are told of answers; a context.

    name, facts  what is going on, such as "compare", with what matters about it
    say          called in the caller's thread with what went wrong, once for each tracer
    """

    def __init__(
        self,
        tracers: Mapping[str, Callable[[], SpanTracer]],
        name: str,
        facts: Mapping[str, str],
        say: Callable[[str], None],
        *,
        finish_s: float = FINISH_S,
    ) -> None:
        self._say, self._finish_s = say, finish_s
        self._listeners = [_Listener(tracer, make, name, facts) for tracer, make in tracers.items()]

    def __enter__(self) -> Telling:
        for listener in self._listeners:
            listener.thread.start()
        return self

    def tell(self, told: Told) -> None:
        """Hands the answer to every tracer, and returns at once."""
        for listener in self._listeners:
            listener.waiting.put(told)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> Literal[False]:
        for listener in self._listeners:
            listener.waiting.put(_End(None if error is None else f"{type(error).__name__}: {error}"))
        for listener in self._listeners:
            listener.thread.join(self._finish_s)
            if listener.thread.is_alive():
                self._say(
                    f"tracer '{listener.name}' did not finish within {self._finish_s:g} s; the answers are there, but not all "
                    "of them may have arrived where they are traced"
                )
            elif listener.fault is not None:
                self._say(f"tracer '{listener.name}' failed: {listener.fault}. The answers are not affected")
        return False


class _End:
    def __init__(self, error: str | None) -> None:
        self.error = error


class _Listener:
    """One tracer and its thread."""

    def __init__(self, name: str, make: Callable[[], SpanTracer], doing: str, facts: Mapping[str, str]) -> None:
        self.name = name
        self.waiting: queue.SimpleQueue[Told | _End] = queue.SimpleQueue()
        self.fault: str | None = None
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"toishi-spans-{name}")
        self._make, self._doing, self._facts = make, doing, facts

    def _run(self) -> None:
        try:
            tracer = self._make()
            tracer.start(self._doing, self._facts)
            while not isinstance(told := self.waiting.get(), _End):
                tracer.send(told)
            tracer.close(told.error)
        except BaseException as error:
            words = str(error).strip().splitlines()
            self.fault = f"{type(error).__name__}: {words[0] if words else ''}"
