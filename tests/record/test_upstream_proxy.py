"""Servers are reached through the proxy that the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bylaw.wire.exchange import Outgoing
from bylaw.wire.proxy.upstream import UpstreamFailure, fetch, open_tunnel


@pytest.mark.parametrize(
    ("way", "variable", "asked_for"),
    [
        (lambda: open_tunnel("models.example", 443), "https_proxy", b"CONNECT models.example:443 "),
        (lambda: _get("https://models.example/v1"), "https_proxy", b"CONNECT models.example:443 "),
        (lambda: _get("http://models.example/v1?a=b"), "http_proxy", b"GET http://models.example/v1?a=b "),
        (lambda: _get("http://models.example/v1"), "all_proxy", b"GET http://models.example/v1 "),
    ],
    ids=["unread tunnel", "opened tunnel", "plain", "all"],
)
def test_each_kind_of_traffic_uses_its_own_proxy(
    way: Callable[[], Awaitable[object]], variable: str, asked_for: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain HTTP is asked for by its whole URL: many proxies allow tunnels to port 443 only."""
    clear_proxies(monkeypatch)
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 no\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def go() -> object:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        monkeypatch.setenv(variable, f"http://me:pa%20ss@127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server:
            try:
                return await way()
            except UpstreamFailure as failure:
                return str(failure)

    answered = asyncio.run(go())
    assert answered == 403 or "the proxy answered 403" in str(answered)
    (head,) = asked
    assert head.startswith(asked_for) and b"Basic bWU6cGEgc3M=" in head


def test_no_proxy_names_what_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_proxies(monkeypatch)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1,.example")

    async def go() -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 no\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            return await _get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    assert asyncio.run(go()) == 204


async def _get(url: str) -> int:
    async with fetch(Outgoing("GET", url, {}, b"")) as reply:
        return reply.status


def clear_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
