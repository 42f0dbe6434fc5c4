"""Spans of a real service, sent by OpenTelemetry's own exporter and received by `bylaw receive --otlp`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bylaw.guard.service.auth import Credentials
from bylaw.guard.stores import SqliteStore
from tests.service.support import RULES

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed: make .venv/.otel"
)
ABOVE = "0af7651916cd43dd8448eb211c80319c"


@contextmanager
def running(*command: str, folder: Path, ends: int = 0, **more: str) -> Iterator[str]:
    """A command of bylaw that says where it listens; it ends by SIGTERM. Yields the address."""
    environment = {**os.environ, **more}
    process = subprocess.Popen(
        [sys.executable, "-m", "bylaw", *command], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    try:
        yield next(word.rstrip(",") for word in process.stderr.readline().split() if word.startswith("http"))
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == ends, said


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: str(next(iter(one["value"].values()))) for one in span["attributes"]}


def test_spans_arrive_below_that_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "guard.yaml").write_text(RULES)
    store = SqliteStore(tmp_path / "guard.db")
    key, _ = Credentials(store).create("bot", ["agent"], agents=["support"])
    store.close()
    serve = ["guard", "serve", "-p", "guard.yaml", "--store", "guard.db", "--listen", "127.0.0.1:0", "--otel"]
    receive = ["receive", "--otlp", "127.0.0.1:0", "--out", "spans.jsonl"]
    with (
        running(*receive, folder=tmp_path) as collector,
        running(*serve, "--no-console", folder=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector) as service,
    ):
        for amount, status in ((20, 200), (900, 200), ("a lot", 200), (None, 400)):
            body: dict[str, Any] = {"tool": "issue_refund", "session": "s", "arguments": {"amount": amount}}
            if amount is None:
                body = {}
            headers = {"authorization": f"Bearer {key}", "traceparent": f"00-{ABOVE}-b7ad6b7169203331-01"}
            assert httpx2.post(f"{service}/v1/decide", json=body, headers=headers).status_code == status
    lines = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    scopes = [scope for line in lines for one in line["resourceSpans"] for scope in one["scopeSpans"]]
    spans = [span for scope in scopes for span in scope["spans"]]
    assert {(span["name"], span["traceId"]) for span in spans} == {("POST /v1/decide", ABOVE)}
    assert [attributes(span).get("bylaw.action") for span in spans] == ["allow", "pause", "pause", None]
    assert [attributes(span)["http.response.status_code"] for span in spans] == ["200", "200", "200", "400"]
    assert not any(span.get("status", {}).get("code") for span in spans)  # the mistake is the client's
