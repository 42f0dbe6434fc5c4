"""A receiver of webhooks on this machine that fails, hangs, drips and redirects as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    def __init__(self) -> None:
        self.answers: list[Any] = []
        """what to answer next: a status, `hang`, `drip`, `close`, `garbage`, or a redirect's address; then 200"""
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.address = ""
        self.released = threading.Event()


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(receiver))
    server.daemon_threads = True
    receiver.address = f"http://127.0.0.1:{server.server_address[1]}/hook"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((self.path, dict(self.headers), body))
            answer = receiver.answers.pop(0) if receiver.answers else 200
            if answer == "hang":
                receiver.released.wait(600)
            elif answer == "drip":
                self._drip()
            elif answer == "garbage":
                self.wfile.write(b"\0\xff not http\r\n\r\n")
            elif isinstance(answer, str) and answer.startswith("http"):
                self._answer(307, {"Location": answer})
            elif answer != "close":
                self._answer(answer, {})

        def do_GET(self) -> None:
            receiver.got.append((self.path, dict(self.headers), b"GET"))
            self._answer(200, {})

        def _answer(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _drip(self) -> None:
            """A byte now and then: each one would start a socket's own timeout anew."""
            try:
                while not receiver.released.is_set():
                    self.wfile.write(b"H")
                    time.sleep(0.05)
            except OSError:
                pass

        def log_message(self, *given: Any) -> None:
            pass

    return Handler
