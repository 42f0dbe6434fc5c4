"""The proxy between a recorded command and its models. It changes nothing.

Requests to the addresses in the child's environment and plain HTTP are recorded. HTTPS is decrypted only for hosts that
are known to serve models, or that were named; every other tunnel passes unread and is counted. If the user's
environment names a proxy, servers are reached through it.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from bylaw.record.recording import Recording
from bylaw.wire.exchange import Exchange, Outgoing
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.server import Proxy
from bylaw.wire.proxy.upstream import CONNECT_PATIENCE, Reply, Streams, UpstreamFailure, connect, fetch, trust

HOSTS = (
    "api.openai.com",
    "api.anthropic.com",
    "*.openai.azure.com",
    "*.services.ai.azure.com",
    "api.deepseek.com",
    "api.fireworks.ai",
    "api.groq.com",
    "api.mistral.ai",
    "api.together.xyz",
    "api.x.ai",
    "openrouter.ai",
)
"""hosts that serve models in one of the formats that are recorded"""
SESSION = "x-bylaw-session"
"""a header in which a program can name the session of a request; the proxy does not pass it on"""
_MOST_HEAD = 64 * 1024


class RecordingProxy(Proxy):
    def __init__(
        self, recording: Recording, *, upstreams: Mapping[str, str], authority: Authority, hosts: tuple[str, ...]
    ) -> None:
        super().__init__(upstreams=upstreams, authority=authority)
        self._recording = recording
        self._hosts = (*HOSTS, *(host.lower() for host in hosts))
        self.unread: Counter[str] = Counter()
        """tunnels that were not decrypted, by host"""
        self.refused: Counter[str] = Counter()
        """tunnels that were decrypted and whose client did not trust the certificate, by host"""

    def begin(self, request: Outgoing) -> Exchange:
        session = request.headers.pop(SESSION, None)
        return self._recording.listen(Exchange(request), session=session or None)

    def fetch(self, request: Outgoing) -> AbstractAsyncContextManager[Reply]:
        return fetch(request, connect_by=connect_through_proxy)

    async def connect(self, host: str, port: int) -> Streams:
        return await tunnel_through_proxy(host, port)

    def decrypts(self, host: str) -> bool:
        is_known = any(fnmatchcase(host.lower(), known) for known in self._hosts)
        if not is_known:
            self.unread[host] += 1
        return is_known

    def on_tls_refused(self, host: str, token: str | None) -> None:
        self.refused[host] += 1


# The proxy of the user's environment


async def connect_through_proxy(host: str, port: int, secure: bool) -> Streams:
    """Connect to a server, through the proxy that the environment names for it. Raises UpstreamFailure."""
    return await _connect(host, port, _proxy_for(host, port, secure=secure), secure=secure)


async def tunnel_through_proxy(host: str, port: int) -> Streams:
    """The same for a tunnel that is not decrypted: the proxy for HTTPS is used, and the child does TLS itself."""
    return await _connect(host, port, _proxy_for(host, port, secure=True), secure=False)


def _proxy_for(host: str, port: int, *, secure: bool) -> str | None:
    """The variables of this process count, which do not name our own proxy."""
    proxies = getproxies_environment()
    proxy = proxies.get("https" if secure else "http") or proxies.get("all")
    return None if proxy is None or proxy_bypass(f"{host}:{port}") else proxy


async def _connect(host: str, port: int, proxy: str | None, *, secure: bool) -> Streams:
    if proxy is None:
        return await connect(host, port, secure=secure)
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise UpstreamFailure(f"only HTTP proxies can be used, not `{parts.scheme}://{parts.hostname}`")
    reader, writer = await connect(parts.hostname, parts.port or 80, secure=False)
    try:
        async with asyncio.timeout(CONNECT_PATIENCE):
            await _open_tunnel(reader, writer, f"{host}:{port}", parts)
            if secure:
                await writer.start_tls(trust(), server_hostname=host)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError) as error:
        writer.close()
        raise UpstreamFailure(f"cannot connect to {host}:{port} through {parts.hostname}: {error}") from None
    return reader, writer


async def _open_tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, proxy: SplitResult
) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
    if proxy.username is not None:
        credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"proxy-authorization: Basic {base64.b64encode(credentials.encode()).decode()}")
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if len(head) > _MOST_HEAD or status != [b"200"]:
        raise OSError(f"the proxy answered {b''.join(status).decode('latin-1')}")
