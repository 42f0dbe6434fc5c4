"""The proxy answers hostile clients or closes the connection, and continues to serve others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from bylaw.wire.proxy import http1
from tests.live.proxy.support import TEXT, ask, proxied

GARBAGE = [
    b"\x00\xff\x16\x03\x01garbage\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"CONNECT nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:99999 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http:///nothing HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://[::bad/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://127.0.0.1:1/refused HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /run/no-such-token/openai/v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /mcp/nobody HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /mcp-stdio/nobody HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic !!!\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("sent", range(len(GARBAGE)))
def test_garbage_gets_an_error_or_nothing(tmp_path: Path, sent: int) -> None:
    async def run() -> bytes:
        async with proxied(tmp_path) as (proxy, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(GARBAGE[sent])
            writer.write_eof()
            async with asyncio.timeout(300):
                try:
                    got = await reader.read()
                except ConnectionError:
                    got = b""
            writer.close()
            said = await ask(proxy.url(), "openai", "hello", streamed=True)
            assert said.text == TEXT
            return got

    got = asyncio.run(run())
    assert got == b"" or got.split(b" ")[1][:1] in (b"4", b"5"), got[:100]


def test_a_request_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "PATIENCE", 0.2)

    async def run() -> bytes:
        async with proxied(tmp_path) as (proxy, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nhalf")
            async with asyncio.timeout(300):
                got = await reader.read()
            writer.close()
            return got

    assert asyncio.run(run()).startswith(b"HTTP/1.1 408 ")


def test_bodies_and_connections_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MOST_BODY", 1000)
    monkeypatch.setattr(http1, "MOST_CONNECTIONS", 3)

    async def run() -> int:
        async with proxied(tmp_path) as (proxy, _):
            async with httpx2.AsyncClient() as client:
                status = (await client.post(f"{proxy.url()}/openai/v1/x", content=b"y" * 5000)).status_code
            idle = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(3)]
            while len(proxy._connections) < 3:
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            async with asyncio.timeout(300):
                assert await reader.read() == b""
            for _, one in [*idle, (reader, writer)]:
                one.close()
            return status

    assert asyncio.run(run()) == 413


def test_a_run_that_ends_cancels_its_delayed_requests(tmp_path: Path) -> None:
    from tests.live.proxy.support import llm

    async def run() -> None:
        async with proxied(tmp_path, llm("timeout", delay_ms=600_000)) as (proxy, run):
            asking = asyncio.create_task(ask(proxy.url(), "openai", "hello", streamed=False, timeout=300))
            while not run.tasks:
                await asyncio.sleep(0.01)
            async with asyncio.timeout(300):
                await proxy.runs.close(run)
                with pytest.raises(Exception, match="onnection"):
                    await asking

    asyncio.run(run())
