"""Servers on loopback that keep what is sent to them: an OTLP collector, and as much of Weave's server as its client asks."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    """(path, body) of every POST, and where to post."""

    url: str = ""
    posts: list[tuple[str, bytes]] = field(default_factory=list)

    def bodies(self, path_has: str) -> list[Any]:
        """The JSON bodies posted to a path."""
        return [json.loads(body) for path, body in self.posts if path_has in path]

    def otlp_spans(self) -> list[tuple[dict[str, Any], Any]]:
        """(the resource's attributes, span) out of the protobuf bodies."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = []
        for path, body in self.posts:
            assert path == "/v1/traces"
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = plain(of_resource.resource.attributes)
                found += [(resource, span) for scope in of_resource.scope_spans for span in scope.spans]
        return found


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes of a protobuf message as Python values."""
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def listening(*, status: int = 200) -> Iterator[Received]:
    """A server that answers every request with `status`."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"min_required_weave_python_version": "0.0.1", "trace_server_version": "99.0.0"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            received.posts.append(
                (self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            )
            model = {"name": "toishi", "entityName": "me"}
            self._reply(
                {"digest": "d" * 40, "res": [], "data": {"viewer": {"username": "me"}, "upsertModel": {"model": model}}}
                if self.path != "/v1/traces"
                else {}
            )

        def _reply(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
