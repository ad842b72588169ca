"""Tracers of inferences by name, and whether they are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping

from toishi.errors import ConfigError, MissingExtraError, nearest
from toishi.spans.otel import OtelTracer
from toishi.spans.told import SpanTracer
from toishi.spans.weave import WeaveTracer

TRACERS: Mapping[str, Callable[[], SpanTracer]] = {"otel": OtelTracer, "weave": WeaveTracer}
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "weave": ("weave",),
}


def tracers(names: Iterable[str]) -> dict[str, Callable[[], SpanTracer]]:
    """The tracers of these names. Raises ConfigError for an unknown one, MissingExtraError for one that is not installed.

    >>> tracers(["otle"])
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: --trace: there is no tracer 'otle'; did you mean 'otel'?
    """
    chosen: dict[str, Callable[[], SpanTracer]] = {}
    for name in names:
        if name not in TRACERS:
            raise ConfigError(f"--trace: there is no tracer '{name}'; {nearest(name, TRACERS)}")
        missing = next((package for package in PACKAGES[name] if not _is_there(package)), None)
        if missing is not None:
            raise MissingExtraError(missing, extra=name, purpose=f"--trace {name}")
        chosen[name] = TRACERS[name]
    return chosen


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # one of the packages above it
        return False
