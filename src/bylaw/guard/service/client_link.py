"""Requests of a client to the service, and its reviews as a client sees them: whether a person has answered.

Answers are for people, who have keys of their own: the key of an agent cannot approve what the agent asks for.

A whole request has one deadline. httpx2 has limits for each attempt to connect, each read and each write: a server that
sends its answer byte by byte never reaches one.

INVARIANT: a request of a sync client runs in the thread that has asked for it, so the deadline is one of the thread.
Names are looked up by the system, which takes no deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec

from bylaw.guard.reviews import NotAnswered
from bylaw.guard.service.messages import NoAnswer, ReviewAnswer, ServiceRefused, Unreachable, read_answer

INSTALL = "the client needs httpx2: pip install 'bylaw[client]'"
MOST_ANSWER = 16 << 20
"""bytes of one answer"""
SLICE = 4096
"""bytes that are written between two looks at the clock"""
_SHORTEST = 0.001
"""seconds that are left to an operation that begins at the deadline; 0 would mean that it does not wait at all"""


class Deadline:
    def __init__(self) -> None:
        self._thread = threading.local()

    @contextmanager
    def at(self, until: float) -> Iterator[None]:
        """`until`: by `time.monotonic`"""
        self._thread.until = until
        try:
            yield
        finally:
            del self._thread.until

    def left(self, timeout: float | None) -> float | None:
        until = getattr(self._thread, "until", None)
        if until is None:
            return timeout
        left: float = max(_SHORTEST, until - time.monotonic())
        return left if timeout is None else min(left, timeout)

    def bind(self, client: Any) -> None:
        """Make all connections of an `httpx2.Client` keep it."""
        for transport in (client._transport, *client._mounts.values()):
            pool = getattr(transport, "_pool", None)
            if pool is not None:
                pool._network_backend = _Backend(pool._network_backend, self)


class _Backend:
    """An `httpcore2.NetworkBackend`."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> _Stream:
        """A name may have several addresses. They share the time."""
        import httpcore2

        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise httpcore2.ConnectError(str(problem)) from problem
        addresses = [str(one[4][0]) for one in found] if len(found) > 1 else [host]
        for number, address in enumerate(addresses, 1):
            try:
                stream = self._inner.connect_tcp(address, port, timeout=self._deadline.left(timeout), **more)
                return _Stream(stream, self._deadline)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise AssertionError

    def connect_unix_socket(self, path: str, timeout: float | None = None, **more: Any) -> _Stream:
        stream = self._inner.connect_unix_socket(path, timeout=self._deadline.left(timeout), **more)
        return _Stream(stream, self._deadline)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(self._deadline.left(seconds) or 0.0)


class _Stream:
    """An `httpcore2.NetworkStream`."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline
        self.close, self.get_extra_info = inner.close, inner.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._inner.read(max_bytes, timeout=self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), SLICE):
            self._inner.write(buffer[start : start + SLICE], timeout=self._deadline.left(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        stream = self._inner.start_tls(ssl_context, server_hostname, timeout=self._deadline.left(timeout))
        return _Stream(stream, self._deadline)


class NotConnected(Unreachable):
    """Nothing was sent."""


class Link:
    """Requests to the service. One that was not sent is tried again; any other may have been decided, so it is not."""

    _kind, _transport = "Client", "HTTPTransport"

    def __init__(self, url: str, key: str, timeout: float, http: Any) -> None:
        try:
            import httpx2
        except ImportError:
            raise RuntimeError(INSTALL) from None
        self._library, self._url, self._key, self._timeout = httpx2, url, key, timeout
        self._deadline = Deadline()
        self._http, self._process = http or self._open(), os.getpid()
        self._given = http is not None

    def _open(self) -> Any:
        make, base, more = getattr(self._library, self._kind), self._url, {}
        if base.startswith("unix:"):
            more = {"transport": getattr(self._library, self._transport)(uds=base.removeprefix("unix:"))}
            base = "http://service"
        client = make(base_url=base, headers=self._headers(), timeout=self._timeout, follow_redirects=False, **more)
        if self._kind == "Client":  # asyncio has time-outs for anything
            self._deadline.bind(client)
        return client

    def _client(self) -> Any:
        if self._process != os.getpid() and not self._given:  # a forked child must not share the connection
            self._http, self._process = self._open(), os.getpid()
        return self._http

    def _headers(self) -> dict[str, str]:
        named = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        return {**named, "accept-encoding": "identity"}

    def post(self, path: str, body: bytes) -> bytes:
        """Raises Unreachable, ServiceRefused."""
        until = time.monotonic() + self._timeout
        try:
            return self._fetch("POST", path, until, content=body)
        except NotConnected:
            if time.monotonic() >= until:
                raise
        return self._fetch("POST", path, until, content=body)

    def wait(self, review: str, seconds: float) -> ReviewAnswer:
        return read_answer(self._fetch("GET", *self._waiting(review, seconds)), ReviewAnswer)

    def _fetch(self, method: str, path: str, until: float, **more: Any) -> bytes:
        """`until` is for all of it: a server that sends its answer byte by byte is away too."""
        client, parts, size = self._client(), [], 0
        seconds = max(_SHORTEST, until - time.monotonic())
        with (
            self._failures(),
            self._deadline.at(until),
            client.stream(method, path, headers=self._headers(), timeout=seconds, **more) as response,
        ):
            for part in _check_response(response).iter_raw():
                size += len(part)
                _check_bounds(size, until)
                parts.append(part)
        return _content(response.status_code, b"".join(parts))

    def _waiting(self, review: str, seconds: float) -> tuple[str, float]:
        """The path, and until when it has to answer."""
        given = max(0.0, seconds)
        until = time.monotonic() + given + self._timeout
        return f"/v1/reviews/{quote(review, safe='')}/wait?timeout={given}", until

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Only a connection that fails or takes too long says that the service is away."""
        library = self._library
        try:
            yield
        except library.ConnectError as problem:
            raise NotConnected(_describe_problem(problem)) from None
        except (library.NetworkError, library.TimeoutException) as problem:
            raise Unreachable(_describe_problem(problem)) from None
        except library.HTTPError as problem:
            raise NoAnswer(_describe_problem(problem)) from None
        except TimeoutError:
            raise Unreachable("it takes too long") from None

    def close(self) -> None:
        if not self._given:
            self._http.close()


