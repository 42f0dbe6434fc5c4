"""One HTTP request with a hard deadline, and the proxy that the user's environment names for a server.

A socket timeout starts again with every byte, so a server that sends single bytes can keep a client waiting forever.
Here the exchange runs in a thread. At the deadline the caller shuts the socket down, which ends the thread, and returns
at once. A name lookup cannot be interrupted; a thread that hangs in one is left behind as a daemon.
"""

from __future__ import annotations

import base64
import http.client
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import SplitResult, unquote, urlsplit

from bylaw.wire.exchange import Incoming

MOST_BYTES = 4 * 1024**2
"""the longest reply that is read"""


class HttpUnreachable(Exception):
    """The connection failed or broke. `reason` is the error of the operating system."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadHttpReply(Exception):
    """The reply is not HTTP, is cut short, or is too long."""


class CutHttpReply(BadHttpReply):
    """The connection was closed before the reply had ended."""


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, name: str = "the server"
) -> tuple[int, bytes]:
    """Status and body of the reply to a POST; as `fetch`."""
    reply = fetch("POST", url, headers, body=body, seconds=seconds, name=name)
    return reply.status, reply.body


def fetch(
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    seconds: float,
    body: bytes | None = None,
    name: str = "the server",
    most: int = MOST_BYTES,
    proxy: str | None = None,
) -> Incoming:
    """The reply; redirects are not followed. `name` is what messages call the server, `most` the longest body.

    `proxy`: the address of an HTTP proxy to go through; HTTPS is tunnelled, so it sees only the name of the server.
    Raises TimeoutError, HttpUnreachable, BadHttpReply.
    """
    if seconds <= 0:
        raise TimeoutError(f"no time was left to ask {name}")
    exchange = _Exchange(method, url, body, headers, seconds, most, proxy)
    exchange.start()
    exchange.join(seconds)
    if exchange.is_alive():
        exchange.hang_up()
        raise TimeoutError(f"{name} did not answer within {seconds:.3g} s")
    return exchange.reply(name)


class _Exchange(threading.Thread):
    def __init__(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        most: int,
        proxy: str | None,
    ) -> None:
        super().__init__(name="bylaw-http", daemon=True)
        self._method, self._most = method, most
        self._parts = urlsplit(url)
        self._body = body
        self._headers = dict(headers)
        self._deadline = time.monotonic() + seconds
        is_secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        self._proxy = None if proxy is None else urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        near = self._proxy or self._parts
        port = near.port or (80 if self._proxy is not None else None)
        self._connection = kind(near.hostname or "", port, timeout=seconds)
        if self._proxy is not None:
            given = proxy_credentials(self._proxy)
            if is_secure:
                self._connection.set_tunnel(self._parts.hostname or "", self._parts.port, given)
            else:
                self._headers |= given
        self._socket: socket.socket | None = None
        """stored because the connection drops its own reference while a reply is still being read"""
        self._gave_up = False
        self._reply: Incoming | None = None
        self._problem: Exception | None = None

    def run(self) -> None:
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            if self._gave_up:
                return
            path = self._parts.path + (f"?{self._parts.query}" if self._parts.query else "")
            if self._proxy is not None and self._parts.scheme == "http":
                path = f"http://{self._parts.netloc.rpartition('@')[2]}{path}"
            self._connection.request(self._method, path, self._body, self._headers)
            with self._connection.getresponse() as response:
                found = {key.lower(): value for key, value in response.getheaders()}
                content = response.read(self._most + 1)
                if response.length and len(content) <= self._most:  # a read of bounded length does not raise this
                    raise http.client.IncompleteRead(content, response.length)
                self._reply = Incoming(response.status, found, content)
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

    def reply(self, name: str) -> Incoming:
        if self._problem is not None:
            raise self._failure(self._problem, name) from self._problem
        assert self._reply is not None
        if len(self._reply.body) > self._most:
            raise BadHttpReply(f"{name}'s reply is longer than {self._most // 1024**2} MiB")
        return self._reply

    def _failure(self, problem: Exception, name: str) -> Exception:
        server = f"{name} at `{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}`"
        if self._proxy is not None:
            server += f", through the proxy `{self._proxy.netloc.rpartition('@')[2]}`,"
        if isinstance(problem, TimeoutError) or time.monotonic() >= self._deadline:
            return TimeoutError(f"{server} did not answer in time")
        if isinstance(problem, http.client.IncompleteRead):
            return CutHttpReply(f"{name}'s reply was cut short")
        if isinstance(problem, http.client.HTTPException) and not isinstance(problem, OSError):
            return BadHttpReply(f"{server} does not speak HTTP")
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        reason = f"{reason[:1].lower()}{reason[1:]}"
        return HttpUnreachable(f"{server} cannot be reached: {reason}", reason)


class UnusableProxy(Exception):
    """The proxy that the environment names cannot be used; the message says why."""


def proxy_for(host: str, port: int, *, secure: bool) -> SplitResult | None:
    """The HTTP proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name. Raises UnusableProxy."""
    from urllib.request import getproxies_environment, proxy_bypass  # slow to import

    proxies = getproxies_environment()
    kind = "https" if secure else "http"
    kind = kind if proxies.get(kind) else "all"
    proxy = proxies.get(kind)
    if proxy is None or proxy_bypass(f"{host}:{port}") or _is_in_network(host, proxies.get("no", "")):
        return None
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        _ = parts.port
    except ValueError:
        # the address may hold a password, so it is not shown
        raise UnusableProxy(f"the environment variable `{kind.upper()}_PROXY` is not a valid URL") from None
    if parts.scheme != "http" or not parts.hostname:
        named = f"`{parts.scheme}://{parts.hostname or ''}`, which `{kind.upper()}_PROXY` names"
        raise UnusableProxy(f"only HTTP proxies can be used, not {named}")
    return parts


def _is_in_network(host: str, exceptions: str) -> bool:
    """Whether `NO_PROXY` lists a network that has this address (`10.0.0.0/8`), which `proxy_bypass` does not read."""
    with suppress(ValueError):
        address = ip_address(host)
        for name in exceptions.split(","):
            with suppress(ValueError):
                if "/" in name and address in ip_network(name.strip(), strict=False):
                    return True
    return False


def proxy_credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": "Basic " + base64.b64encode(given.encode()).decode()}
