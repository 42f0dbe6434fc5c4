"""A server on loopback with the APIs of both providers, streaming included, which does what a prompt says.

The last message of a request may ask for: `use the tool` and `use two tools` (calls), `status N` (an error; `for N`
limits it to the first N requests with that text), `hang` (no answer), `cut` (breaks off in the middle), `wait` (waits
in the middle until a GET of `/go`), `packed` (gzip), `secret` (an answer with a card and a key); else it answers TEXT.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bylaw.contract.agents.scripted_model import Call, ScriptedReply, provider_reply
from bylaw.wire.exchange import Outgoing
from bylaw.wire.formats import model_call
from bylaw.wire.formats.base import Json, WireFormat

TEXT = "The order 4711 was sent on Monday and will be with you in three days."
CARD = "4111 1111 1111 1111"
KEY = "sk-live-0123456789abcdef0123"
CALLS = (
    Call("find_order", {"order": "4711"}),
    Call("find_customer", {"mail": "jane@example.com"}),
)
PATIENCE = 300
"""seconds that a waiting request waits at most"""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.seen: Counter[str] = Counter()
        self.goes_on = threading.Event()
        """requests that hang or wait continue when it is set"""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Some tests break the connection on purpose."""


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.endswith("/go"):
            self.server.goes_on.set()
        self._whole(200, b'{"object": "list", "data": []}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        found = model_call(Outgoing("POST", self.path, {}, body))
        if found is None:
            self._whole(404, b'{"error": {"type": "not_found_error", "message": "no such place"}}')
            return
        wire, asked = found
        self.server.asked.append(asked)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self._answer(wire, asked, _last_text(wire, asked))

    def _answer(self, wire: WireFormat, asked: Json, prompt: str) -> None:
        failing = re.search(r"status (\d+)(?: for (\d+))?", prompt)
        self.server.seen[prompt] += 1
        if failing and self.server.seen[prompt] <= int(failing[2] or 1000):
            error = wire.error(int(failing[1]), f"no: the key {KEY} is wrong" if failing[1] == "401" else None)
            self._whole(error.status, error.body, {**error.headers, "retry-after-ms": "1", "retry-after": "0"})
            return
        if "hang" in prompt:
            self.server.goes_on.wait(PATIENCE)
            self.close_connection = True
            return
        reply = provider_reply(wire.name, _scripted(prompt), asked)
        if asked.get("stream"):
            self._stream(wire.stream(reply), prompt)
            return
        body = json.dumps(reply, ensure_ascii="ascii" in prompt).encode()
        if "packed" in prompt:
            self._whole(200, gzip.compress(body), {"content-encoding": "gzip"})
        else:
            self._whole(200, body)

    def _whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: list[bytes], prompt: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events):
            if "cut" in prompt and number == len(events) // 2:
                self.close_connection = True
                self.connection.close()
                return
            if "wait" in prompt and number == len(events) // 2:
                assert self.server.goes_on.wait(PATIENCE)
            for piece in (event[: len(event) // 2], event[len(event) // 2 :]):  # no event comes in one piece
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def _last_text(wire: WireFormat, asked: Json) -> str:
    messages = wire.messages(asked)
    content = messages[-1].get("content") if messages and isinstance(messages[-1], dict) else ""
    return content if isinstance(content, str) else json.dumps(content)


def _scripted(prompt: str) -> ScriptedReply:
    if "use two tools" in prompt:
        return ScriptedReply(tool_calls=CALLS)
    if "use the tool" in prompt:
        return ScriptedReply(text="I look.", tool_calls=(CALLS[0],))
    return ScriptedReply(text=f"Your card {CARD} and your key {KEY}." if "secret" in prompt else TEXT)


if __name__ == "__main__":  # for programs in other languages: prints its address and serves until its input ends
    with serving() as started:
        print(started.url, flush=True)
        sys.stdin.read()