class AsyncLink(Link):
    _kind, _transport = "AsyncClient", "AsyncHTTPTransport"

    async def apost(self, path: str, body: bytes) -> bytes:
        until = time.monotonic() + self._timeout
        try:
            return await self._afetch("POST", path, until, content=body)
        except NotConnected:
            if time.monotonic() >= until:
                raise
        return await self._afetch("POST", path, until, content=body)

    async def await_review(self, review: str, seconds: float) -> ReviewAnswer:
        return read_answer(await self._afetch("GET", *self._waiting(review, seconds)), ReviewAnswer)

    async def _afetch(self, method: str, path: str, until: float, **more: Any) -> bytes:
        client, parts, size = self._client(), [], 0
        seconds = max(_SHORTEST, until - time.monotonic())
        with self._failures():
            async with (
                asyncio.timeout(seconds),
                client.stream(method, path, headers=self._headers(), timeout=seconds, **more) as response,
            ):
                async for part in _check_response(response).aiter_raw():
                    size += len(part)
                    _check_bounds(size, until)
                    parts.append(part)
        return _content(response.status_code, b"".join(parts))

    async def aclose(self) -> None:
        if not self._given:
            await self._http.aclose()


def _check_response(response: Any) -> Any:
    """Nothing is decompressed, since a small answer could become a very long one. Raises NoAnswer."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("it sends a compressed answer")
    return response


def _check_bounds(size: int, until: float) -> None:
    if size > MOST_ANSWER:
        raise NoAnswer("its answer is too long")
    if time.monotonic() > until:
        raise Unreachable("it takes too long")


def _content(status: int, content: bytes) -> bytes:
    if status == 200:
        return content
    try:
        message = str(msgspec.json.decode(content)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        message = f"it answers {status}"
        if status in (502, 503, 504):  # of a proxy in front of it
            raise Unreachable(message) from None
    if status == 429 or status >= 500:
        raise NoAnswer(message[:500], status)
    raise ServiceRefused(status, message[:500])


def _describe_problem(problem: Exception) -> str:
    return str(problem)[:200] or type(problem).__name__


def encode_body(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode()


LONGEST_WAIT = 25.0
"""seconds of one request that waits for a review"""
_AWAY = 1.0
"""seconds until a service that is away is asked again"""


class RemoteReviews:
    """The part of `Guard.reviews` that agents need."""

    poll = 1.0
    """seconds between two looks at a review"""

    def __init__(self, link: Link) -> None:
        self._link = link

    def get(self, review_id: str) -> ReviewAnswer | None:
        """The answer; None if there is no such review. While the service is away, nobody has answered."""
        return self._ask(review_id, 0.0)

    def wait(self, review_id: str, *, timeout: float) -> ReviewAnswer:
        """The answer, or after the timeout that there is none. Raises NotAnswered if there is no such review."""
        until = time.monotonic() + timeout
        while True:
            answer = self._ask(review_id, min(LONGEST_WAIT, max(0.0, until - time.monotonic())))
            if answer is None:
                raise NotAnswered(f"there is no review `{review_id}`")
            left = until - time.monotonic()
            if answer.status != "pending" or left <= 0:
                return answer
            time.sleep(min(_AWAY, left))  # the service has answered early, or is away

    def list(self, **_: Any) -> list[Any]:
        """None: an agent does not see what others are asked."""
        return []

    def _ask(self, review_id: str, seconds: float) -> ReviewAnswer | None:
        try:
            return self._link.wait(review_id, seconds)
        except Unreachable:
            return ReviewAnswer(review=review_id, status="pending")
        except ServiceRefused as problem:
            if problem.status != 404:
                raise
            return None

    def _for_people(self, *_: Any, **__: Any) -> NoReturn:
        raise NotAnswered("a review of the service is answered by a person there: in the console, or by the JSON API")

    approve = reject = _for_people
