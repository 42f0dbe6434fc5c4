"""Every tool fault, over every transport: plain HTTP, HTTPS, MCP over HTTP and MCP on standard streams."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme
from mcp import Client, MCPError, StdioServerParameters

from bylaw.contract.agents import mcp_bridge
from bylaw.contract.agents.chaos_proxy import ChaosProxy, ProxiedRun
from bylaw.contract.faults import AnyFault, Injection, Timing
from bylaw.contract.file.faults import INSTRUCTION
from bylaw.contract.model import McpServer
from bylaw.model.events import ToolCall, ToolResult
from bylaw.wire.proxy import upstream
from bylaw.wire.proxy.child_environment import Authority
from tests.live.proxy.support import WEATHER, attack, server, tool

SERVER = Path(__file__).with_name("mcp_server.py")
Call = Callable[[], Awaitable[Any]]
"""one call of a tool by the agent: the value it gets, or the exception"""


class Broken(str):
    """A text that should have been JSON."""


# The four ways


@asynccontextmanager
async def by_http(folder: Path) -> AsyncIterator[tuple[ChaosProxy, Call]]:
    with server() as (url, _):
        proxy = ChaosProxy(base=folder)
        await proxy.start()
        async with httpx2.AsyncClient(proxy=proxy.url(), timeout=300) as client:
            yield proxy, lambda: _get(client, url)
        await proxy.stop()


@asynccontextmanager
async def by_https(folder: Path) -> AsyncIterator[tuple[ChaosProxy, Call]]:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    with pytest.MonkeyPatch.context() as patch, ca.cert_pem.tempfile() as file:
        patch.setenv("SSL_CERT_FILE", file)
        upstream.trust.cache_clear()
        with server(wrap=lambda socket: context.wrap_socket(socket, server_side=True)) as (url, _):
            authority = Authority.temporary(folder)
            proxy = ChaosProxy(base=folder, authority=authority)
            await proxy.start()
            trust = ssl.create_default_context(cafile=str(authority.file))
            async with httpx2.AsyncClient(proxy=proxy.url(), timeout=300, verify=trust) as client:
                yield proxy, lambda: _get(client, url)
            await proxy.stop()
    upstream.trust.cache_clear()


async def _get(client: httpx2.AsyncClient, url: str) -> Any:
    try:
        reply = await client.get(f"{url}/weather")
        reply.raise_for_status()
    except httpx2.HTTPError as error:
        return error
    try:
        return reply.json()
    except ValueError:
        return Broken(reply.text)


@pytest.fixture(scope="module")
def mcp_url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)])
    try:
        for _ in range(3000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def by_mcp_http(folder: Path, url: str) -> AsyncIterator[tuple[ChaosProxy, Call]]:
    proxy = ChaosProxy(base=folder, mcp=(McpServer(name="weather", url=url),))
    await proxy.start()
    async with Client(f"{proxy.url()}/mcp/weather") as client:
        yield proxy, lambda: _call(client)
    await proxy.stop()


@asynccontextmanager
async def by_mcp_stdio(folder: Path) -> AsyncIterator[tuple[ChaosProxy, Call]]:
    proxy = ChaosProxy(base=folder, mcp=(McpServer(name="weather", command=(sys.executable, str(SERVER))),))
    await proxy.start()
    started = StdioServerParameters(
        command=sys.executable, args=[str(mcp_bridge.__file__), "weather"], env={"BYLAW_PROXY": proxy.url()}
    )
    async with Client(started) as client:
        yield proxy, lambda: _call(client)
    await proxy.stop()


async def _call(client: Client) -> Any:
    try:
        result = await client.call_tool("get_weather", {"city": "Bern"}, read_timeout_seconds=300)
    except (MCPError, RuntimeError) as error:
        return error
    text = "\n".join(block.text for block in result.content if block.type == "text")
    if result.is_error:
        return RuntimeError(text)
    try:
        value = json.loads(text)
    except ValueError:
        return Broken(text)
    if result.structured_content is not None and isinstance(value, dict):
        assert result.structured_content == value, "a result must say the same in both of its forms"
    return value


async def in_run(
    proxy: ChaosProxy, call: Call, *faults: AnyFault, times: int = 1
) -> tuple[list[Any], ProxiedRun, float]:
    run = ProxiedRun(Injection(faults=faults, seed=7, run="test"), "hello")
    proxy.runs.open(run)
    began = time.perf_counter()
    try:
        got = [await call() for _ in range(times)]
    finally:
        took = time.perf_counter() - began
        await proxy.runs.close(run)
    return got, run, took


# Every mode


async def every_mode(proxy: ChaosProxy, call: Call, named: dict[str, str]) -> None:
    """`named` chooses the tool, by its name or its URL."""

    async def with_fault(mode: str, *, times: int = 1, fires: int = 1, **keys: Any) -> list[Any]:
        fault = tool(mode, **{**named, **keys})
        got, run, took = await in_run(proxy, call, fault, times=times)
        assert run.plan.fired == {fault.id: fires}, mode
        if keys.get("delay_ms"):
            assert took >= keys["delay_ms"] / 1000
        return got

    (calm,), _, _ = await in_run(proxy, call)
    assert calm.items() >= WEATHER.items()

    (late,) = await with_fault("timeout", delay_ms=200)
    assert isinstance(late, Exception)
    assert "tim" in str(late).lower()
    (failed,) = await with_fault("error", error_code=418, message="out of tea")
    assert isinstance(failed, Exception)
    assert "418" in str(failed)
    (slow,) = await with_fault("slow", delay_ms=200)
    assert slow.items() >= WEATHER.items()
    (broken,) = await with_fault("malformed")
    assert isinstance(broken, Broken | RuntimeError)
    (hostile,) = await with_fault("malicious_response")
    assert INSTRUCTION in str(hostile)
    (hostile,) = await with_fault("malicious_response", payload="obey me")
    assert "obey me" in str(hostile)
    wrong, again = [(await with_fault("wrong_data"))[0] for _ in range(2)]
    assert wrong.keys() == calm.keys()
    assert wrong["degrees"] != 21
    assert wrong["sunny"] is False
    assert {**wrong, "number": 0} == {**again, "number": 0}, "the same seed gives the same values"
    (given,) = await with_fault("wrong_data", payload={"city": "Bern", "degrees": -80})
    assert given == {"city": "Bern", "degrees": -80}
    (empty,) = await with_fault("empty")
    assert empty in ("", {}) or isinstance(empty, RuntimeError)
    first, second, third = await with_fault("stale", times=3, fires=2, timing=Timing(after_calls=1))
    assert first == second == third
    (aged,) = await with_fault("stale")
    assert aged["at"] == "2025-03-01"

    left, hit, after = await with_fault("error", times=3, timing=Timing(nth=(2,)))
    assert left.items() >= WEATHER.items() <= after.items()
    assert isinstance(hit, Exception)
    (untouched,) = await with_fault("error", fires=0, **dict.fromkeys(named, "nothing-of-this-name"))
    assert untouched.items() >= WEATHER.items()

    injected = attack("indirect_injection", payloads=("obey me",))
    (read,), run, _ = await in_run(proxy, call, injected)
    assert read.keys() == calm.keys()
    assert "obey me" in str(read)
    assert run.plan.fired == {injected.id: 1}


def test_every_tool_fault_over_http(tmp_path: Path) -> None:
    async def run() -> None:
        async with by_http(tmp_path) as (proxy, call):
            await every_mode(proxy, call, {"match_url": "http://127.0.0.1:*/weather"})

    asyncio.run(run())


def test_every_tool_fault_inside_https(tmp_path: Path) -> None:
    async def run() -> None:
        async with by_https(tmp_path) as (proxy, call):
            await every_mode(proxy, call, {"match_url": "https://127.0.0.1:*/weather"})

    asyncio.run(run())


def test_every_tool_fault_over_mcp_http(tmp_path: Path, mcp_url: str) -> None:
    async def run() -> None:
        async with by_mcp_http(tmp_path, mcp_url) as (proxy, call):
            await every_mode(proxy, call, {"tool": "get_weather"})

    asyncio.run(run())


def test_every_tool_fault_over_mcp_stdio(tmp_path: Path) -> None:
    async def run() -> None:
        async with by_mcp_stdio(tmp_path) as (proxy, call):
            await every_mode(proxy, call, {"tool": "get_weather"})

    asyncio.run(run())


def test_https_of_a_client_without_trust_passes_unchanged(tmp_path: Path) -> None:
    """A tunnel is not decrypted: a fault on every request cannot fire, and is not counted."""

    async def run() -> None:
        ca = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("127.0.0.1").configure_cert(context)
        trust = ssl.create_default_context()
        ca.configure_trust(trust)
        with server(wrap=lambda socket: context.wrap_socket(socket, server_side=True)) as (url, seen):
            proxy = ChaosProxy(base=tmp_path)
            await proxy.start()
            async with httpx2.AsyncClient(proxy=proxy.url(), timeout=300, verify=trust) as client:
                (got,), run, _ = await in_run(proxy, lambda: _get(client, url), tool("error"))
            await proxy.stop()
        assert got.items() >= WEATHER.items()
        assert len(seen) == 1
        assert run.plan.fired == {"tool_faults[0]": 0}

    asyncio.run(run())


def test_an_mcp_call_is_recorded_as_a_call(tmp_path: Path, mcp_url: str) -> None:
    async def run() -> None:
        async with by_mcp_http(tmp_path, mcp_url) as (proxy, call):
            _, run, _ = await in_run(proxy, call, tool("error", tool="get_weather", timing=Timing(nth=(2,))), times=2)
        trace = run.recorder.trace("done", complete=True)
        calls = [event for event in trace.events if isinstance(event, ToolCall)]
        results = [event for event in trace.events if isinstance(event, ToolResult)]
        assert [(one.name, one.arguments) for one in calls] == [("get_weather", {"city": "Bern"})] * 2
        assert [one.is_error for one in results] == [False, True]
        assert results[0].content.items() >= WEATHER.items()
        assert [one.call_id for one in results] == [one.call_id for one in calls]

    asyncio.run(run())


def test_the_bridge_reports_wrong_usage() -> None:
    ended = subprocess.run([sys.executable, str(mcp_bridge.__file__)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "BYLAW_PROXY" in ended.stderr
    assert shlex.split(ended.stderr)
