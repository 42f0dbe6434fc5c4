"""MCP by HTTP, against a scripted server: what can go wrong on the way, and what a client may not send."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

import bylaw
from bylaw.guard.integrations.mcp.http import HttpServer
from bylaw.guard.integrations.mcp.listener import McpListener
from bylaw.guard.integrations.mcp.messages import (
    VERSION_KEY,
    Message,
    decode_value,
    encode,
    encode_value,
    routing_headers,
)
from bylaw.guard.integrations.mcp.proxy import Settings
from tests.guard.integrations.situations import RULES

Script = Callable[["Handler", Any], object]


class Handler(BaseHTTPRequestHandler):
    server: Upstream
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        message = json.loads(body) if body else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.heard.append((self.command, self.path, headers, message))
        self.server.script(self, message)

    do_POST = do_GET = do_DELETE = _any

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, message: Any, result: Any, **headers: str) -> None:
        body = encode({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self.reply(200, body, content_type="application/json", **headers)

    def events(self, *texts: str, wait: float = 0.0) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for text in texts:
            self.wfile.write(text.encode())
            self.wfile.flush()
        time.sleep(wait)


class Upstream(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard: list[tuple[str, str, dict[str, str], Any]] = []
        self.script: Script = lambda handler, message: handler.answer(message, {})
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        self.reported: list[dict[str, Any]] = []
        self.connected: list[HttpServer] = []
        self._news = threading.Condition()

    def connect(self, headers: dict[str, str] | None = None) -> HttpServer:
        server = HttpServer(self.url, headers)
        self.connected.append(server)
        server.start(self.take, lambda: None)
        return server

    def take(self, message: Message) -> None:
        with self._news:
            assert b"\n" not in message.as_one_line().line
            self.reported.append(message.body)
            self._news.notify()

    def wait(self, count: int = 1) -> list[dict[str, Any]]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.reported) >= count, 120), self.reported
        return self.reported


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        for connected in server.connected:
            connected.close()
        server.shutdown()


def request(method: str, id: Any = 1, version: str | None = None, **params: Any) -> Message:
    meta = {"_meta": {VERSION_KEY: version}} if version else {}
    return Message.of({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, **meta}})


MODERN = "2026-07-28"


def test_a_session_is_kept_and_ended(upstream: Upstream) -> None:
    def script(handler: Handler, message: Any) -> None:
        if handler.command != "POST":
            handler.reply(405 if handler.command == "GET" else 200)
        elif message["method"] == "initialize":
            handler.answer(message, {"protocolVersion": "2025-06-18"}, mcp_session_id="s-1")
        elif "id" not in message:
            handler.reply(202)
        else:
            pretty = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"a": "ä"}}, indent=2)
            handler.reply(200, pretty.encode(), content_type="application/json; charset=utf-8")

    upstream.script = script
    server = upstream.connect({"Authorization": "Bearer x"})
    server.send(request("initialize"))
    upstream.wait(1)
    server.send(Message.of({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    server.send(request("tools/list", 2))
    assert upstream.wait(2)[1]["result"] == {"a": "ä"}
    server.close()
    first, *others = upstream.heard
    assert "mcp-session-id" not in first[2] and {one[0] for one in others} == {"POST", "GET", "DELETE"}
    for _, _, headers, _ in others:
        assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == ("s-1", "2025-06-18")
    assert all(one[2]["authorization"] == "Bearer x" for one in upstream.heard)


@pytest.mark.parametrize(
    ("reply", "code", "text"),
    [
        (lambda handler, _: handler.reply(500), -32603, "HTTP 500"),
        (lambda handler, _: handler.reply(401, b"{}", content_type="text/plain"), -32603, "HTTP 401"),
        (lambda handler, _: handler.reply(404), -32601, "not found"),
        (lambda handler, _: handler.reply(202), -32603, "HTTP 202 and no message"),
        (lambda handler, _: handler.reply(302, location="/x"), -32600, "redirects to `/x`"),
        (lambda handler, _: handler.reply(307, location="http://other.example/"), -32600, "http://other.example/"),
        (lambda handler, _: handler.reply(200, b"nonsense", content_type="application/json"), -32603, "cannot be read"),
        (lambda handler, _: handler.events("data: {}\n\n"), -32603, "HTTP 200"),
        (lambda handler, _: handler.events(), -32603, "HTTP 200"),
        (lambda handler, _: handler.hang_up(), -32000, "cannot be reached"),
        (
            lambda handler, _: handler.reply(
                400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"no"}}', content_type="application/json"
            ),
            -5,
            "no",
        ),
    ],
)
def test_a_request_without_an_answer_fails(upstream: Upstream, reply: Script, code: int, text: str) -> None:
    upstream.script = reply
    upstream.connect().send(request("tools/list", "a"))
    [reported, *others] = [one for one in upstream.wait() if "error" in one] or [{}]
    if not reported:
        [reported] = [one for one in upstream.wait(2) if "error" in one]
    assert (
        (reported["id"], reported["error"]["code"]) == ("a", code)
        and text in reported["error"]["message"]
        and not others
    )
    assert len([one for one in upstream.heard if one[0] == "POST"]) == 1, "it is sent once"


def test_a_server_that_is_not_there() -> None:
    reported: list[Any] = []
    server = HttpServer("http://127.0.0.1:1/mcp")
    server.start(lambda message: reported.append(message.body), lambda: None)
    server.send(request("tools/list"))
    server.close()
    assert "cannot be reached" in reported[0]["error"]["message"]


def test_a_redirect_on_the_same_server_is_followed(upstream: Upstream) -> None:
    def script(handler: Handler, message: Any) -> None:
        if handler.path == "/mcp":
            handler.reply(307, location="/mcp/")
        else:
            handler.answer(message, {"at": handler.path})

    upstream.script = script
    server = upstream.connect()
    server.send(request("ping", 1))
    assert upstream.wait()[0]["result"] == {"at": "/mcp/"}
    server.send(request("ping", 2))
    upstream.wait(2)
    assert [one[1] for one in upstream.heard] == ["/mcp", "/mcp/", "/mcp/"]


def test_a_stream_that_breaks_off_is_resumed(upstream: Upstream) -> None:
    note = '{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'

    def script(handler: Handler, message: Any) -> None:
        if handler.command == "POST":
            handler.events(f"id: 7\nretry: 1\ndata: {note}\n\n")
        else:
            handler.events('data: {"jsonrpc":"2.0","id":1,\ndata: "result":{}}\n\n')

    upstream.script = script
    upstream.connect().send(request("tools/call"))
    reported = upstream.wait(2)
    assert [one.get("method", one.get("id")) for one in reported] == ["notifications/progress", 1]
    assert upstream.heard[1][2]["last-event-id"] == "7"


def test_cancelling_closes_the_reply(upstream: Upstream) -> None:
    gone = threading.Event()

    def script(handler: Handler, message: Any) -> None:
        handler.connection.settimeout(10)
        if handler.connection.recv(1) == b"":
            gone.set()

    upstream.script = script
    server = upstream.connect()
    server.send(request("tools/call", 5, MODERN))
    while not upstream.heard:
        time.sleep(0.005)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    server.send(Message.of(cancelled))
    assert gone.wait(5) and len(upstream.heard) == 1, "it is not sent as a message"
    assert upstream.reported == []


def test_the_older_transport(upstream: Upstream) -> None:
    messages: list[Any] = []
    stop = threading.Event()

    def script(handler: Handler, message: Any) -> None:
        if handler.command == "GET":
            handler.events("event: endpoint\ndata: /messages?s=1\n\n")
            while not stop.wait(0.005):
                while messages:
                    answer = {
                        "jsonrpc": "2.0",
                        "id": messages.pop(0)["id"],
                        "result": {"protocolVersion": "2024-11-05"},
                    }
                    handler.wfile.write(b"event: message\ndata: " + encode(answer) + b"\n\n")
                    handler.wfile.flush()
        elif handler.path == "/mcp":
            handler.reply(405)
        else:
            messages.append(message)
            handler.reply(202)

    upstream.script = script
    server = upstream.connect()
    server.send(request("initialize", 1))
    assert upstream.wait()[0]["result"]["protocolVersion"] == "2024-11-05"
    server.send(request("ping", 2))
    upstream.wait(2)
    stop.set()
    assert [one[:2] for one in upstream.heard if one[0] == "POST"][1:] == [("POST", "/messages?s=1")] * 2
    server.close()


def test_messages_never_go_to_another_server(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylaw.guard.integrations.mcp.http._PATIENCE", 0.2)

    def script(handler: Handler, message: Any) -> None:
        if handler.command == "GET":
            handler.events("event: endpoint\ndata: http://thief.example/messages\n\n", wait=0.3)
        else:
            handler.reply(405)

    upstream.script = script
    upstream.connect({"Authorization": "Bearer x"}).send(request("initialize"))
    assert "HTTP 405" in upstream.wait()[0]["error"]["message"]


def test_a_proxy_of_the_environment_is_asked_with_its_password(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", upstream.url.replace("http://", "http://me:p%40ss@"))
    monkeypatch.setenv("no_proxy", "10.0.0.0/8")
    upstream.url = "http://shop.example/mcp"
    upstream.connect().send(request("tools/list"))
    upstream.wait()
    _, target, headers, _ = upstream.heard[0]
    assert target == "http://shop.example/mcp"
    assert headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


def test_headers_say_what_the_message_says() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "bad": {"type": "string", "x-mcp-header": "no token"},
        }
    }
    arguments = {"region": "köln", "deep": {"n": 5}, "bad": "x"}
    body = request("tools/call", 1, MODERN, name="pay", arguments=arguments).body
    assert routing_headers(body, {"pay": schema}) == {
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "pay",
        "mcp-param-region": encode_value("köln"),
        "mcp-param-n": "5",
    }
    assert routing_headers(request("tools/call", 1, "2025-06-18", name="x").body, {}) == {}
    for text in ("plain", "", " edge", "köln", "a\r\nb: c", "=?base64?eA==?="):
        assert decode_value(encode_value(text)) == text and encode_value(text).isascii()
        assert "\r" not in encode_value(text)
    assert decode_value("=?base64?!?=") is None and decode_value("=?base64?eB==?=") is None


# -- what a client may send


PAGE = "http://localhost:3000"


@pytest.fixture
def listener(upstream: Upstream) -> Iterator[McpListener]:
    with bylaw.Guard({"guard": RULES}) as guard:
        settings = Settings(guard=guard, make_server=lambda: HttpServer(upstream.url))
        with McpListener(settings, "127.0.0.1", 0, session_header="x-task", origins=[PAGE]) as listener:
            threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            yield listener
            listener.shutdown()


def send(listener: McpListener, body: Any, method: str = "POST", path: str = "/mcp", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(listener.url).port or 0, timeout=120)
    data = body if isinstance(body, bytes) else encode(body)
    given = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, data, given)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, json.loads(text) if text else None


CALL = request("tools/call", 1, MODERN, name="drop", arguments={}).body


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"nonsense", {}, 400),
        (b"[]", {}, 400),
        (b"[%b]" % encode(CALL), {}, 400),
        (encode(CALL).replace(b'"method"', b'"method":"ping","method"'), {}, 400),
        ({**CALL, "id": True}, {}, 400),
        ({**CALL, "id": [1]}, {}, 400),
        (CALL, {"host": "evil.example"}, 403),
        (CALL, {"origin": "https://evil.example"}, 403),
        (CALL, {"origin": "http://localhost:3001", "x_task": "t"}, 403),
        (CALL, {"origin": "http://127.0.0.1", "x_task": "t"}, 403),
        (CALL, {"origin": "null", "x_task": "t"}, 403),
        (CALL, {"method": "OPTIONS", "origin": "http://localhost:3001"}, 403),
        (CALL, {"content_type": "text/plain", "x_task": "t"}, 415),
        (CALL, {"content_type": "text/plain; application/json", "x_task": "t"}, 415),
        ({**CALL, "Params": {}}, {"x_task": "t"}, 400),
        ({**CALL, "result": {}}, {"x_task": "t"}, 400),
        (CALL, {"path": "/other"}, 404),
        (CALL, {"mcp_session_id": "made-up"}, 404),
        (CALL, {"mcp_name": "look", "x_task": "t"}, 400),
        (CALL, {"mcp_method": "ping", "x_task": "t"}, 400),
        (CALL, {"mcp_protocol_version": "2025-06-18", "x_task": "t"}, 400),
        (CALL, {}, 400),
        (request("tools/call", 1, name="drop").body, {}, 400),
        (CALL, {"transfer_encoding": "chunked"}, 411),
        (b"x" * 10, {"content_length": "99999999999"}, 413),
        (CALL, {"method": "GET"}, 405),
        (CALL, {"method": "DELETE"}, 404),
    ],
)
def test_requests_that_are_refused(
    listener: McpListener, upstream: Upstream, body: Any, headers: dict[str, str], status: int
) -> None:
    assert send(listener, body, **headers)[0] == status
    assert upstream.heard == []


def test_requests_that_stand_alone(listener: McpListener, upstream: Upstream) -> None:
    """Clients choose the same ids, and a header names the session."""
    status, reported = send(listener, CALL, x_task="a", origin=PAGE, content_type="application/json; charset=utf-8")
    assert send(listener, b"", "OPTIONS", origin=PAGE)[0] == 204
    assert status == 200 and reported["id"] == 1 and reported["result"]["isError"] is True and upstream.heard == []
    book = request("tools/call", 1, MODERN, name="book", arguments={"seat": 1}, progress=1).body
    upstream.script = lambda handler, message: handler.answer(message, {"n": message["id"]})
    results = [send(listener, book, x_task=task)[1]["result"] for task in ("a", "a", "b")]
    assert [result.get("isError", False) for result in results] == [False, True, False]
    (first, *_), (second, *_) = [(one[3]["id"], one[2]) for one in upstream.heard]
    assert first != 1 or second != 1, "ids are not those of the clients"


def test_sessions_end_with_a_request(listener: McpListener, upstream: Upstream) -> None:
    upstream.script = lambda handler, message: (
        handler.answer(message, {"protocolVersion": "2025-06-18"}) if message else handler.reply(405)
    )
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(listener.url).port or 0, timeout=120)
    connection.request("POST", "/mcp", request("initialize").line, {"content-type": "application/json"})
    reply = connection.getresponse()
    id = reply.getheader("mcp-session-id")
    assert reply.read() and id
    connection.close()
    assert send(listener, request("ping", 2).body, mcp_session_id=id)[0] == 200
    assert send(listener, b"", "DELETE", mcp_session_id=id)[0] == 200
    assert send(listener, request("ping", 3).body, mcp_session_id=id)[0] == 404
