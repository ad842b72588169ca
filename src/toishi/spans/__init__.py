"""Other programs that show inferences: OpenTelemetry collectors, Weave. They are told of answers as they end."""

from toishi.spans.engine import TracedEngine
from toishi.spans.telling import Telling
from toishi.spans.told import SpanTracer, Told, told_of

__all__ = ["SpanTracer", "Telling", "Told", "TracedEngine", "told_of"]
