"""The way from our proxy to a server: straight, or through the proxy that the user's environment already names."""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import TypeAlias
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from bylaw.wire.proxy.upstream import CONNECT_PATIENCE, UpstreamFailure, connect, trust

_MOST_HEAD = 64 * 1024


Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect_beyond(host: str, port: int, secure: bool) -> Streams:
    """Raises UpstreamFailure."""
    return await _connect(host, port, proxy_for(host, port, secure=secure), secure=secure)


async def tunnel_beyond(host: str, port: int) -> Streams:
    """For a child's own HTTPS, which is not looked into: it goes the way of HTTPS, and the child does the TLS itself.
    Raises UpstreamFailure."""
    return await _connect(host, port, proxy_for(host, port, secure=True), secure=False)


async def _connect(host: str, port: int, proxy: str | None, *, secure: bool) -> Streams:
    if proxy is None:
        return await connect(host, port, secure=secure)
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise UpstreamFailure(
            f"the way leads through `{parts.scheme}://{parts.hostname}`, and only HTTP proxies can be used"
        )
    reader, writer = await connect(parts.hostname, parts.port or 80, secure=False)
    try:
        async with asyncio.timeout(CONNECT_PATIENCE):
            await _open_tunnel(reader, writer, f"{host}:{port}", parts.username, parts.password)
            if secure:
                await writer.start_tls(trust(), server_hostname=host)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError) as error:
        writer.close()
        raise UpstreamFailure(f"cannot connect to {host}:{port} through {parts.hostname}: {error}") from None
    return reader, writer


def proxy_for(host: str, port: int, *, secure: bool) -> str | None:
    """By the environment of this process, in which the child's own variables do not stand."""
    proxies = getproxies_environment()
    proxy = proxies.get("https" if secure else "http") or proxies.get("all")
    return None if proxy is None or proxy_bypass(f"{host}:{port}") else proxy


async def _open_tunnel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str, user: str | None, password: str | None
) -> None:
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
    if user is not None:
        told = base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()
        lines.append(f"proxy-authorization: Basic {told}")
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if len(head) > _MOST_HEAD or status != [b"200"]:
        raise OSError(f"the proxy answered {b''.join(status).decode('latin-1')}")
