"""One deadline for a whole request. httpx2 has limits for each attempt to connect, each read and each write: a server
that sends its answer byte by byte never reaches one.

INVARIANT: a request of a sync client runs in the thread that has asked for it, so the deadline is one of the thread.
Names are looked up by the system, which takes no deadline.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2

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


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, inner: httpcore2.NetworkBackend, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def connect_tcp(  # type: ignore[override]  # whatever else there is, is passed on
        self, host: str, port: int, timeout: float | None = None, **more: Any
    ) -> httpcore2.NetworkStream:
        """A name may have several addresses. They share the time."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise httpcore2.ConnectError(str(problem)) from problem
        *others, last = [str(one[4][0]) for one in found] if len(found) > 1 else [host]
        for address in others:
            try:
                return self._connect(address, port, timeout, more)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return self._connect(last, port, timeout, more)

    def _connect(self, host: str, port: int, timeout: float | None, more: dict[str, Any]) -> httpcore2.NetworkStream:
        stream = self._inner.connect_tcp(host, port, timeout=self._deadline.left(timeout), **more)
        return _Stream(stream, self._deadline)

    def connect_unix_socket(  # type: ignore[override]
        self, path: str, timeout: float | None = None, **more: Any
    ) -> httpcore2.NetworkStream:
        stream = self._inner.connect_unix_socket(path, timeout=self._deadline.left(timeout), **more)
        return _Stream(stream, self._deadline)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(self._deadline.left(seconds) or 0.0)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, timeout=self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), SLICE):
            self._inner.write(buffer[start : start + SLICE], timeout=self._deadline.left(timeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        stream = self._inner.start_tls(ssl_context, server_hostname, timeout=self._deadline.left(timeout))
        return _Stream(stream, self._deadline)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
