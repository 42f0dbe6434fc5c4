"""Faults of the network through the proxy, as clients of several libraries and of MCP see them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from bylaw.contract.agents.chaos_proxy import ProxiedRun
from bylaw.contract.agents.mcp_calls import McpRun
from bylaw.contract.faults import Injection
from tests.live.proxy.support import fired, llm, proxied, server, tool

MODES = ("reset", "dns_failure", "truncated_body", "slow_body", "jitter")
ERRORS: dict[str, type[Exception]] = {"reset": httpx2.ReadError, "truncated_body": httpx2.RemoteProtocolError}
SLOW = {"slow_body": {"delay_ms": 60}, "jitter": {"delay_ms": 60}}


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_behind_the_proxy(mode: str, tmp_path: Path) -> None:
    async def call(url: str) -> tuple[Any, ProxiedRun, float]:
        fault = tool(mode, **SLOW.get(mode, {}))
        async with (
            proxied(tmp_path, fault) as (proxy, run),
            httpx2.AsyncClient(proxy=proxy.url(), timeout=30) as client,
        ):
            began = time.perf_counter()
            try:
                reply: Any = await client.get(url)
            except httpx2.HTTPError as error:
                reply = error
            return reply, run, time.perf_counter() - began

    with server() as (url, _):
        reply, run, took = asyncio.run(call(url))
    assert fired(run) == 1
    if mode in ERRORS:
        assert isinstance(reply, ERRORS[mode]), reply
    else:
        assert reply.status_code == (502 if mode == "dns_failure" else 200)
        assert mode != "dns_failure" or "bylaw" not in reply.text.lower()
        assert took > {"slow_body": 0.05, "jitter": 0.005}.get(mode, 0)
    (attempt,) = run.plan.attempts.all()
    assert attempt.took_effect is (mode != "dns_failure")
    assert attempt.has_failed is (mode in ERRORS or mode == "dns_failure")


@pytest.mark.parametrize("mode", MODES)
def test_a_model_behind_the_proxy(mode: str, tmp_path: Path) -> None:
    async def ask() -> tuple[str, ProxiedRun]:
        async with proxied(tmp_path, llm(mode, **SLOW.get(mode, {}))) as (proxy, run):
            url = f"{proxy.url(run.token)}/openai/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
                try:
                    messages: Any = [{"role": "user", "content": "hello"}]
                    reply = await client.chat.completions.create(model="m", messages=messages)
                    return "answered" if reply.choices[0].message.content else "", run
                except openai.APIError as error:
                    return type(error).__name__, run

    said, run = asyncio.run(ask())
    expected = {
        "reset": "APIConnectionError",
        "truncated_body": "APIConnectionError",
        "dns_failure": "InternalServerError",
    }
    assert (said, fired(run)) == (expected.get(mode, "answered"), 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_of_an_mcp_server(mode: str) -> None:
    proxied_run = ProxiedRun(Injection(faults=(tool(mode),), run="test"), "hello")
    run = McpRun(proxied_run.plan, proxied_run.recorder)
    call = run.begin({"id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {"order": 7}}})
    assert call is not None
    answer = call.reply or call.answer(
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "paid"}]}}
    )
    assert fired(proxied_run) == 1
    is_lost = mode in ("reset", "truncated_body", "dns_failure")
    assert ("error" in answer) is is_lost and bool(call.delay) is (mode in ("slow_body", "jitter"))
    (attempt,) = proxied_run.plan.attempts.all()
    assert (attempt.arguments, attempt.took_effect) == ({"order": 7}, mode != "dns_failure")


@pytest.mark.parametrize("version", [None, "2026-07-28"])
def test_a_failing_tool_of_an_mcp_server_has_the_fields_of_its_protocol(version: str | None) -> None:
    """Results have a type since requests name the version of the protocol."""
    proxied_run = ProxiedRun(Injection(faults=(tool("error"),), run="test"), "hello")
    meta = {} if version is None else {"_meta": {"io.modelcontextprotocol/protocolVersion": version}}
    params = {"name": "pay", "arguments": {}, **meta}
    call = McpRun(proxied_run.plan, proxied_run.recorder).begin({"id": 1, "method": "tools/call", "params": params})
    assert call is not None and call.reply is not None
    fields = {"content", "isError"} | ({"resultType"} if version else set())
    assert call.reply["result"].keys() == fields
