"""Requests of a client to the service."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any
from urllib.parse import quote

import msgspec

from bylaw.guard.service.api.shapes import ReviewAnswer

INSTALL = "the client needs httpx2: pip install 'bylaw[client]'"
RUBBISH = "the answer is not one of this service"
MOST_ANSWER = 16 << 20
"""bytes of one answer"""


class Unreachable(Exception):
    """The service did not answer."""


class NoAnswer(Unreachable):
    """Something has answered, but not what was asked: the service has too much to do, or has failed, or this is not the
    service at all. What happened is told again later; no call runs for it."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceRefused(ValueError):
    """The service has answered that it does not do this: a key that is not valid, or of another agent, …"""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Link:
    """Requests to the service. One that was not sent is tried again; any other may have been decided, so it is not."""

    _kind, _transport = "Client", "HTTPTransport"

    def __init__(self, url: str, key: str, timeout: float, http: Any) -> None:
        try:
            import httpx2
        except ImportError:
            raise RuntimeError(INSTALL) from None
        from bylaw.guard.service.client_deadline import Deadline

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
        for _ in range(2):
            try:
                return self._fetch("POST", path, until, content=body)
            except self._library.ConnectError as problem:
                last = problem
                if time.monotonic() >= until:
                    break
            except self._library.HTTPError as problem:
                raise self._problem(problem) from None
        raise Unreachable(_told(last)) from None

    def wait(self, review: str, seconds: float) -> ReviewAnswer:
        try:
            return _answer(self._fetch("GET", *self._waiting(review, seconds)))
        except self._library.HTTPError as problem:
            raise self._problem(problem) from None

    def _fetch(self, method: str, path: str, until: float, **more: Any) -> bytes:
        """`until` is for all of it: a server that sends its answer byte by byte is away too."""
        client, parts, size = self._client(), [], 0
        seconds = max(0.001, until - time.monotonic())
        with (
            self._deadline.at(until),
            client.stream(method, path, headers=self._headers(), timeout=seconds, **more) as response,
        ):
            for part in response.iter_raw() if _is_plain(response) else ():
                size += len(part)
                _check_bounds(size, until)
                parts.append(part)
        return _content(response.status_code, b"".join(parts))

    def _waiting(self, review: str, seconds: float) -> tuple[str, float]:
        """The path, and until when it has to answer."""
        given = max(0.0, seconds)
        until = time.monotonic() + given + self._timeout
        return f"/v1/reviews/{quote(review, safe='')}/wait?timeout={given}", until

    def _problem(self, problem: Exception) -> Unreachable:
        """Only a connection that fails or takes too long says that the service is away."""
        is_away = isinstance(problem, self._library.NetworkError | self._library.TimeoutException)
        return Unreachable(_told(problem)) if is_away else NoAnswer(_told(problem))

    def close(self) -> None:
        if not self._given:
            self._http.close()


class AsyncLink(Link):
    _kind, _transport = "AsyncClient", "AsyncHTTPTransport"

    async def apost(self, path: str, body: bytes) -> bytes:
        until = time.monotonic() + self._timeout
        for again in (False, True):
            try:
                return await self._afetch("POST", path, until, content=body)
            except self._library.ConnectError as problem:
                if again:
                    raise Unreachable(_told(problem)) from None
            except self._library.HTTPError as problem:
                raise self._problem(problem) from None
        raise AssertionError

    async def await_review(self, review: str, seconds: float) -> ReviewAnswer:
        try:
            return _answer(await self._afetch("GET", *self._waiting(review, seconds)))
        except self._library.HTTPError as problem:
            raise self._problem(problem) from None

    async def _afetch(self, method: str, path: str, until: float, **more: Any) -> bytes:
        parts, size = [], 0
        seconds = max(0.001, until - time.monotonic())
        try:
            async with (
                asyncio.timeout(seconds),
                self._client().stream(method, path, headers=self._headers(), timeout=seconds, **more) as response,
            ):
                if _is_plain(response):
                    async for part in response.aiter_raw():
                        size += len(part)
                        _check_bounds(size, until)
                        parts.append(part)
        except TimeoutError:
            raise Unreachable("it takes too long") from None
        return _content(response.status_code, b"".join(parts))

    async def aclose(self) -> None:
        if not self._given:
            await self._http.aclose()


def _is_plain(response: Any) -> bool:
    """Nothing is decompressed, since a small answer could become a very long one. Raises NoAnswer."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("it sends a compressed answer")
    return True


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


def _answer(content: bytes) -> ReviewAnswer:
    try:
        return msgspec.json.decode(content, type=ReviewAnswer)
    except (ValueError, RecursionError):
        raise NoAnswer(RUBBISH) from None


def _told(problem: Exception) -> str:
    return str(problem)[:200] or type(problem).__name__


def encode_body(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode()
