"""One HTTP exchange that ends when its time is up, whatever the other side does.

A socket's own timeout starts anew with every byte, so a server that drips bytes can hold a client for as long as it
likes. Here a thread talks and the caller waits: at the deadline the socket is shut under the thread, which ends it, and
the caller goes on at once. Looking up a name cannot be cut short; a thread that hangs there is left behind as a daemon.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from bylaw.comply.judge.model import BadReply
from bylaw.errors import JudgeUnreachable

MOST_BYTES = 4 * 1024**2


def exchange(address: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> tuple[int, bytes]:
    """Status and body. Raises TimeoutError, JudgeUnreachable, BadReply. Redirects are not followed."""
    if seconds <= 0:
        raise TimeoutError("no time was left to ask the judge")
    talk = _Talk(address, body, headers, seconds)
    talk.start()
    talk.join(seconds)
    if talk.is_alive():
        talk.hang_up()
        raise TimeoutError(f"the judge did not answer within {seconds:.3g} s")
    return talk.outcome()


class _Talk(threading.Thread):
    def __init__(self, address: str, body: bytes, headers: Mapping[str, str], seconds: float) -> None:
        super().__init__(name="bylaw-judge", daemon=True)
        self._parts = urlsplit(address)
        self._body = body
        self._headers = dict(headers)
        self._deadline = time.monotonic() + seconds
        self._connection = self._connect(seconds)
        self._socket: socket.socket | None = None
        """held here as well: the connection lets go of it while an answer is still being read"""
        self._given_up = False
        self._answer: tuple[int, bytes] | None = None
        self._problem: Exception | None = None

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=seconds)

    def run(self) -> None:
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            if not self._given_up:
                self._answer = self._talk()
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._problem = problem
        finally:
            self._connection.close()

    def _talk(self) -> tuple[int, bytes]:
        path = self._parts.path + (f"?{self._parts.query}" if self._parts.query else "")
        self._connection.request("POST", path, self._body, self._headers)
        response = self._connection.getresponse()
        with response:
            return response.status, response.read(MOST_BYTES + 1)

    def hang_up(self) -> None:
        self._given_up = True
        held = self._socket or self._connection.sock
        if held is not None:
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                held.close()

    def outcome(self) -> tuple[int, bytes]:
        if self._problem is not None:
            raise self._what_went_wrong(self._problem) from self._problem
        assert self._answer is not None
        if len(self._answer[1]) > MOST_BYTES:
            raise BadReply(f"the judge's reply is longer than {MOST_BYTES // 1024**2} MiB")
        return self._answer

    def _what_went_wrong(self, problem: Exception) -> Exception:
        where = f"{self._parts.scheme}://{self._parts.netloc}"
        if isinstance(problem, TimeoutError) or time.monotonic() >= self._deadline:
            return TimeoutError(f"the judge at `{where}` did not answer in time")
        if isinstance(problem, http.client.IncompleteRead):
            return BadReply("the judge's reply was cut short")
        if isinstance(problem, http.client.HTTPException) and not isinstance(problem, OSError):
            return BadReply(f"the judge at `{where}` does not speak HTTP")
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        return JudgeUnreachable(f"the judge at `{where}` cannot be reached: {reason[:1].lower()}{reason[1:]}")
