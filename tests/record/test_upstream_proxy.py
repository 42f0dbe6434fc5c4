"""The recording proxy uses the proxy that the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bylaw.record.proxy import Streams, connect_through_proxy, tunnel_through_proxy
from bylaw.wire.proxy.upstream import UpstreamFailure


@pytest.mark.parametrize(
    ("way", "variable"),
    [
        (lambda: tunnel_through_proxy("models.example", 443), "https_proxy"),
        (lambda: connect_through_proxy("models.example", 443, True), "https_proxy"),
        (lambda: connect_through_proxy("models.example", 80, False), "http_proxy"),
    ],
    ids=["unread tunnel", "opened tunnel", "plain"],
)
def test_each_kind_of_traffic_uses_its_own_proxy(
    way: Callable[[], Awaitable[Streams]], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 403 no\r\n\r\n")
        writer.close()

    async def go() -> None:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        monkeypatch.setenv(variable, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server:
            with pytest.raises(UpstreamFailure, match="the proxy answered 403"):
                await way()

    asyncio.run(go())
    assert len(asked) == 1 and asked[0].startswith(b"CONNECT models.example:")
