"""An OTLP/HTTP receiver: writes the spans and logs that instrumented agents send, as lines of OTLP's JSON.

A request is acknowledged after its line is in the file, so an exporter repeats what could not be written. Metrics are
accepted and not stored, since they say nothing about calls: an exporter would repeat a refused request.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from bylaw.record.recording import BLOCK, NotARecording, RecordFile, try_lock
from bylaw.text.redaction.redactor import redact_fields
from bylaw.traces.formats.otlp_wire import Export, decode_export, rename_to_specification
from bylaw.traces.records.protobuf import InvalidProtobuf, to_json
from bylaw.wire.exchange import Incoming, json_reply
from bylaw.wire.proxy.http1 import MOST_BODY, BadRequest, Connection, ConnectionServer, Request

GRACE = 5.0
"""seconds that requests which have begun may take when the receiver stops"""
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_STORED = ("/v1/traces", "/v1/logs")
_INVALID_ARGUMENT, _UNAVAILABLE = 3, 14
"""codes of gRPC, which OTLP uses over HTTP too"""
_TEXTS = ("attributes", "body", "name", "status")
"""what a span, an event or a log record says; the rest is ids and times, which must stay as they are"""


_EXPORT = re.compile(rb'\{"resource(?:Spans|Logs)":')


class ExportFile(RecordFile):
    """A file of OTLP exports, one a line, without a header."""

    def _prepare(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and not _EXPORT.match(os.pread(self._descriptor, BLOCK, 0)):
            raise NotARecording(f"`{self.path}` exists and does not hold OTLP; receive to another file")
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            raise NotARecording(f"`{self.path}` ends in the middle of a line; receive to another file")
        try_lock(self._descriptor, fcntl.LOCK_SH)


class Receiver(ConnectionServer):
    def __init__(self, file: ExportFile, *, redact: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._file = file
        self._redact = redact
        self._stops = False
        self.spans = self.logs = self.metrics = 0
        """how many spans and log records were written, and how many requests with metrics were not"""
        self.refused = self.lost = 0
        """requests that could not be read, and that could not be written"""

    async def stop(self) -> None:
        """Accept no more, and let requests that have begun end."""
        self._stops = True
        if self._server is not None:
            self._server.close()
        busy = [task for task, connection in self._connections.items() if connection.is_busy]
        if busy:
            await asyncio.wait(busy, timeout=GRACE)
        await super().stop()

    async def serve_connection(self, connection: Connection) -> None:
        while not self._stops:
            try:
                request = await connection.next_request()
            except BadRequest as error:
                self.refused += 1
                with suppress(OSError, TimeoutError):
                    await connection.reply(json_reply(error.status, {"code": _INVALID_ARGUMENT, "message": str(error)}))
                return
            if request is None:
                return
            await connection.reply(self.answer(request))

    # One request

    def answer(self, request: Request) -> Incoming:
        """Write the spans or logs of a request, and acknowledge it."""
        path = request.target.partition("?")[0].rstrip("/")
        kind = request.header("content-type").partition(";")[0].strip().lower()
        try:
            if not path.endswith((*_STORED, "/v1/metrics")):
                raise BadRequest(404, f"OTLP is received at {', '.join(_STORED)}")
            if request.method != "POST":
                raise BadRequest(405, "OTLP is sent by POST")
            if kind not in (_JSON, _PROTOBUF):
                raise BadRequest(415, f"expected {_PROTOBUF} or {_JSON}")
            body = _decompress_body(request)
            if path.endswith("/v1/metrics"):
                self.metrics += 1
            else:
                self._store(*_read(body, kind))
        except BadRequest as error:
            self.refused += 1
            return _status(error.status, _INVALID_ARGUMENT, str(error), kind)
        except OSError as error:
            self.lost += 1
            return _status(503, _UNAVAILABLE, f"cannot write: {error.strerror or error}", kind)
        return Incoming(200, {"content-type": kind}, b"{}" if kind == _JSON else b"")

    def _store(self, value: dict[str, Any], export: Export) -> None:
        spans = sum(
            len(scope.spans)
            for one in export.resourceSpans
            for scope in (*one.scopeSpans, *one.instrumentationLibrarySpans)
        )
        logs = sum(len(scope.logRecords) for one in export.resourceLogs for scope in one.scopeLogs)
        if spans or logs:
            self._file.append([value if self._redact is None else redact_fields(value, _TEXTS, self._redact)])
        self.spans += spans
        self.logs += logs


def _decompress_body(request: Request) -> bytes:
    encoding = request.header("content-encoding").strip().lower()
    if encoding in ("", "identity"):
        return request.body
    if encoding != "gzip":
        raise BadRequest(415, f"the body is compressed by `{encoding}`, not by gzip")
    unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        body = unpack.decompress(request.body, MOST_BODY + 1)
    except zlib.error as error:
        raise BadRequest(400, f"the body is not gzip: {error}") from None
    if len(body) > MOST_BODY:
        raise BadRequest(413, f"the body is larger than {MOST_BODY} bytes")
    if not unpack.eof:
        raise BadRequest(400, "the body is cut")
    return body


def _read(body: bytes, kind: str) -> tuple[dict[str, Any], Export]:
    """The export as JSON, and decoded."""
    try:
        text = body if kind == _JSON else to_json(body)
        value, export = rename_to_specification(msgspec.json.decode(text)), decode_export(text)
    except (InvalidProtobuf, ValueError, RecursionError) as error:
        raise BadRequest(400, f"the body is no OTLP: {error}") from None
    if value and not value.keys() & {"resourceSpans", "resourceLogs"}:
        raise BadRequest(400, "the body is no OTLP: it has neither `resourceSpans` nor `resourceLogs`")
    return {key: value[key] for key in ("resourceSpans", "resourceLogs") if key in value}, export


def _status(status: int, code: int, message: str, kind: str) -> Incoming:
    """An error as OTLP wants it: a message of the type `Status`, in the encoding of the request."""
    if kind != _PROTOBUF:
        return json_reply(status, {"code": code, "message": message})
    text = message.encode()[:127]
    return Incoming(status, {"content-type": kind}, bytes((8, code, 18, len(text))) + text)
