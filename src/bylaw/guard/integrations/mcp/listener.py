"""Clients that come by streamable HTTP, on an address of this machine.

A client of 2025-11-25 or before begins with `initialize` and gets a session, which has its own connection to the
server and its own session of the guard. Since 2026-07-28 requests stand alone: they share one connection, and one
session of the guard, unless a header names it. Their ids are replaced, since clients choose them independently.

There is no authentication, so only this machine can connect. Browsers could be made to do so by any web page, also by
one that another program on this machine serves; their requests are refused by the headers `Host`, `Origin` and
`Content-Type`, unless the origin is one of those allowed.
"""

from __future__ import annotations

import hashlib
import logging
import select
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from queue import Empty
from typing import Any
from urllib.parse import urlsplit

from bylaw.guard.integrations.mcp.listener_sessions import Exchange, HttpSession, SessionTable
from bylaw.guard.integrations.mcp.messages import (
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MOST_BYTES,
    NAMED_BY,
    PARSE_ERROR,
    Message,
    ambiguity_of,
    decode_value,
    encode,
    error_of,
    is_request,
    params_of,
    version_of,
)
from bylaw.guard.integrations.mcp.proxy import Settings

MOST_CONNECTIONS = 512
_HEADER_MISMATCH = -32020
_POLL = 0.5
"""seconds after which a client that has gone is noticed"""
_KEEP_ALIVE = 15.0
"""seconds of silence after which a stream says that it is still there"""
_log = logging.getLogger("bylaw")


class RefusedRequest(Exception):
    """A request that is not passed on: the HTTP status, the error, and whether that ends the connection."""

    def __init__(
        self, status: int, text: str, *, code: int = INVALID_REQUEST, id: Any = None, closes: bool = False
    ) -> None:
        super().__init__(text)
        self.status, self.error, self.closes = status, error_of(id, code, text), closes


