"""A server that is reached by HTTP: streamable HTTP of both protocol eras, and the older HTTP with SSE.

Each message of the client is a POST. Its reply is one JSON message, or a stream of events that ends with the answer. A
server of 2025-11-25 or before has a session, and a stream for what it says unasked; since 2026-07-28 every request
stands alone. A server that refuses to be initialised by POST is tried with the transport of 2024-11-05: one stream for
everything that it says, and a URL of its own for messages to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

from bylaw.guard.integrations.mcp.http_client import HttpClient, HttpFailure, Stream
from bylaw.guard.integrations.mcp.messages import (
    CLOSED,
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Message,
    Send,
    error_of,
    is_answer,
    is_request,
    key_of,
    objects_in,
    params_of,
    routing_headers,
    version_of,
)

_RECONNECTIONS = 2
"""times that a stream which has broken off is resumed without hearing from the server"""
_PATIENCE = 30.0
"""seconds for a server of 2024-11-05 to say where messages go"""
_GRACE = 1.0
_MOST_TOOLS = 10_000
"""whose schemas are remembered"""
_log = logging.getLogger("bylaw")


class HttpServer:
    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._http = HttpClient(url, headers or {})
        self._receive: Send
        self._ended: Callable[[], object]
        self._session: str | None = None
        self._version: str | None = None
        """that was negotiated, or that the latest request has named"""
        self._endpoint: str | None = None
        """where messages go in the transport of 2024-11-05"""
        self._has_endpoint = threading.Event()
        self._under_way: dict[str, tuple[Stream | None, bool]] = {}
        """requests without an answer: the reply to their POST, and whether closing it cancels them"""
        self._schemas: dict[str, Any] = {}
        """of the tools that were listed, for headers that repeat arguments"""
        self._is_closed = False

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        self._receive, self._ended = receive, ended

    # -- to the server --------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Requests are sent in threads of their own; anything else is sent before this returns, to keep the order."""
        body = message.body
        if is_request(body):
            version = version_of(body)
            self._version = version or self._version
            self._under_way[key_of(body["id"])] = (None, version is not None and version not in HANDSHAKE_VERSIONS)
            threading.Thread(target=self._request, args=(message,), daemon=True).start()
            return
        if body.get("method") == "notifications/cancelled" and self._cancel(params_of(body).get("requestId")):
            return
        try:
            with self._post(message) as reply:
                reply.read_all()
                if reply.status >= 400:
                    _log.warning("the server does not accept `%s`: %d", body.get("method", "an answer"), reply.status)
        except HttpFailure as problem:
            _log.warning("`%s` was not sent: %s", body.get("method", "an answer"), problem)
        if body.get("method") == "notifications/initialized" and self._endpoint is None:
            threading.Thread(target=self._listen, daemon=True).start()

    def _cancel(self, id: Any) -> bool:
        """Since 2026-07-28 a request is cancelled by closing its reply. Returns whether nothing has to be sent."""
        is_modern = self._version is not None and self._version not in HANDSHAKE_VERSIONS
        stream, by_closing = self._under_way.get(key_of(id), (None, is_modern))
        if by_closing:
            self._under_way.pop(key_of(id), None)
            if stream is not None:
                stream.abort()
        return by_closing

    def _post(self, message: Message, sent: Callable[[Stream], object] | None = None) -> Stream:
        body, url = message.body, self._endpoint or self.url
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if body.get("method") != "initialize":
            headers |= self._session_headers()
        headers |= routing_headers(body, self._schemas)
        return self._http.request("POST", url, headers, message.line, sent)

    def _session_headers(self) -> dict[str, str]:
        found = {"mcp-session-id": self._session, "mcp-protocol-version": self._version}
        return {name: value for name, value in found.items() if value is not None}

    # -- requests and their answers -------------------------------------------------------------------------------

    def _request(self, message: Message) -> None:
        body = message.body
        key, method = key_of(body["id"]), body["method"]

        def note(stream: Stream) -> None:
            if key in self._under_way:
                self._under_way[key] = (stream, self._under_way[key][1])

        try:
            with self._post(message, note) as reply:
                if key not in self._under_way:
                    return  # cancelled before there was a reply
                if reply.status in (400, 404, 405) and method == "initialize" and self._open_old_transport(message):
                    return
                self._read_reply(message, reply)
        except HttpFailure as problem:
            self._give_up(message, CLOSED, str(problem))
        except Exception as problem:
            _log.error("the reply to `%s` cannot be read: %s: %s", method, type(problem).__name__, problem)
            self._give_up(message, INTERNAL_ERROR, f"the reply cannot be read: {problem}")

    def _read_reply(self, message: Message, reply: Stream) -> None:
        body = message.body
        if body["method"] == "initialize" and reply.status < 300:
            self._session = reply.header("mcp-session-id")
        kind = reply.header("content-type", "").partition(";")[0].strip().lower()
        if self._endpoint is not None and reply.status < 300:
            reply.read_all()  # the answer comes by the stream
        elif kind == "application/json":
            answer = Message(reply.read_all(), about=key_of(body["id"]))
            if reply.status >= 400 and is_answer(answer.body) and answer.body["id"] is None:
                answer = Message.of({**answer.body, "id": body["id"]}, answer.about)
            self._deliver(answer, message)
        elif kind == "text/event-stream" and reply.status < 300:
            self._read_events(message, reply)
        if key_of(body["id"]) in self._under_way and self._endpoint is None:
            self._give_up(message, *self._why_nothing(reply))

    def _why_nothing(self, reply: Stream) -> tuple[int, str]:
        if reply.status == 404 and self._session is not None:
            return INVALID_REQUEST, "the session has ended at the server"
        if reply.status == 404:
            return METHOD_NOT_FOUND, "not found"
        if 300 <= reply.status < 400:
            return INVALID_REQUEST, f"the server redirects to `{reply.header('location', '')}`: use that URL"
        return INTERNAL_ERROR, f"the server answered with HTTP {reply.status} and no message"

    def _read_events(self, message: Message, reply: Stream) -> None:
        """The events of a reply; if it breaks off, it is resumed where that is possible."""
        key, last, tries = key_of(message.body["id"]), None, 0
        stream, retry = reply, 1.0
        while True:
            try:
                for event in stream.events():
                    last, retry, tries = event.id or last, event.retry or retry, 0
                    if event.data:
                        self._deliver(Message(event.data, about=key), message)
                    if key not in self._under_way:
                        return
            except HttpFailure as problem:
                _log.info("a stream has broken off: %s", problem)
            finally:
                stream.close()
            if last is None or tries >= _RECONNECTIONS or key not in self._under_way or self._is_closed:
                return
            tries += 1
            time.sleep(retry)
            with suppress(HttpFailure):
                stream = self._get(last)
                if stream.status != 200:
                    stream.close()
                    return

    def _deliver(self, message: Message, asked: Message | None = None) -> None:
        body = message.body
        if is_answer(body):
            self._under_way.pop(key_of(body["id"]), None)
            self._learn(body.get("result"), None if asked is None else asked.body.get("method"))
        self._receive(message)

    def _learn(self, result: Any, method: Any) -> None:
        if not isinstance(result, dict):
            return
        if method == "initialize":
            self._version = result.get("protocolVersion")
        for tool in objects_in(result.get("tools")) if method == "tools/list" else ():
            if isinstance(tool.get("name"), str) and len(self._schemas) < _MOST_TOOLS:
                self._schemas[tool["name"]] = tool.get("inputSchema")

    def _give_up(self, message: Message, code: int, text: str) -> None:
        key = key_of(message.body["id"])
        if self._under_way.pop(key, None) is not None:
            self._receive(Message.of(error_of(message.body["id"], code, text), key))

    # -- unsolicited messages of the server ----------------------------------------------------------------------------

    def _get(self, last: str | None = None) -> Stream:
        headers = {"accept": "text/event-stream", **self._session_headers()}
        return self._http.request("GET", self.url, headers | ({"last-event-id": last} if last else {}))

    def _listen(self) -> None:
        last, retry, tries = None, 1.0, 0
        while tries < _RECONNECTIONS and not self._is_closed:
            tries += 1
            try:
                with self._get(last) as stream:
                    if stream.status != 200:  # the server does not offer the stream
                        return
                    for event in stream.events():
                        last, retry, tries = event.id or last, event.retry or retry, 0
                        if event.data:
                            self._deliver(Message(event.data))
            except (HttpFailure, ValueError) as problem:
                _log.info("the stream of the server has broken off: %s", problem)
            time.sleep(retry)

    def _open_old_transport(self, message: Message) -> bool:
        """HTTP with SSE, as of 2024-11-05. Returns whether the server speaks it; then the message was sent."""
        try:
            stream = self._get()
        except HttpFailure:
            return False
        kind = stream.header("content-type", "").partition(";")[0].strip().lower()
        if stream.status != 200 or kind != "text/event-stream":
            stream.close()
            return False
        threading.Thread(target=self._read_old_stream, args=(stream,), daemon=True).start()
        if not self._has_endpoint.wait(_PATIENCE):
            stream.abort()
            return False
        with self._post(message) as reply:
            reply.read_all()
            if reply.status >= 400:
                self._give_up(message, *self._why_nothing(reply))
        return True

    def _read_old_stream(self, stream: Stream) -> None:
        try:
            for event in stream.events():
                if event.name == "endpoint":
                    self._set_endpoint(event.data.decode("utf-8", "replace"))
                elif event.data:
                    self._deliver(Message(event.data))
        except (HttpFailure, ValueError) as problem:
            _log.warning("the stream of the server has broken off: %s", problem)
        finally:
            stream.close()
            self._ended()

    def _set_endpoint(self, text: str) -> None:
        """Raises ValueError for a URL of another server, which would get the headers of this one."""
        found = urljoin(self.url, text)
        here, there = urlsplit(self.url), urlsplit(found)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise ValueError(f"the server sends messages to another server: `{there.netloc}`")
        self._endpoint = found
        self._has_endpoint.set()

    def close(self) -> int:
        """Requests that are under way have a moment to end."""
        until = time.monotonic() + _GRACE
        while self._under_way and time.monotonic() < until:
            time.sleep(0.01)
        self._is_closed = True
        if self._session is not None and self._endpoint is None:
            with suppress(HttpFailure), self._http.request("DELETE", self.url, self._session_headers()) as reply:
                reply.read_all()
        self._http.close()
        return 0
