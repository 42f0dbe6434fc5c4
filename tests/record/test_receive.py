"""`bylaw receive`: OTLP over HTTP as exporters send it, what is written, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

import bylaw
from bylaw.cli import cli
from bylaw.record.commands import _report_receiving
from bylaw.record.receiver import ExportFile, Receiver
from bylaw.record.recording import NotARecording
from bylaw.text.redaction.redactor import recording_redactor
from bylaw.wire.proxy.http1 import Request

CARD = "4111 1111 1111 1111"
ANSWER = '[{"role": "assistant", "parts": [{"type": "tool_call", "id": "call_1", "name": "refund", "arguments": {}}]}]'
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.output.messages": ANSWER}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "refund",
    "gen_ai.tool.call.id": "call_1",
    "gen_ai.tool.call.result": f"paid to {CARD}",
}
PROTOBUF, JSON = {"content-type": "application/x-protobuf"}, {"content-type": "application/json; charset=utf-8"}


def export() -> ExportTraceServiceRequest:
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for number, attributes in enumerate((CHAT, TOOL), 1):
        span = spans.add(name="s", trace_id=bytes(15) + b"\1", span_id=bytes(7) + bytes([number]))
        span.start_time_unix_nano, span.end_time_unix_nano = number * 10**18, number * 10**18 + 1
        span.attributes.extend(KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in attributes.items())
    return message


def as_json() -> bytes:
    """OTLP's JSON, with hexadecimal ids."""
    spans = [
        {
            "traceId": "5" * 32,
            "spanId": f"{number:016x}",
            "name": "s",
            "startTimeUnixNano": str(4111111111111111000 + number),
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
        }
        for number, attributes in enumerate((CHAT, TOOL), 1)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, indent=1).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "received.jsonl"


@pytest.fixture
def receiver(path: Path) -> Receiver:
    return Receiver(ExportFile(str(path)), redact=recording_redactor())


def send(
    receiver: Receiver, body: bytes, headers: dict[str, str], path: str = "/v1/traces", method: str = "POST"
) -> tuple[int, bytes]:
    reply = receiver.answer(Request(method, path, tuple(headers.items()), body))
    return reply.status, reply.body


@pytest.mark.parametrize(
    ("body", "headers", "acknowledged"),
    [
        (export().SerializeToString(), PROTOBUF, b""),
        (gzip.compress(export().SerializeToString()), {**PROTOBUF, "content-encoding": "gzip"}, b""),
        (as_json(), JSON, b"{}"),
        (gzip.compress(as_json()), {**JSON, "content-encoding": "gzip"}, b"{}"),
        (MessageToJson(export(), preserving_proto_field_name=True).encode(), JSON, b"{}"),
    ],
    ids=["protobuf", "protobuf, gzip", "json", "json, gzip", "json, protobuf's keys"],
)
def test_what_is_sent_can_be_checked(
    receiver: Receiver, path: Path, body: bytes, headers: dict[str, str], acknowledged: bytes
) -> None:
    assert send(receiver, body, headers) == (200, acknowledged)
    assert (receiver.spans, receiver.refused) == (2, 0)
    trace = bylaw.load_trace(path)
    assert trace.format == "otlp" and trace.complete
    (result,) = [event for event in trace.events if event.kind == "tool_result"]
    assert result.content == "paid to [redacted: card]", "and paired with its call"
    assert result.call is not None and result.call.name == "refund"
    assert path.stat().st_mode & 0o777 == 0o600


def test_ids_and_times_are_not_redacted(receiver: Receiver, path: Path) -> None:
    send(receiver, as_json(), JSON)
    assert path.read_text().count("\n") == 1
    assert "5" * 32 in path.read_text() and "4111111111111111001" in path.read_text()


def test_sessions_that_are_named_by_an_address_stay_apart(receiver: Receiver, path: Path) -> None:
    for name in ("anna@example.com", "ben@example.com"):
        attributes = {**CHAT, "gen_ai.conversation.id": name}
        span = {"traceId": name[0] * 32, "spanId": name[0] * 16, "name": "s", "startTimeUnixNano": "1"}
        span["attributes"] = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        send(receiver, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode(), JSON)
    assert len(bylaw.load_trace(path).sessions) == 2
    assert "@example.com" not in path.read_text()


def test_values_that_are_nested_deeply(receiver: Receiver, path: Path) -> None:
    deep = '{"a":' * 900 + f'"{CARD}"' + "}" * 900
    assert send(
        receiver, f'{{"resourceSpans": [{{"x": {deep}, "scopeSpans": [{{"spans": [{{}}]}}]}}]}}'.encode(), JSON
    )[0] in (200, 400)
    assert CARD not in path.read_text()


