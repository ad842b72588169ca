"""The far end of the pool: reads calls from a socket, answers them, and ends when the socket closes.

Decisions:
1. Frames are a length (4 bytes, big-endian) and JSON. Nothing is unpickled on either side.
2. Limits are set anew for each call, as soft limits, so that one process can serve calls with different limits. They are
   lifted before modules are imported: an import is not charged to the call before it.
3. An alarm of the system ends a call or an import whose parent was killed: it needs no Python code to run, so an integer power
   that never gives the interpreter back cannot hold it off.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import socket
import sys
from importlib import import_module
from typing import Any

ORPHAN_GRACE_S = 1.0
MAX_FRAME_BYTES = 2**32 - 1


def frame_of(message: Any) -> bytes:
    """One JSON value as it is sent. Raises TypeError, ValueError or RecursionError for what JSON cannot hold.

    >>> frame_of([1])
    b'\\x00\\x00\\x00\\x03[1]'
    """
    body = json.dumps(message, allow_nan=True).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body):,} bytes is too long to send")
    return len(body).to_bytes(4, "big") + body


def receive_bytes(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes. Raises EOFError when the other side has closed before."""
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def main(descriptor: int) -> None:
    """Serves calls until the parent closes its end."""
    connection = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        try:
            body = receive_bytes(connection, int.from_bytes(receive_bytes(connection, 4), "big"))
        except (EOFError, OSError):
            return
        connection.sendall(_answer(body))


def _answer(body: bytes) -> bytes:
    """The frame that answers a message."""
    try:
        message = json.loads(body)
        return frame_of(_prepared(message) if "prepare" in message else _called(message))
    except MemoryError:
        return frame_of({"memory": True})
    except (Exception, SystemExit) as error:
        return frame_of({"raised": _words(error)})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _prepared(message: dict[str, Any]) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_REAL, message["wall_s"] + ORPHAN_GRACE_S)
    for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))
    sys.path[:] = message["places"]
    for name in message["prepare"]:
        import_module(name)
    return {"answer": None}


def _called(message: dict[str, Any]) -> dict[str, Any]:
    module, _, name = message["function"].partition(":")
    signal.setitimer(signal.ITIMER_REAL, message["wall_s"] + ORPHAN_GRACE_S)
    function = getattr(import_module(module), name)
    _limit(message["cpu_s"], message["memory_mb"])
    return {"answer": function(message["argument"])}


def _limit(cpu_s: float, memory_mb: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = math.ceil(used.ru_utime + used.ru_stime + cpu_s)
    _soften(resource.RLIMIT_CPU, cpu)
    _soften(resource.RLIMIT_AS, memory_mb << 20)


def _soften(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:2000]
    except Exception:  # an exception whose own text raises
        return type(error).__name__
