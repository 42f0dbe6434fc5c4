"""Faults of the network: each is really injected, and the agent sees the error of the library that it uses."""

from __future__ import annotations

import socket
import time
import urllib.error
from http.client import IncompleteRead
from typing import Any

import aiohttp
import httpx
import httpx2
import openai
import pytest
import requests
import urllib3

import bylaw
from tests.live.python.callers import NAMED, OVER_HTTP
from tests.live.python.support import ORDER, SAID, Served, ask, llm_fault, tool_fault

URLLIB3 = urllib3.exceptions
ERRORS: dict[str, dict[str, type[BaseException]]] = {
    "reset": {
        "aiohttp": aiohttp.ClientOSError,
        "http.client": ConnectionResetError,
        "httpx": httpx.ReadError,
        "httpx_async": httpx.ReadError,
        "httpx2": httpx2.ReadError,
        "requests": requests.ConnectionError,
        "urllib": ConnectionResetError,
        "urllib3": URLLIB3.ProtocolError,
        "named_sync": ConnectionResetError,
        "named_async": ConnectionResetError,
    },
    "dns_failure": {
        "aiohttp": aiohttp.ClientConnectorError,
        "http.client": socket.gaierror,
        "httpx": httpx.ConnectError,
        "httpx_async": httpx.ConnectError,
        "httpx2": httpx2.ConnectError,
        "requests": requests.ConnectionError,
        "urllib": urllib.error.URLError,
        "urllib3": URLLIB3.NameResolutionError,
        "named_sync": socket.gaierror,
        "named_async": socket.gaierror,
    },
    "truncated_body": {
        "aiohttp": aiohttp.ClientPayloadError,
        "http.client": IncompleteRead,
        "httpx": httpx.RemoteProtocolError,
        "httpx_async": httpx.RemoteProtocolError,
        "httpx2": httpx2.RemoteProtocolError,
        "requests": requests.exceptions.ChunkedEncodingError,
        "urllib": IncompleteRead,
        "urllib3": URLLIB3.ProtocolError,
        "named_sync": IncompleteRead,
        "named_async": IncompleteRead,
    },
}
CALLERS = {**OVER_HTTP, **NAMED}


def call(caller: str, url: str, *faults: Any) -> tuple[Any, Any]:
    """What one call of the agent gets or raises, and its run."""
    seen: list[Any] = []

    async def agent(_prompt: str) -> str:
        try:
            seen.append(await CALLERS[caller](url))
        except Exception as error:
            seen.append(error)
        return "done"

    run = ask(agent, *faults)
    assert run.answer == "done", run.failure
    return seen[0], run


@pytest.mark.parametrize(("mode", "caller"), [(mode, caller) for mode in ERRORS for caller in ERRORS[mode]])
def test_the_agent_sees_the_error_of_its_library(mode: str, caller: str, server: Served) -> None:
    before = len(server.asked)
    seen, run = call(caller, f"{server.url}/order", tool_fault(mode))
    assert isinstance(seen, ERRORS[mode][caller]), seen
    assert run.fired == {"fault": 1}
    (attempt,) = run.attempts
    assert (attempt.is_faulted, attempt.has_failed, attempt.took_effect) == (True, True, mode != "dns_failure")
    if caller in OVER_HTTP:  # a lost reply is one that was sent
        assert len(server.asked) - before == (0 if mode == "dns_failure" else 1)


@pytest.mark.parametrize("mode", ["slow_body", "jitter"])
@pytest.mark.parametrize("caller", CALLERS)
def test_a_slow_reply_is_whole(mode: str, caller: str, server: Served) -> None:
    began = time.perf_counter()
    seen, run = call(caller, f"{server.url}/order", tool_fault(mode, delay_ms=60))
    assert time.perf_counter() - began > (0.055 if mode == "slow_body" else 0.005)
    assert run.fired == {"fault": 1} and not run.attempts[0].has_failed
    assert ORDER["status"] in str(seen)


def test_a_body_is_slow_after_its_head_and_within_the_patience_of_each_read(server: Served) -> None:
    times: list[float] = []

    def agent(_prompt: str) -> str:
        began = time.perf_counter()
        with httpx.stream("GET", f"{server.url}/order", timeout=0.08) as reply:
            times.append(time.perf_counter() - began)
            body = b"".join(reply.iter_bytes())
        times.append(time.perf_counter() - began)
        return body.decode()

    run = ask(agent, tool_fault("slow_body", delay_ms=150))
    assert run.answer and "shipped" in run.answer and times[1] - times[0] > 0.12

    def impatient(_prompt: str) -> str:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{server.url}/order", timeout=0.01)
        return "too slow"

    assert ask(impatient, tool_fault("slow_body", delay_ms=1_000)).answer == "too slow"


@pytest.mark.parametrize("mode", ["reset", "dns_failure", "truncated_body", "slow_body", "jitter"])
def test_requests_to_a_model_are_hit(mode: str, server: Served) -> None:
    def agent(_prompt: str) -> str:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        try:
            reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
        except openai.APIConnectionError as error:
            return f"{type(error.__cause__).__name__}"
        return reply.choices[0].message.content or ""

    slow = {"delay_ms": 20} if mode in ("slow_body", "jitter") else {}
    run = ask(agent, llm_fault(mode, **slow))
    assert run.fired == {"fault": 1}
    causes = {"reset": "ReadError", "dns_failure": "ConnectError", "truncated_body": "RemoteProtocolError"}
    assert run.answer == causes.get(mode, SAID)
    assert [(one.target, one.has_failed) for one in run.attempts] == [("model", mode in causes)]


def test_jitter_is_the_same_with_the_same_seed_and_differs_from_call_to_call() -> None:
    @bylaw.tool
    def look() -> str:
        return "ok"

    def agent(_prompt: str) -> str:
        for _ in range(3):
            look()
        return "done"

    def delays(seed: int) -> list[int]:
        run = ask(agent, tool_fault("jitter", delay_ms=40), seed=seed)
        return [round((event.latency_ms or 0) / 10) for event in run.trace.events if event.kind == "tool_result"]  # type: ignore[attr-defined]

    assert len(delays(1)) == 3 and ask(agent, tool_fault("jitter", delay_ms=5)).fired == {"fault": 3}
