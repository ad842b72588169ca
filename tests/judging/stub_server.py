"""A server on loopback that says what a test wants: its own thread, real sockets, every request kept.

Decisions:
1. An answer is bytes with a status, so bodies that are cut, empty or no JSON need no special path.
2. `stop` joins the thread and closes the socket: a test can compare threads and open files before and after.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it arrived: `number` counts from 0, `at_s` is a monotonic time."""

    number: int
    path: str
    headers: Mapping[str, str]
    raw: bytes
    at_s: float

    @property
    def body(self) -> dict[str, Any]:
        found = json.loads(self.raw or b"{}")
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True, kw_only=True)
class Said:
    """An answer. `sent` = how many of the promised bytes are sent before the connection is closed; None = all."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    sent: int | None = None


def chat(text: str | None, *, finish: str = "stop", tokens: tuple[int, int] = (10, 5), **choice: Any) -> Said:
    """A well-formed chat completion that says `text`."""
    one = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}} | choice
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return Said(
        body=json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [one], "usage": usage}).encode()
    )


def error(status: int, message: str, *, code: str | None = None, **headers: str) -> Said:
    """An error in the form that OpenAI-style servers use; headers as `retry_after="1"`."""
    body = json.dumps({"error": {"message": message, "code": code, "type": "x", "param": None}}).encode()
    return Said(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


@dataclass
class StubServer:
    """A running server: its address, and what it was asked so far."""

    url: str
    asked: list[Asked]
    most_at_once: int = 0
    _now: int = 0


@contextmanager
def serving(answer: Callable[[Asked], Said]) -> Iterator[StubServer]:
    """A server that answers by `answer`, on a free port until the block ends."""
    lock = threading.Lock()
    connections: set[socket.socket] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            with lock:
                asked = Asked(
                    number=len(stub.asked), path=self.path, headers=dict(self.headers), raw=raw, at_s=time.monotonic()
                )
                stub.asked.append(asked)
                stub._now += 1
                stub.most_at_once = max(stub.most_at_once, stub._now)
            try:
                said = answer(asked)
                time.sleep(said.delay_s)
            finally:
                with lock:
                    stub._now -= 1
            self._send(said)

        def _send(self, said: Said) -> None:
            try:
                self.send_response(said.status)
                for name, value in {"content-type": "application/json", **said.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(said.body)))
                self.end_headers()
                for at in range(len(said.body) if said.drip_s else 0):
                    self.wfile.write(said.body[at : at + 1])
                    time.sleep(said.drip_s)
                self.wfile.write(b"" if said.drip_s else said.body[: said.sent])
            except OSError:  # the client has given up waiting
                self.close_connection = True
            if said.sent is not None:
                self.close_connection = True

        do_GET = do_POST = _handle

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the screen."""

    class Server(ThreadingHTTPServer):
        daemon_threads = False

        def finish_request(self, request: Any, client_address: Any) -> None:
            with lock:
                connections.add(request)
            try:
                super().finish_request(request, client_address)
            finally:
                with lock:
                    connections.discard(request)

    with Server(("127.0.0.1", 0), Handler) as server:
        stub = StubServer(url=f"http://127.0.0.1:{server.server_address[1]}/v1", asked=[])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="stub-server")
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
            with lock:
                for connection in connections:  # kept alive by a client: its thread would wait for ever
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RD)
