"""What the proxy does not speak passes untouched: web sockets, and TLS clients that want no HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import websockets

from bylaw.contract.agents import open_agent
from bylaw.contract.agents.chaos_proxy import ChaosProxy, ProxiedRun
from bylaw.contract.faults import Injection
from bylaw.contract.job import run_on_agent
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import AgentSpec, Contains, Scenario
from bylaw.wire.proxy import http1, upstream
from bylaw.wire.proxy.child_environment import Authority
from bylaw.wire.proxy.http1 import protocols_in
from tests.contract.scripted import contract, invariant
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


# Tunnels that are not what they seem


class _Counted(ChaosProxy):
    """Notes what passes unread."""

    def __init__(self, *, decrypts: bool, **keys: Any) -> None:
        super().__init__(decrypts_all=decrypts, **keys)
        self.unread: list[str] = []

    def on_unread(self, host: str, what: str) -> None:
        self.unread.append(what)


@contextlib.asynccontextmanager
async def _tunnelled(folder: Path, port: int, *, decrypts: bool) -> AsyncIterator[Any]:
    """A connection in a tunnel through the proxy, the proxy, and the run."""
    proxy = _Counted(decrypts=decrypts, base=folder, authority=Authority.temporary(folder))
    await proxy.start()
    run = ProxiedRun(Injection(faults=(llm("truncated_response", max_tokens=2),), run="test"), "hello")
    proxy.runs.open(run)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    try:
        yield reader, writer, proxy, run
    finally:
        await _closed(writer)
        await proxy.runs.close(run)
        await proxy.stop()


@pytest.mark.parametrize("decrypts", [True, False])
@pytest.mark.parametrize("pieces", [1, 3])
def test_plain_http_in_a_tunnel_is_read(tmp_path: Path, decrypts: bool, pieces: int) -> None:
    """Node, and clients of web sockets, ask for a tunnel to servers without TLS as well."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "one two three four"}}]}

    async def go(port: int) -> tuple[bytes, list[str], int]:
        async with _tunnelled(tmp_path, port, decrypts=decrypts) as (reader, writer, proxy, run):
            step = len(head) // pieces + 1
            for at in range(0, len(head), step):
                writer.write(head[at : at + step])
                await asyncio.sleep(0.02)
            writer.write(body)
            answer = await reader.readuntil(b"]}")
            return answer, proxy.unread, run.plan.fired["llm_faults[0]"]

    with server(lambda seen: (200, "application/json", json.dumps(said).encode())) as (url, seen):
        answer, unread, fired = asyncio.run(go(int(url.rpartition(":")[2])))
    assert b'"one two"' in answer and (unread, fired, len(seen)) == ([], 1, 1)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("decrypts", [True, False])
@pytest.mark.parametrize("first", [PREFACE, b"EHLO me\r\n", b"\x00\x01\x02"])
def test_another_protocol_in_a_tunnel_passes_untouched(tmp_path: Path, decrypts: bool, first: bytes) -> None:
    async def go() -> tuple[bytes, list[str]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"seen " + await reader.readexactly(len(first)))
            writer.close()

        async with (
            await asyncio.start_server(serve, "127.0.0.1", 0) as real,
            _tunnelled(tmp_path, real.sockets[0].getsockname()[1], decrypts=decrypts) as (reader, writer, proxy, _),
        ):
            writer.write(first)
            return await reader.readexactly(5 + len(first)), proxy.unread

    assert asyncio.run(go()) == (b"seen " + first, ["another protocol than HTTP/1.1"])


@pytest.mark.parametrize("decrypts", [True, False])
def test_a_server_that_speaks_first_is_heard(tmp_path: Path, decrypts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "_LONGEST_SILENCE", 0.05 if decrypts else 3600)

    async def go() -> bytes:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 ready\r\n")
            writer.close()

        async with (
            await asyncio.start_server(serve, "127.0.0.1", 0) as real,
            _tunnelled(tmp_path, real.sockets[0].getsockname()[1], decrypts=decrypts) as (reader, _, _, _),
        ):
            line: bytes = await reader.readline()
            return line

    assert asyncio.run(go()) == b"220 ready\r\n"


