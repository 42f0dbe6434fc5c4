"""What the proxy does not speak passes untouched: web sockets, and TLS clients that want no HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from bylaw.contract.agents import open_agent
from bylaw.contract.agents.proxy import ChaosProxy
from bylaw.contract.job import run_contract
from bylaw.contract.model import AgentSpec, Scenario
from bylaw.wire.proxy.authority import Authority
from bylaw.wire.proxy.client_hello import protocols_in
from tests.contract.scripted import contract
from tests.live.proxy.support import llm, proxied, server


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close the connection, and let the other side notice before the loop ends."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    await asyncio.sleep(0.02)


UPGRADE = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhl\r\nsec-websocket-version: 13\r\n"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Agrees to a web socket if it is asked as a browser asks, and then repeats every byte."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"upgrade: websocket" not in head or b"proxy-" in head or not head.startswith(b"get /v1/realtime?model=m http"):
        writer.write(b"HTTP/1.1 400 no\r\ncontent-length: 0\r\n\r\n")
    else:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        while data := await reader.read(100):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.mark.parametrize("by", ["forward", "base url"])
def test_a_web_socket_passes_both_ways(tmp_path: Path, by: str) -> None:
    async def go() -> tuple[bytes, bytes]:
        async with await asyncio.start_server(_echo, "127.0.0.1", 0) as real:
            url = f"http://127.0.0.1:{real.sockets[0].getsockname()[1]}"
            async with proxied(tmp_path, llm("garbage"), upstreams={"openai": url}) as (proxy, _):
                target = f"{url}/v1/realtime?model=m" if by == "forward" else "/openai/v1/realtime?model=m"
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\nproxy-x: y\r\n{UPGRADE}\r\n".encode() + b"\x81\x01a")
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(b"\x81\x01b")
                said = await reader.readexactly(6)
                await _closed(writer)
                return head, said

    head, said = asyncio.run(go())
    assert head.startswith(b"HTTP/1.1 101") and said == b"\x81\x01a\x81\x01b"


@pytest.mark.parametrize(("offered", "sees"), [(["h2"], "h2"), (["h2", "http/1.1"], "http/1.1"), ([], None)])
def test_a_client_that_speaks_no_http_1_gets_through_to_the_server_itself(
    tmp_path: Path, offered: list[str], sees: str | None
) -> None:
    ca = trustme.CA()
    real = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    real.set_alpn_protocols(["h2"])
    ca.issue_cert("127.0.0.1").configure_cert(real)

    async def go() -> tuple[str | None, str]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"frames")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=real) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            authority = Authority.temporary(tmp_path)
            proxy = ChaosProxy(base=tmp_path, authority=authority)
            await proxy.start()
            client = ssl.create_default_context(cafile=str(authority.file))
            ca.configure_trust(client)
            if offered:
                client.set_alpn_protocols(offered)
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(client, server_hostname="127.0.0.1")
            chosen = writer.get_extra_info("ssl_object")
            issuer = dict(one[0] for one in chosen.getpeercert()["issuer"])
            await _closed(writer)
            await proxy.stop()
            return chosen.selected_alpn_protocol(), issuer["organizationName"]

    protocol, issuer = asyncio.run(go())
    assert (protocol, issuer == "Bylaw") == (sees, offered != ["h2"])


@pytest.mark.parametrize(
    "data", [b"", b"\x16", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\xff", b"\x16" * 99]
)
def test_what_is_no_client_hello_offers_nothing(data: bytes) -> None:
    assert protocols_in(data) is None


def test_a_stream_keeps_its_timing(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 ok\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(3):
            writer.write(b"9\r\ndata: x\n\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(b"0\r\n\r\n")
        writer.close()

    async def go() -> list[float]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as real:
            url = f"http://127.0.0.1:{real.sockets[0].getsockname()[1]}/events"
            async with proxied(tmp_path, llm("garbage")) as (proxy, _):
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(f"GET {url} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                came = []
                while len(came) < 3:
                    await reader.readuntil(b"data: x")
                    came.append(time.monotonic())
                await reader.readuntil(b"0\r\n\r\n")
                await _closed(writer)
                return came

    first, second, third = asyncio.run(go())
    assert second - first > 0.03 and third - second > 0.03


NODE = """
const reply = await fetch("%s/prices");
console.log(await reply.text());
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_the_report_says_why_nothing_reaches_an_agent_in_node_and_what_to_do(tmp_path: Path) -> None:
    with server() as (url, seen):
        (tmp_path / "agent.mjs").write_text(NODE % url)
        spec = AgentSpec(type="command", command=("node", "agent.mjs"), stateless=True, timeout_ms=60_000)
        fault: Any = llm("garbage")
        report = run_contract(
            contract(scenarios=[Scenario(name="bad model", llm_faults=(fault,))], agent=spec),
            open_agent(spec, tmp_path),
        )
    assert len(seen) == 1
    if not any(one["headers"].get("via") for one in seen) and report.exit_code == 3:
        (warning,) = report.warnings
        assert "passed Bylaw's proxy" in warning and "Node" in warning and "OPENAI_BASE_URL" in warning
