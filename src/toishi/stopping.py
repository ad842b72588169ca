"""Ctrl-C and SIGTERM end a run after the current step, with a checkpoint. A second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any


class Stopper:
    """Inside the context, the first signal only sets `requested` and says so. Outside the main thread it does nothing."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopper:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("finishing this step, then saving; once more ends at once and loses the step", file=sys.stderr, flush=True)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