def test_http_2_that_was_not_agreed_on_passes_to_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of httpx with `http1=False`, which speaks HTTP/2 whatever protocol was chosen."""
    ca = trustme.CA()
    real = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    real.set_alpn_protocols(["h2"])
    ca.issue_cert("127.0.0.1").configure_cert(real)

    def trust(protocol: str) -> ssl.SSLContext:
        context = ssl.create_default_context()
        ca.configure_trust(context)
        context.set_alpn_protocols([protocol])
        return context

    monkeypatch.setattr(upstream, "trust", trust)

    async def go() -> tuple[bytes, list[str]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            chosen = writer.get_extra_info("ssl_object").selected_alpn_protocol().encode()
            writer.write(chosen + b" " + await reader.readexactly(len(PREFACE)))
            writer.close()

        async with (
            await asyncio.start_server(serve, "127.0.0.1", 0, ssl=real) as started,
            _tunnelled(tmp_path, started.sockets[0].getsockname()[1], decrypts=True) as (reader, writer, proxy, _),
        ):
            client = ssl.create_default_context(cafile=str(proxy.authority.file))
            client.set_alpn_protocols(["http/1.1", "h2"])
            await writer.start_tls(client, server_hostname="127.0.0.1")
            writer.write(PREFACE)
            return await reader.readexactly(3 + len(PREFACE)), proxy.unread

    assert asyncio.run(go()) == (b"h2 " + PREFACE, ["HTTP/2"])


WEB_SOCKETS = """
import asyncio, os, sys, aiohttp, websockets
async def go():
    async with websockets.connect(sys.argv[1], additional_headers={"authorization": "Bearer k"}) as talk:
        await talk.send("x" * 200_000)
        print("websockets", len(await talk.recv()), end=" ")
    async with aiohttp.ClientSession(trust_env=True) as session, session.ws_connect(sys.argv[1]) as talk:
        await talk.send_str("hello")
        print("aiohttp", (await talk.receive()).data)
asyncio.run(go())
"""


@pytest.mark.proof
@pytest.mark.parametrize("trusts_ca", [True, False])
def test_clients_of_web_sockets_get_through(tmp_path: Path, trusts_ca: bool) -> None:
    """One of them asks for a tunnel, the other for the whole URL."""
    (tmp_path / "agent.py").write_text(WEB_SOCKETS)

    async def echo(talk: Any) -> None:
        async for message in talk:
            await talk.send(message)

    async def go() -> AgentRun:
        async with websockets.serve(echo, "127.0.0.1", 0) as real:
            url = f"ws://127.0.0.1:{real.sockets[0].getsockname()[1]}/v1/realtime?model=m"
            command = (sys.executable, "agent.py", url)
            spec = AgentSpec(type="command", command=command, timeout_ms=300_000, trusts_ca=trusts_ca)
            live = open_agent(spec, tmp_path)
            await live.start()
            try:
                return await live.run("go", Injection(run="test"))
            finally:
                await live.stop()

    run = asyncio.run(go())
    assert (run.answer, run.failure) == ("websockets 200000 aiohttp hello", None)


# Node

ASKS = """
const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "x" }] });
const read = async (reply) => console.log(JSON.parse(reply).choices[0].message.content);
"""
FETCH = """
read(await (await fetch("%s/v1/chat/completions", { method: "POST", body })).text());
"""
TUNNEL = """
import http from "node:http";
const proxy = new URL(process.env.HTTP_PROXY), { host } = new URL("%s");
const headers = { "proxy-authorization": "Basic " + btoa(`${proxy.username}:${proxy.password}`) };
http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: host, headers })
  .on("connect", (_, socket) => {
    const asked = { createConnection: () => socket, method: "POST", path: "/v1/chat/completions", headers: { host } };
    http.request(asked, async (reply) => { let text = ""; for await (const part of reply) text += part; read(text); })
      .end(body);
  }).end();
"""
"""as agents of the packages undici and https-proxy-agent ask, for plain HTTP too"""


def _node_release() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    return int(subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout[1:].split(".")[0])


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
@pytest.mark.parametrize("code", [FETCH, TUNNEL], ids=["fetch", "tunnel"])
def test_faults_reach_node_or_the_report_says_why_not_and_what_to_do(tmp_path: Path, code: str) -> None:
    said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "one two three four"}}]}
    with server(lambda seen: (200, "application/json", json.dumps(said).encode())) as (url, _):
        (tmp_path / "agent.mjs").write_text(ASKS + code.replace("%s", url))
        spec = AgentSpec(type="command", command=("node", "agent.mjs"), stateless=True, timeout_ms=300_000)
        fault: Any = llm("truncated_response", max_tokens=2)
        report = run_on_agent(
            contract(
                invariant(check=Contains(values=("one two",))),
                scenarios=[Scenario(name="bad model", llm_faults=(fault,))],
                agent=spec,
            ),
            open_agent(spec, tmp_path),
        )
    if code is TUNNEL or _node_release() >= 24:
        assert report.exit_code == 0, report
    else:
        (warning,) = report.warnings
        assert report.exit_code == 3
        assert "passed Bylaw's proxy" in warning and "Node" in warning and "OPENAI_BASE_URL" in warning
