"""Requests of a client to the service."""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec

from bylaw.guard.service.api.shapes import ReviewAnswer

INSTALL = "the client needs httpx2: pip install 'bylaw[client]'"
AWAY = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses of a service that cannot answer"""


class Unreachable(Exception):
    """The service did not answer, or could not."""


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
        self._library, self._url, self._key, self._timeout = httpx2, url, key, timeout
        self._http, self._process = http or self._open(), os.getpid()
        self._given = http is not None

    def _open(self) -> Any:
        make = getattr(self._library, self._kind)
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        if self._url.startswith("unix:"):
            transport = getattr(self._library, self._transport)(uds=self._url.removeprefix("unix:"))
            return make(transport=transport, base_url="http://service", headers=headers, timeout=self._timeout)
        return make(base_url=self._url, headers=headers, timeout=self._timeout, follow_redirects=False)

    def _client(self) -> Any:
        if self._process != os.getpid() and not self._given:  # a forked child must not share the connection
            self._http, self._process = self._open(), os.getpid()
        return self._http

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}", "content-type": "application/json"}

    def post(self, path: str, body: bytes) -> bytes:
        """Raises Unreachable, ServiceRefused."""
        for again in (False, True):
            try:
                return _content(self._client().post(path, content=body, headers=self._headers()))
            except self._library.ConnectError as problem:
                if again:
                    raise Unreachable(_told(problem)) from None
            except self._library.HTTPError as problem:
                raise Unreachable(_told(problem)) from None
        raise AssertionError

    def wait(self, review: str, seconds: float) -> ReviewAnswer:
        given = {"timeout": max(0.0, seconds)}
        try:
            response = self._client().get(
                f"/v1/reviews/{review}/wait", params=given, headers=self._headers(), timeout=seconds + self._timeout
            )
        except self._library.HTTPError as problem:
            raise Unreachable(_told(problem)) from None
        return msgspec.json.decode(_content(response), type=ReviewAnswer)

    def close(self) -> None:
        if not self._given:
            self._http.close()


class AsyncLink(Link):
    _kind, _transport = "AsyncClient", "AsyncHTTPTransport"

    async def apost(self, path: str, body: bytes) -> bytes:
        for again in (False, True):
            try:
                return _content(await self._client().post(path, content=body, headers=self._headers()))
            except self._library.ConnectError as problem:
                if again:
                    raise Unreachable(_told(problem)) from None
            except self._library.HTTPError as problem:
                raise Unreachable(_told(problem)) from None
        raise AssertionError

    async def await_review(self, review: str, seconds: float) -> ReviewAnswer:
        given = {"timeout": max(0.0, seconds)}
        try:
            response = await self._client().get(
                f"/v1/reviews/{review}/wait", params=given, headers=self._headers(), timeout=seconds + self._timeout
            )
        except self._library.HTTPError as problem:
            raise Unreachable(_told(problem)) from None
        return msgspec.json.decode(_content(response), type=ReviewAnswer)

    async def aclose(self) -> None:
        if not self._given:
            await self._http.aclose()


def _content(response: Any) -> bytes:
    if response.status_code == 200:
        return bytes(response.content)
    if response.status_code in AWAY:
        raise Unreachable(f"it answers {response.status_code}")
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"it answers {response.status_code}"
    raise ServiceRefused(response.status_code, message[:500])


def _told(problem: Exception) -> str:
    return str(problem)[:200] or type(problem).__name__


def encode_body(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode()
