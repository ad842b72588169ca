"""When the next request may be sent: rates, and pauses after a failure.

Decisions:
1. A rate is kept in every window of 60 seconds, not on average: that is how servers count.
2. A request reserves its starting time when it arrives, so nobody is overtaken and nothing polls.
3. Pauses grow by doubling, with a jitter that is a function of the call and the try: equal runs pause equally, and calls that
   failed together do not return together. What the server asks for (Retry-After) is the least that is waited.
"""

from __future__ import annotations

import email.utils
import hashlib
import math
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC

WINDOW_S = 60.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 86_400.0
_SECONDS = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?")


@dataclass
class Slot:
    """A reserved start: when (seconds of the pace's clock), and how many tokens are counted for it."""

    start_s: float
    tokens: int


class Pace:
    """At most so many requests and tokens in any 60 seconds. Not thread-safe: it belongs to one event loop.

    >>> now = [0.0]
    >>> pace = Pace(requests=2, clock=lambda: now[0])
    >>> [pace.reserve(tokens=10).start_s for _ in range(3)]
    [0.0, 0.0, 60.0]
    """

    def __init__(
        self, *, requests: int | None = None, tokens: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._requests = requests
        self._tokens = tokens
        self._clock = clock
        self._slots: deque[Slot] = deque()
        self._not_before_s = -math.inf

    def reserve(self, tokens: int) -> Slot:
        """The earliest start that keeps both limits. More tokens than a whole minute's are counted as a whole minute's."""
        counted = tokens if self._tokens is None else min(tokens, self._tokens)
        now = self._clock()
        while self._slots and self._slots[0].start_s <= now - WINDOW_S:
            self._slots.popleft()
        start = max(now, self._not_before_s, self._slots[-1].start_s if self._slots else now)
        for ended in [slot.start_s + WINDOW_S for slot in self._slots]:
            if self._fits(start, counted):
                break
            start = max(start, ended)
        slot = Slot(start, counted)
        self._slots.append(slot)
        return slot

    def wait_s(self, slot: Slot) -> float:
        """Seconds until the slot's start."""
        return max(0.0, slot.start_s - self._clock())

    def hold(self, seconds: float) -> None:
        """No new start for so many seconds: the server asked for a pause."""
        self._not_before_s = max(self._not_before_s, self._clock() + seconds)

    def _fits(self, start: float, tokens: int) -> bool:
        inside = [slot.tokens for slot in self._slots if slot.start_s > start - WINDOW_S]
        few = self._requests is None or len(inside) < self._requests
        return few and (self._tokens is None or sum(inside) + tokens <= self._tokens)


def pause_s(failed: int, *, key: str, retry_after_s: float | None = None) -> float:
    """Seconds to wait after the `failed`-th failed try (1, 2, ...) of the call called `key`.

        between half and all of  0.5 * 2^(failed - 1), at most 30 seconds; never less than `retry_after_s`

    >>> 0.25 <= pause_s(1, key="a") < 0.5 <= pause_s(2, key="a") < 1.0
    True
    >>> pause_s(1, key="a", retry_after_s=7.0) >= 7.0
    True
    """
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (failed - 1))
    draw = int.from_bytes(hashlib.sha256(f"{key} {failed}".encode()).digest()[:6], "big") / 2**48
    pause = longest * (0.5 + 0.5 * draw)
    return pause if retry_after_s is None else max(pause, retry_after_s)


def retry_after_s(header: str | None, *, now_s: float | None = None) -> float | None:
    """What a Retry-After header asks for: seconds, or a date (compared with `now_s`, Unix time); None when it says nothing.

    More than `LONGEST_RETRY_AFTER_S` counts as that: no call waits as long.

    >>> retry_after_s("2.5"), retry_after_s("soon"), retry_after_s("Thu, 01 Jan 1970 00:01:40 GMT", now_s=90.0)
    (2.5, None, 10.0)
    """
    said = (header or "").strip()
    if _SECONDS.fullmatch(said):
        return min(float(said), LONGEST_RETRY_AFTER_S)
    if not said.isascii():
        return None
    try:
        date = email.utils.parsedate_to_datetime(said)
        seconds = date.replace(tzinfo=date.tzinfo or UTC).timestamp() - (time.time() if now_s is None else now_s)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S)