class McpListener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        settings: Settings,
        host: str,
        port: int,
        *,
        session_header: str | None = None,
        origins: Collection[str] = (),
    ) -> None:
        """`origins`: of web pages that may connect. Raises OSError if the address cannot be used, and ValueError if it
        is not one of this machine."""
        if not _is_local(host):
            raise ValueError(f"`{host}` is not an address of this machine only")
        if ":" in host:
            self.address_family = socket.AF_INET6
        self.sessions = SessionTable(settings)
        self.session_header, self.origins = session_header, frozenset(origins)
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection has ended", exc_info=True)

    def server_close(self) -> None:
        super().server_close()
        self.sessions.close()


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BaseHTTPRequestHandler):
    server: McpListener
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 300.0
    """seconds that a client may take for a request, and between requests"""

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)

    # -- requests -------------------------------------------------------------------------------------------------

    def do_POST(self) -> None:
        self._answering(self._post)

    def do_GET(self) -> None:
        self._answering(self._get)

    def do_DELETE(self) -> None:
        self._answering(self._delete)

    def do_OPTIONS(self) -> None:
        """The preflight request of a browser (CORS)."""
        self._answering(lambda: self._reply(204))

    def _answering(self, work: Any) -> None:
        try:
            self._check_sender()
            work()
        except RefusedRequest as refused:
            self.close_connection |= refused.closes
            self._reply(refused.status, refused.error)
        except (OSError, ValueError) as problem:
            _log.debug("a client has gone: %s", problem)
            self.close_connection = True

    def _check_sender(self) -> None:
        host = urlsplit(f"//{self.headers.get('host', '')}").hostname or ""
        if not _is_local(host):
            raise RefusedRequest(403, "only this machine may connect", closes=True)
        if not self.server.origins.issuperset(self.headers.get_all("origin") or ()):
            raise RefusedRequest(403, "web pages may not connect, but for those that --allow-origin names", closes=True)
        if urlsplit(self.path).path.rstrip("/") not in ("", "/mcp"):
            raise RefusedRequest(404, "the server is at `/mcp`", closes=True)

    def _post(self) -> None:
        message = self._read_message()
        body = message.body
        session = self._session_of(body)
        if not is_request(body):
            session.from_client(message)
            self._reply(202)
            return
        with session.exchange(message) as exchange:
            exchange.begin()
            self._stream(exchange, session)

    def _read_message(self) -> Message:
        length = self.headers.get("content-length", "")
        if not length.isdigit() or "transfer-encoding" in self.headers:
            raise RefusedRequest(411, "a request needs a content-length", closes=True)
        if int(length) > MOST_BYTES:
            raise RefusedRequest(413, f"a message is longer than {MOST_BYTES >> 20} MB", closes=True)
        if self.headers.get_content_type() != "application/json" or "content-type" not in self.headers:
            raise RefusedRequest(415, "the content type of a message is application/json", closes=True)
        message = Message(self.rfile.read(int(length)))
        try:
            body = message.as_one_line().body
        except ValueError as why:
            raise RefusedRequest(400, f"the message was not passed on: {why}", code=PARSE_ERROR) from None
        if (ambiguous := ambiguity_of(body)) is not None:
            raise RefusedRequest(400, f"the message was not passed on: {ambiguous}")
        if isinstance(body.get("id"), bool | dict | list | float):
            raise RefusedRequest(400, "the id of a request is a text or a whole number")
        self._check_headers(body)
        return message

    def _check_headers(self, body: dict[str, Any]) -> None:
        """Headers must say what the message says: whoever looked only at them has to be right."""
        params, method = params_of(body), body.get("method")
        wanted = {"mcp-method": method, "mcp-name": params.get(NAMED_BY.get(str(method), ""))}
        if version_of(body) is not None:
            wanted["mcp-protocol-version"] = version_of(body)
        for name, value in wanted.items():
            given = self.headers.get_all(name) or []
            if len(given) > 1 or (given and decode_value(given[0]) != value):
                text = f"the header `{name}` does not say what the message says"
                raise RefusedRequest(400, text, code=_HEADER_MISMATCH, id=body.get("id"))

    def _session_of(self, body: dict[str, Any]) -> HttpSession:
        table, id = self.server.sessions, self.headers.get("mcp-session-id")
        try:
            if id is not None:
                known = table.get(id)
                if known is None:
                    raise RefusedRequest(404, "there is no such session", id=body.get("id"))
                return known
            if body.get("method") == "initialize":
                return table.begin()
            version = version_of(body) or self.headers.get("mcp-protocol-version")
            if version is None or version in HANDSHAKE_VERSIONS:
                raise RefusedRequest(400, "the request names no session: begin with `initialize`", id=body.get("id"))
            return table.shared(self._session_name(body))
        except OSError as problem:
            text = f"the server cannot be started: {problem.strerror or problem}"
            raise RefusedRequest(502, text, code=INTERNAL_ERROR, id=body.get("id")) from None

    def _session_name(self, body: dict[str, Any]) -> str:
        header = self.server.session_header
        if header is None:
            return ""
        value = self.headers.get(header)
        if not value:
            raise RefusedRequest(400, f"the header `{header}` has to name the session", id=body.get("id"))
        return value if len(value) <= 200 else hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()

    def _get(self) -> None:
        session = self.server.sessions.get(self.headers.get("mcp-session-id", ""))
        if session is None:
            raise RefusedRequest(405 if "mcp-session-id" not in self.headers else 404, "there is no such session")
        with session.listen() as exchange:
            if exchange is None:
                raise RefusedRequest(409, "the session has a stream already")
            self._begin_events(session)
            self._stream(exchange, session, begun=True)

    def _delete(self) -> None:
        if not self.server.sessions.end(self.headers.get("mcp-session-id", "")):
            raise RefusedRequest(404, "there is no such session")
        self._reply(200)

    # -- replies --------------------------------------------------------------------------------------------------

    def _stream(self, exchange: Exchange, session: HttpSession, *, begun: bool = False) -> None:
        """One JSON message if the answer comes first, else a stream of events that ends with the answer."""
        silent = 0.0
        while True:
            try:
                message = exchange.messages.get(timeout=_POLL)
            except Empty:
                silent += _POLL
                if self._has_gone():
                    exchange.cancel()
                    self.close_connection = True
                    return
                if begun and silent >= _KEEP_ALIVE:
                    self.wfile.write(b": still here\n\n")
                    self.wfile.flush()
                    silent = 0.0
                continue
            silent = 0.0
            if message is None:  # the session is over
                if not begun:
                    raise RefusedRequest(404, "the session has ended", id=exchange.id)
                return
            is_last = exchange.is_answered_by(message)
            if is_last and not begun:
                status = 200 if "error" not in message.body else session.status_of(message.body["error"])
                self._reply(status, message.line, session)
                return
            if not begun:
                self._begin_events(session)
                begun = True
            self.wfile.write(b"event: message\ndata: " + message.line + b"\n\n")
            self.wfile.flush()
            if is_last:
                return

    def _begin_events(self, session: HttpSession) -> None:
        self.close_connection = True  # the end of the stream is the end of the connection
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache, no-transform")
        self.send_header("connection", "close")
        if session.id is not None:
            self.send_header("mcp-session-id", session.id)
        self._end_headers()
        self.wfile.flush()

    def _end_headers(self) -> None:
        """A browser shows the reply to a web page whose origin may connect."""
        if (origin := self.headers.get("origin")) in self.server.origins:
            self.send_header("access-control-allow-origin", str(origin))
            self.send_header("access-control-allow-methods", "POST, GET, DELETE")
            self.send_header("access-control-allow-headers", self.headers.get("access-control-request-headers", "*"))
            self.send_header("access-control-expose-headers", "mcp-session-id")
            self.send_header("vary", "origin")
        self.end_headers()

    def _reply(self, status: int, body: Any = None, session: HttpSession | None = None) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else encode(body)
        self.send_response(status)
        if data:
            self.send_header("content-type", "application/json")
        if session is not None and session.id is not None:
            self.send_header("mcp-session-id", session.id)
        if self.close_connection:
            self.send_header("connection", "close")
        self.send_header("content-length", str(len(data)))
        self._end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _has_gone(self) -> bool:
        with suppress(OSError):
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        return True
