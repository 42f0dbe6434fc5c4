"""Counters and times of requests, in the text format of Prometheus; and OpenTelemetry spans, where they were asked for:
one for each request, below the span of whoever calls.

Workers share a folder, so that every scrape shows the sum of all of them, whichever of them it reaches.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""seconds"""
WRITE_EVERY = 1.0


class Metrics:
    def __init__(self, folder: str | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._requests: Counter[tuple[str, str, int]] = Counter()
        """method, path and status → requests"""
        self._times: Counter[tuple[str, int]] = Counter()
        """path and index of a bound → requests that took no longer"""
        self._seconds: dict[str, float] = {}
        self._decisions: Counter[str] = Counter()
        """action → decisions"""
        self._written = 0.0

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        self._requests[method, path, status] += 1
        self._seconds[path] = self._seconds.get(path, 0.0) + seconds
        self._times[path, bisect_left(BOUNDS, seconds)] += 1
        if self._folder is not None and time.monotonic() - self._written > WRITE_EVERY:
            self.write()

    def decision(self, action: str) -> None:
        self._decisions[action] += 1

    def write(self) -> None:
        """Write the counts for the other workers. Those of a worker that has ended stay counted."""
        if self._folder is None:
            return
        self._written = time.monotonic()
        try:
            draft = self._folder / f".{os.getpid()}"
            draft.write_bytes(msgspec.json.encode(self._own()))
            draft.replace(self._folder / f"{os.getpid()}.json")
        except OSError:  # metrics must not stop a decision
            return

    def _own(self) -> dict[str, Any]:
        return {
            "requests": {" ".join(map(str, key)): count for key, count in self._requests.items()},
            "times": {f"{path} {index}": count for (path, index), count in self._times.items()},
            "seconds": self._seconds,
            "decisions": self._decisions,
        }

    def _sum(self) -> dict[str, Counter[str]]:
        found = {name: Counter(values) for name, values in self._own().items()}
        for file in self._folder.glob("*.json") if self._folder is not None else ():
            if file.stem == str(os.getpid()):
                continue
            try:
                other = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, float]])
            except (OSError, ValueError):
                continue
            for name, values in other.items():
                if name in found:
                    found[name].update(values)
        return found

    def text(self, gauges: Mapping[str, float]) -> str:
        found = self._sum()
        lines = ["# TYPE bylaw_requests_total counter"]
        for key, count in sorted(found["requests"].items()):
            method, path, status = key.split(" ")
            lines.append(f'bylaw_requests_total{{method="{method}",path="{path}",status="{status}"}} {count:.0f}')
        lines.append("# TYPE bylaw_decisions_total counter")
        lines += [f'bylaw_decisions_total{{action="{key}"}} {n:.0f}' for key, n in sorted(found["decisions"].items())]
        lines.append("# TYPE bylaw_request_seconds histogram")
        for path in sorted(found["seconds"]):
            total = 0.0
            for index, bound in enumerate((*map(str, BOUNDS), "+Inf")):
                total += found["times"].get(f"{path} {index}", 0)
                lines.append(f'bylaw_request_seconds_bucket{{path="{path}",le="{bound}"}} {total:.0f}')
            lines.append(f'bylaw_request_seconds_sum{{path="{path}"}} {found["seconds"][path]:.6f}')
            lines.append(f'bylaw_request_seconds_count{{path="{path}"}} {total:.0f}')
        for name, value in gauges.items():
            lines += [f"# TYPE bylaw_{name} gauge", f"bylaw_{name} {value:g}"]
        return "\n".join(lines) + "\n"


INSTALL = "spans need OpenTelemetry: pip install 'bylaw[otel]'"


class Spans:
    """None at all."""

    _nothing = nullcontext()

    def request(self, method: str, path: str, scope: Mapping[str, Any]) -> AbstractContextManager[Any]:
        return self._nothing

    def close(self) -> None:
        """Send all pending spans."""


class OpenTelemetrySpans(Spans):
    """Spans of the given tracer provider, or else of that of the process."""

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
