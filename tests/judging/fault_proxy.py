"""A proxy on loopback that passes requests on to a real server, except where a plan says what goes wrong instead.

Decisions:
1. A plan is a function of the request's content and of how often that content has come before, so it does not depend on the
   order in which concurrent requests arrive.
2. Faults of the answer (slow, cut, empty, wrong count) are made from the server's real answer, which has been computed.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args
from urllib.parse import urlsplit

from tests.judging.stub_server import Asked, Said, StubServer, error, serving

Fault = Literal["429", "500", "401", "slow", "cut", "empty", "wrong_count"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
Plan = Callable[[Asked, int], Fault | None]
"""From a request, and how many equal ones came before it, to what goes wrong (None = nothing)."""

SLOW_S = 1.5


def seeded_plan(seed: int, faults: tuple[Fault, ...], *, share: float = 0.5, lasting: int = 2) -> Plan:
    """A `share` of all questions meets one of `faults`, drawn by (seed, content), in its first one to `lasting` tries."""

    def plan(asked: Asked, before: int) -> Fault | None:
        digest = hashlib.sha256(str(seed).encode() + asked.raw).digest()
        if digest[0] / 256 >= share or before >= 1 + digest[1] % lasting:
            return None
        return faults[(digest[2] + before) % len(faults)]

    return plan


@contextmanager
def faulty(upstream: str, plan: Plan) -> Iterator[StubServer]:
    """A proxy before the server at `upstream` (an address up to /v1)."""
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    def answer(asked: Asked) -> Said:
        with lock:
            before = seen[asked.raw]
            seen[asked.raw] += 1
        return _answer(upstream, asked, plan(asked, before))

    with serving(answer) as proxy:
        yield proxy


def _answer(upstream: str, asked: Asked, fault: Fault | None) -> Said:
    if fault == "429":
        return error(429, "too many requests", retry_after="0.1")
    if fault == "500":
        return error(500, "internal error")
    if fault == "401":
        return error(401, "invalid key")
    said = _passed_on(upstream, asked)
    if fault == "slow":
        return Said(status=said.status, body=said.body, delay_s=SLOW_S)
    if fault == "cut":
        return Said(status=said.status, body=said.body, sent=len(said.body) // 2)
    if fault == "empty":
        return Said(status=said.status)
    if fault == "wrong_count":
        body = json.loads(said.body)
        return Said(status=said.status, body=json.dumps(body | {"choices": body["choices"] * 2}).encode())
    return said


def _passed_on(upstream: str, asked: Asked) -> Said:
    parts = urlsplit(upstream)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)
    try:
        headers = {"content-type": "application/json", "authorization": asked.headers.get("authorization", "")}
        connection.request("POST" if asked.raw else "GET", asked.path, body=asked.raw or None, headers=headers)
        response = connection.getresponse()
        return Said(status=response.status, body=response.read())
    finally:
        connection.close()
