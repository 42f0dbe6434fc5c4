"""OpenTelemetry spans, where they were asked for: one for each request, below the span of whoever calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

INSTALL = "spans need OpenTelemetry: pip install 'bylaw[otel]'"


class Spans(Protocol):
    def request(self, method: str, path: str, scope: Mapping[str, Any]) -> Any: ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


class NoSpans:
    def __init__(self) -> None:
        self._nothing = nullcontext()

    def request(self, method: str, path: str, scope: Mapping[str, Any]) -> Any:
        return self._nothing

    def close(self) -> None: ...


class OpenTelemetrySpans:
    """Of the tracer provider of the process, or of this one."""

    def __init__(self, provider: Any = None) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError:
            raise RuntimeError(INSTALL) from None
        self._provider = provider
        self._tracer = trace.get_tracer("bylaw", tracer_provider=provider)
        self._extract, self._kind, self._status = propagate.extract, trace.SpanKind.SERVER, trace.StatusCode

    @contextmanager
    def request(self, method: str, path: str, scope: Mapping[str, Any]) -> Iterator[Any]:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        about = {"http.request.method": method, "http.route": path}
        with self._tracer.start_as_current_span(
            f"{method} {path}",
            context=self._extract(headers),
            kind=self._kind,
            attributes=about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            status = 200
            try:
                yield span
            except BaseException as problem:
                status = getattr(problem, "status", 500)
                if status >= 500:  # the mistakes of a client are none of the service
                    span.record_exception(problem)
                    span.set_status(self._status.ERROR)
                raise
            finally:
                span.set_attribute("http.response.status_code", status)

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()


def make_exporter() -> OpenTelemetrySpans:
    """Spans that are sent as the variables `OTEL_EXPORTER_OTLP_…` say. Raises RuntimeError without the packages."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise RuntimeError(INSTALL) from None
    provider = TracerProvider(resource=Resource.create({"service.name": "bylaw-guard"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetrySpans(provider)
