"""A fault on a tool that runs inside the agent: its result is changed on its way to the model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bylaw.contract.agents.chaos_proxy import ChaosProxy, ProxiedRun
from bylaw.contract.faults import AnyFault, Timing
from bylaw.contract.file.faults import INSTRUCTION
from bylaw.model.events import ToolResult
from tests.live.proxy.support import PROVIDERS, Seen, attack, fired, proxied, server, tool

PRICE = {"item": "ACME", "price": 42.5, "at": "2026-03-01"}
TEXT = json.dumps(PRICE)
PATHS = {"openai": "/openai/v1/chat/completions", "openai_responses": "/openai/v1/responses"}


def call_reply(provider: str, id: str, name: str) -> dict[str, Any]:
    """What a model sends that calls a tool."""
    if provider == "anthropic":
        block = {"type": "tool_use", "id": id, "name": name, "input": {}}
        return {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use"}
    if provider == "openai":
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    item = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": "{}"}
    return {"object": "response", "status": "completed", "output": [item]}


def conversation(provider: str, *calls: tuple[str, str, str | list[Any]], repeats_calls: bool = True) -> dict[str, Any]:
    """A request that carries the results of calls: id, name, result."""
    parts: list[Any] = [{"role": "user", "content": "What does ACME cost?"}]
    for id, name, result in calls:
        reply = call_reply(provider, id, name)
        if provider == "anthropic":
            parts.append({"role": "assistant", "content": reply["content"]})
            block = {"type": "tool_result", "tool_use_id": id, "content": result}
            parts.append({"role": "user", "content": [block]})
        elif provider == "openai":
            parts.append(reply["choices"][0]["message"])
            parts.append({"role": "tool", "tool_call_id": id, "content": result})
        else:
            parts += reply["output"] if repeats_calls else []
            parts.append({"type": "function_call_output", "call_id": id, "output": result})
    if provider == "openai_responses":
        return {"model": "m", "input": parts}
    return {"model": "m", "messages": parts, **({"max_tokens": 10} if provider == "anthropic" else {})}


def results(provider: str, body: bytes) -> list[Any]:
    """The results in a request as the model got it."""
    request = json.loads(body)
    if provider == "openai_responses":
        return [item["output"] for item in request["input"] if item.get("type") == "function_call_output"]
    if provider == "openai":
        return [message["content"] for message in request["messages"] if message["role"] == "tool"]
    blocks = [block for one in request["messages"] if isinstance(one["content"], list) for block in one["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


Send = Callable[[dict[str, Any]], Awaitable[None]]


def through_proxy(
    folder: Path, provider: str, *faults: AnyFault, talk: Callable[[Send], Awaitable[None]], name: str = "price"
) -> tuple[ProxiedRun, Seen]:
    """Let an agent talk to a model that always calls the tool; what the model got."""

    async def run() -> tuple[ProxiedRun, Seen]:
        reply = json.dumps(call_reply(provider, "c1", name)).encode()
        with server(lambda _: (200, "application/json", reply)) as (url, seen):
            upstreams = {"openai": url, "anthropic": url}
            async with (
                proxied(folder, *faults, upstreams=upstreams) as (proxy, run),
                httpx2.AsyncClient(timeout=300) as client,
            ):
                await talk(lambda body: _post(client, proxy, provider, body))
            return run, seen

    return asyncio.run(run())


async def _post(client: httpx2.AsyncClient, proxy: ChaosProxy, provider: str, body: dict[str, Any]) -> None:
    path = PATHS.get(provider, "/anthropic/v1/messages")
    assert (await client.post(proxy.url() + path, json=body)).status_code == 200


def talk_once(provider: str, result: str | list[Any] = TEXT, name: str = "price") -> Callable[[Send], Awaitable[None]]:
    """Ask, get a call, send its result."""

    async def talk(send: Send) -> None:
        await send(conversation(provider))
        await send(conversation(provider, ("c1", name, result)))

    return talk


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_of_a_named_tool_reaches_the_model(tmp_path: Path, provider: str) -> None:
    fault = tool("error", tool="price", error_code=503, message="prices are down")
    run, seen = through_proxy(tmp_path, provider, fault, talk=talk_once(provider))
    (result,) = results(provider, seen[-1]["body"])
    assert json.loads(result) == {"error": "prices are down", "status": 503}
    assert ("is_error" in seen[-1]["body"].decode()) is (provider == "anthropic")
    assert fired(run) == 1


MODES: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "timeout": ({"delay_ms": 60}, lambda text: json.loads(text)["status"] == 504),
    "slow": ({"delay_ms": 60}, lambda text: text == TEXT),
    "malformed": ({}, lambda text: text == TEXT[: len(TEXT) // 2]),
    "empty": ({}, lambda text: text == ""),
    "malicious_response": ({}, lambda text: text == INSTRUCTION),
    "wrong_data": ({}, lambda text: json.loads(text).keys() == PRICE.keys() and json.loads(text)["price"] != 42.5),
    "stale": ({}, lambda text: json.loads(text) == {**PRICE, "at": "2025-03-01"}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_mode_changes_the_result(tmp_path: Path, provider: str, mode: str) -> None:
    keys, is_changed = MODES[mode]
    began = time.monotonic()
    run, seen = through_proxy(tmp_path, provider, tool(mode, tool="pr*", **keys), talk=talk_once(provider))
    (result,) = results(provider, seen[-1]["body"])
    assert is_changed(result), result
    assert fired(run) == 1
    assert time.monotonic() - began >= keys.get("delay_ms", 0) / 1000


@pytest.mark.parametrize("payload", ["obey me", {"price": 1}])
def test_a_payload_replaces_the_result(tmp_path: Path, payload: Any) -> None:
    fault = tool("wrong_data", tool="price", payload=payload)
    _, seen = through_proxy(tmp_path, "openai", fault, talk=talk_once("openai"))
    (result,) = results("openai", seen[-1]["body"])
    assert result == (payload if isinstance(payload, str) else json.dumps(payload))


def test_a_result_in_blocks_is_replaced_whole(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "It costs 42.50."}, {"type": "text", "text": "As of today."}]
    fault = tool("error", tool="price")
    _, seen = through_proxy(tmp_path, "anthropic", fault, talk=talk_once("anthropic", result=blocks))
    assert results("anthropic", seen[-1]["body"]) == ["error 503: Service Unavailable"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_result_that_is_sent_again_is_changed_again_and_counted_once(tmp_path: Path, provider: str) -> None:
    fault = tool("error", tool="price", timing=Timing(nth=(1,)))

    async def talk(send: Send) -> None:
        await send(conversation(provider))
        await send(conversation(provider, ("c1", "price", TEXT)))
        await send(conversation(provider, ("c1", "price", TEXT), ("c2", "price", TEXT)))

    run, seen = through_proxy(tmp_path, provider, fault, talk=talk)
    first, second = results(provider, seen[-1]["body"])
    assert first == results(provider, seen[-2]["body"])[0] != TEXT
    assert second == TEXT, "only the first call is hit"
    assert fired(run) == 1


def test_the_models_own_call_tells_the_tool_where_the_request_does_not(tmp_path: Path) -> None:
    """A conversation that the provider stores: the request carries the result, and not the call."""

    async def talk(send: Send) -> None:
        await send(conversation("openai_responses"))
        await send(conversation("openai_responses", ("c1", "price", TEXT), repeats_calls=False))

    run, seen = through_proxy(tmp_path, "openai_responses", tool("error", tool="price"), talk=talk)
    assert json.loads(results("openai_responses", seen[-1]["body"])[0])["status"] == 503
    assert fired(run) == 1


def test_results_of_other_tools_and_of_earlier_conversations_pass(tmp_path: Path) -> None:
    """What the first request of a run carries was not called in this run."""

    async def talk(send: Send) -> None:
        await send(conversation("openai", ("old", "price", TEXT)))
        await send(conversation("openai", ("old", "price", TEXT), ("c1", "other", TEXT)))

    run, seen = through_proxy(tmp_path, "openai", tool("error", tool="price"), talk=talk)
    assert results("openai", seen[-1]["body"]) == [TEXT, TEXT]
    assert fired(run) == 0


def test_a_fault_on_every_tool_hits_requests_where_there_are_some(tmp_path: Path) -> None:
    """An agent whose tools are HTTP requests is hit there, and not a second time on the way to the model."""
    run, seen = through_proxy(tmp_path, "openai", tool("error", tool="*"), talk=talk_once("openai"))
    assert results("openai", seen[-1]["body"]) != [TEXT]
    assert fired(run) == 1

    async def by_http() -> None:
        with server() as (tools, asked), server(lambda _: (200, "application/json", b"{}")) as (model, seen):
            async with proxied(tmp_path, tool("error", tool="*"), upstreams={"openai": model}) as (proxy, run):
                async with httpx2.AsyncClient(proxy=proxy.url(), timeout=300) as client:
                    assert (await client.get(f"{tools}/price")).status_code == 503
                async with httpx2.AsyncClient(timeout=300) as client:
                    await _post(client, proxy, "openai", conversation("openai"))
                    await _post(client, proxy, "openai", conversation("openai", ("c1", "price", TEXT)))
            assert (len(asked), results("openai", seen[-1]["body"]), fired(run)) == (0, [TEXT], 1)

    asyncio.run(by_http())


def test_a_fault_and_an_attack_on_one_result_are_both_put_in(tmp_path: Path) -> None:
    faults = (tool("error", tool="price"), attack("indirect_injection", payloads=("obey me",)))
    run, seen = through_proxy(tmp_path, "openai", *faults, talk=talk_once("openai"))
    (result,) = results("openai", seen[-1]["body"])
    assert "503" in result and "obey me" in result
    assert set(run.plan.fired.values()) == {1}


def test_the_trace_has_the_result_that_the_model_got(tmp_path: Path) -> None:
    fault = tool("error", tool="price", message="prices are down")
    run, _ = through_proxy(tmp_path, "anthropic", fault, talk=talk_once("anthropic"))
    events = run.recorder.trace("done", complete=True).events
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert result.is_error
    assert "prices are down" in str(result.content)