def test_log_records_are_written_and_metrics_are_not(receiver: Receiver, path: Path) -> None:
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1, event_name="gen_ai.choice")
    assert send(receiver, logs.SerializeToString(), PROTOBUF, "/v1/logs") == (200, b"")
    assert send(receiver, b"\x0a\x00", PROTOBUF, "/v1/metrics") == (200, b""), "else an exporter would repeat it"
    assert (receiver.logs, receiver.metrics) == (1, 1)
    assert "resourceLogs" in path.read_text() and path.read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("status", "body", "headers", "target"),
    [
        (400, b"{", JSON, {}),
        (400, b'{"spans": []}', JSON, {}),
        (400, b'{"resourceSpans": 7}', JSON, {}),
        (400, b"[" * 100_000, JSON, {}),
        (400, b"\xff\xff", PROTOBUF, {}),
        (400, b"no gzip", {**JSON, "content-encoding": "gzip"}, {}),
        (400, gzip.compress(as_json())[:-9], {**JSON, "content-encoding": "gzip"}, {}),
        (415, as_json(), {**JSON, "content-encoding": "br"}, {}),
        (415, as_json(), {"content-type": "text/plain"}, {}),
        (404, as_json(), JSON, {"path": "/v1/elsewhere"}),
        (405, b"", JSON, {"method": "GET"}),
    ],
)
def test_a_bad_request_is_refused_and_writes_nothing(
    receiver: Receiver, path: Path, status: int, body: bytes, headers: dict[str, str], target: dict[str, Any]
) -> None:
    assert send(receiver, body, headers, **target)[0] == status
    assert (receiver.refused, receiver.spans, path.read_bytes()) == (1, 0, b"")


def test_a_body_is_bounded_when_it_is_unpacked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Receiver.__module__], "MOST_BODY", 1000)
    assert send(receiver, gzip.compress(bytes(1001)), {**PROTOBUF, "content-encoding": "gzip"})[0] == 413


def test_what_cannot_be_written_is_not_acknowledged(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(lines: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ExportFile, "append", lambda self, lines: full(lines))
    status, body = send(receiver, export().SerializeToString(), PROTOBUF)
    assert (status, body[:2], b"No space left" in body) == (503, b"\x08\x0e", True)
    assert _report_receiving(receiver, "out") == 4


def test_an_existing_file_is_continued_only_if_it_holds_otlp(receiver: Receiver, path: Path, tmp_path: Path) -> None:
    send(receiver, as_json(), JSON)
    again = Receiver(ExportFile(str(path)))
    send(again, as_json(), JSON)
    assert path.read_text().count("\n") == 2
    for text in ("mine\n", '{"resourceSpans":['):
        (tmp_path / "other").write_text(text)
        with pytest.raises(NotARecording):
            ExportFile(str(tmp_path / "other"))
        assert (tmp_path / "other").read_text() == text


def run(out: Path, exchange: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> Result:
    """The command on a free port; `exchange` gets the port, and afterwards SIGTERM is sent."""
    start = Receiver.listen

    async def started(self: Receiver, host: str, port: int) -> tuple[str, int]:
        found = await start(self, host, port)
        loop = asyncio.get_running_loop()

        def act() -> None:
            try:
                exchange(found[1])
            finally:
                loop.call_soon_threadsafe(os.kill, os.getpid(), signal.SIGTERM)

        threading.Thread(target=act).start()
        return found

    monkeypatch.setattr(Receiver, "listen", started)
    arguments = ["receive", "--otlp", "127.0.0.1:0", "--out", str(out)]
    return CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)


def post(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> int:
    connection.request("POST", "/v1/traces", body, headers)
    with connection.getresponse() as reply:
        reply.read()
        return reply.status


def test_the_command_receives_until_it_is_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def exchange(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        seen.extend(post(connection, body, PROTOBUF) for body in (export().SerializeToString(), b"\xff\xff"))
        connection.close()

    done = run(path, exchange, monkeypatch)
    assert (seen, done.return_value) == ([200, 400], 0)
    assert "receiving OTLP at http://127.0.0.1:" in done.stderr
    assert "received 2 spans" in done.stderr and "1 request refused" in done.stderr


def test_a_request_that_has_begun_ends_before_the_receiver_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, seen = export().SerializeToString(), []
    connections: list[http.client.HTTPConnection] = []

    def begin(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connections.append(connection)
        connection.putrequest("POST", "/v1/traces")
        connection.putheader("content-type", "application/x-protobuf")
        connection.putheader("content-length", str(len(body)))
        connection.putheader("expect", "100-continue")
        connection.endheaders(body[:5])
        assert connection.sock.recv(12) == b"HTTP/1.1 100", "the head was read"

    stop = Receiver.stop

    async def stopping(self: Receiver) -> None:
        asyncio.get_running_loop().call_later(0.05, connections[0].send, body[5:])
        await stop(self)
        seen.append(self.spans)

    monkeypatch.setattr(Receiver, "stop", stopping)
    assert run(path, begin, monkeypatch).return_value == 0
    assert seen == [2]
    connections[0].close()


def test_nothing_received_is_not_a_success(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(path, lambda port: None, monkeypatch)
    assert (done.return_value, "NOTHING RECEIVED" in done.stderr) == (3, True)


def test_a_port_that_is_taken(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = CliRunner().invoke(cli, ["receive", "--otlp", address, "--out", str(path)], standalone_mode=False)
    assert (done.return_value, f"cannot listen on `{address}`" in done.stderr) == (4, True)


def test_the_sdk_of_opentelemetry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")

    def exchange(port: int) -> None:
        provider = sdk.TracerProvider()
        sent = exporter.OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces")
        provider.add_span_processor(sdk.export.SimpleSpanProcessor(sent))
        with provider.get_tracer("t").start_as_current_span("chat", attributes=CHAT):
            pass
        provider.shutdown()

    assert "received 1 span" in run(path, exchange, monkeypatch).stderr
