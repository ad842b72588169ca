"""`otel`: a span for every answer, sent by OTLP over HTTP to the collector that the usual variables name.

Decisions:
1. Names of spans and attributes are those of OpenTelemetry's conventions for generative models ("chat MODEL", gen_ai.*).
2. OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and the rest are read by the SDK itself; texts are sent only where
   OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT asks for them.
3. Answers sit below one span for the whole command. Nothing global is set: a program's own provider stays as it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from toishi.spans.told import Told

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
QUEUE = 1 << 17
FLUSH_MS = 15_000


class OtelTracer:
    """Spans of answers.

    exporter  takes finished spans; None: OTLP over HTTP, by the environment
    """

    def __init__(self, exporter: Any = None) -> None:
        self._exporter = exporter
        self._provider: Any = None
        self._tracer: Any = None
        self._counted: Any = None
        self._whole: Any = None
        self._context: Any = None
        self._with_content = os.environ.get(CAPTURE, "").lower() in ("true", "1", "span_only", "span_and_event")

    def start(self, name: str, facts: Mapping[str, str]) -> None:
        """Opens the span that holds all answers. Raises what the SDK raises for variables that it cannot use."""
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from toishi import __version__

        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # what went wrong is said at the end, once
        self._counted = _counting(self._exporter if self._exporter is not None else _otlp())
        resource = Resource.create()
        if str(resource.attributes["service.name"]).startswith("unknown_service"):  # what the SDK says when nobody has named it
            resource = resource.merge(Resource({"service.name": "toishi"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._counted, max_queue_size=QUEUE))
        self._tracer = self._provider.get_tracer("toishi", __version__)
        self._whole = self._tracer.start_span(
            f"toishi {name}", attributes={f"toishi.{key}": value for key, value in facts.items()}
        )
        self._context = trace.set_span_in_context(self._whole)

    def send(self, told: Told) -> None:
        """A span from the call's start to the answer's end."""
        span = self._tracer.start_span(
            f"{told.operation} {told.model}",
            context=self._context,
            attributes=told.attributes(with_content=self._with_content),
            start_time=told.started_ns,
        )
        span.end(told.ended_ns)

    def close(self, error: str | None) -> None:
        """Sends what is left. Raises ConnectionError when spans were not taken."""
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            self._whole.set_attribute("error.type", error.partition(":")[0])
            self._whole.set_status(Status(StatusCode.ERROR, error))
        self._whole.end()
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()
        if self._counted.refused:
            raise ConnectionError(
                f"{self._counted.refused} of {self._counted.refused + self._counted.taken} spans were not taken; is a "
                "collector at OTEL_EXPORTER_OTLP_ENDPOINT (default http://localhost:4318)?"
            )


def _otlp() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _counting(exporter: Any) -> Any:
    """The exporter, with counts of what was taken and refused: the SDK drops what fails without raising."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counting(SpanExporter):
        taken, refused = 0, 0

        def export(self, spans: Sequence[Any]) -> Any:
            self.refused += len(spans)
            result = exporter.export(spans)
            if result is SpanExportResult.SUCCESS:
                self.taken, self.refused = self.taken + len(spans), self.refused - len(spans)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = FLUSH_MS) -> bool:
            return bool(exporter.force_flush(timeout_millis))

    return Counting()
