"""One HTTP POST with a hard deadline.

A socket timeout starts again with every byte, so a server that sends single bytes can keep a client waiting forever.
Here the exchange runs in a thread. At the deadline the caller shuts the socket down, which ends the thread, and returns
at once. A name lookup cannot be interrupted; a thread that hangs in one is left behind as a daemon.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

MOST_BYTES = 4 * 1024**2
"""the longest reply that is read"""


class HttpUnreachable(Exception):
    """No connection, or it broke. `reason` is what the operating system says."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadHttpReply(Exception):
    """The reply is not HTTP, is cut short, or is too long."""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, name: str = "the server"
) -> tuple[int, bytes]:
    """Status and body of the reply; redirects are not followed. `name` is what messages call the server.

    Raises TimeoutError, HttpUnreachable, BadHttpReply.
    """
    if seconds <= 0:
        raise TimeoutError(f"no time was left to ask {name}")
    post = _Post(url, body, headers, seconds)
    post.start()
    post.join(seconds)
    if post.is_alive():
        post.hang_up()
        raise TimeoutError(f"{name} did not answer within {seconds:.3g} s")
    return post.reply(name)


class _Post(threading.Thread):
    def __init__(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> None:
        super().__init__(name="bylaw-http-post", daemon=True)
        self._parts = urlsplit(url)
        self._body = body
        self._headers = dict(headers)
        self._deadline = time.monotonic() + seconds
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=seconds)
        self._socket: socket.socket | None = None
        """stored because the connection drops its own reference while a reply is still being read"""
        self._gave_up = False
        self._reply: tuple[int, bytes] | None = None
        self._problem: Exception | None = None

    def run(self) -> None:
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            if self._gave_up:
                return
            path = self._parts.path + (f"?{self._parts.query}" if self._parts.query else "")
            self._connection.request("POST", path, self._body, self._headers)
            with self._connection.getresponse() as response:
                self._reply = response.status, response.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._problem = problem
        finally:
            self._connection.close()

    def hang_up(self) -> None:
        self._gave_up = True
        open_socket = self._socket or self._connection.sock
        if open_socket is not None:
            try:
                open_socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                open_socket.close()

    def reply(self, name: str) -> tuple[int, bytes]:
        if self._problem is not None:
            raise self._failure(self._problem, name) from self._problem
        assert self._reply is not None
        if len(self._reply[1]) > MOST_BYTES:
            raise BadHttpReply(f"{name}'s reply is longer than {MOST_BYTES // 1024**2} MiB")
        return self._reply

    def _failure(self, problem: Exception, name: str) -> Exception:
        server = f"{name} at `{self._parts.scheme}://{self._parts.netloc}`"
        if isinstance(problem, TimeoutError) or time.monotonic() >= self._deadline:
            return TimeoutError(f"{server} did not answer in time")
        if isinstance(problem, http.client.IncompleteRead):
            return BadHttpReply(f"{name}'s reply was cut short")
        if isinstance(problem, http.client.HTTPException) and not isinstance(problem, OSError):
            return BadHttpReply(f"{server} does not speak HTTP")
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        reason = f"{reason[:1].lower()}{reason[1:]}"
        return HttpUnreachable(f"{server} cannot be reached: {reason}", reason)
