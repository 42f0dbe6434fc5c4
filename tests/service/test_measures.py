"""Metrics of all workers together, and spans below that of whoever calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.service.telemetry import Metrics
from tests.service.support import Site


def test_metrics_are_the_sum_of_all_workers(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.context.metrics = Metrics(str(tmp_path))
    site.decide("lookup_order")
    site.decide("issue_refund", {"amount": 900})
    site.raw("support", "POST", "/v1/decide", {})
    site.context.metrics.write()
    other = Metrics(str(tmp_path))
    monkeypatch.setattr("os.getpid", lambda: -1)
    other.request("POST", "/v1/decide", 200, 0.003)
    other.decision("allow")
    lines = other.text({"streams": 2}).splitlines()
    assert 'bylaw_requests_total{method="POST",path="/v1/decide",status="200"} 3' in lines
    assert 'bylaw_requests_total{method="POST",path="/v1/decide",status="400"} 1' in lines
    assert {'bylaw_decisions_total{action="allow"} 2', 'bylaw_decisions_total{action="pause"} 1'} <= set(lines)
    assert 'bylaw_request_seconds_count{path="/v1/decide"} 4' in lines and "bylaw_streams 2" in lines
    assert 'bylaw_request_seconds_bucket{path="/v1/decide",le="+Inf"} 4' in lines


def test_the_endpoint_tells_what_is_open(site: Site) -> None:
    site.decide("issue_refund", {"amount": 900})
    text = site.raw("operator", "GET", "/metrics").text
    assert "bylaw_reviews_pending 1\n" in text and "bylaw_incidents_open 0\n" in text


class Tracer:
    """An OpenTelemetry tracer that remembers what it was asked for."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []

    def get_tracer(self, *_: Any, **__: Any) -> Tracer:
        return self

    @contextmanager
    def start_as_current_span(self, name: str, *, context: Any, attributes: Any, **_: Any) -> Iterator[Any]:
        from opentelemetry import trace

        above = trace.get_current_span(context).get_span_context().trace_id
        span = {"name": name, "trace": f"{above:032x}", **attributes}
        self.spans.append(span)

        class Span:
            def set_attribute(self, key: str, value: Any) -> None:
                span[key] = value

        yield Span()


def test_a_decision_is_a_span_below_that_of_the_agent(site: Site) -> None:
    pytest.importorskip("opentelemetry")
    from bylaw.guard.service.telemetry import OpenTelemetrySpans

    tracer = Tracer()
    site.context.spans = OpenTelemetrySpans(tracer)
    above = "0af7651916cd43dd8448eb211c80319c"
    call = {"tool": "issue_refund", "session": "s", "arguments": {"amount": 900}}
    site.raw("support", "POST", "/v1/decide", call, headers={"traceparent": f"00-{above}-b7ad6b7169203331-01"})
    [span] = tracer.spans
    assert span["name"] == "POST /v1/decide" and span["trace"] == above and span["bylaw.action"] == "pause"
    assert span["http.response.status_code"] == 200
