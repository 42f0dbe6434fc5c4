"""Patches are applied while an agent is started and removed afterwards; each exchange is handled once."""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3
from aiohttp import web

import bylaw
from bylaw.contract.faults import Injection
from bylaw.model.events import Annotation
from tests.live.python.callers import OVER_HTTP
from tests.live.python.support import ORDER, Served, ask, started, tool_fault

SEAMS = [
    (httpx.HTTPTransport, "handle_request"),
    (httpx.AsyncHTTPTransport, "handle_async_request"),
    (urllib3.connectionpool.HTTPConnectionPool, "_make_request"),
    (http.client.HTTPConnection, "request"),
    (http.client.HTTPConnection, "getresponse"),
    (aiohttp.ClientSession, "_request"),
    (aiohttp.BaseConnector, "connect"),
]


def seams() -> list[Any]:
    return [vars(owner)[name] for owner, name in SEAMS]


def test_patches_are_applied_and_removed_with_the_agents() -> None:
    before = seams()

    async def both() -> None:
        async with started(lambda _prompt: "a"):
            one = seams()
            async with started(lambda _prompt: "b"):
                assert seams() == one
            assert seams() == one
        assert all(now is not then for now, then in zip(one, before, strict=True))

    asyncio.run(both())
    assert seams() == before


@pytest.mark.parametrize("library", OVER_HTTP)
def test_outside_a_run_patches_do_nothing(library: str, server: Served) -> None:
    async def call() -> Any:
        async with started(lambda _prompt: "a"):
            return await OVER_HTTP[library](f"{server.url}/order")

    assert asyncio.run(call()) == (200, json.dumps(ORDER))


@pytest.mark.parametrize("library", OVER_HTTP)
def test_without_a_fault_the_server_gets_the_same_request(library: str, server: Served) -> None:
    async def agent(_prompt: str) -> str:
        status, text = await OVER_HTTP[library](f"{server.url}/packed")
        return f"{status} {text}"

    plain = asyncio.run(agent("hi"))
    assert ask(agent).answer == plain
    unpatched, patched = [(path, headers, body) for path, headers, body in server.asked]
    assert patched == unpatched


@pytest.mark.parametrize("library", OVER_HTTP)
def test_an_exchange_is_hit_once_although_libraries_use_each_other(library: str, server: Served) -> None:
    async def agent(_prompt: str) -> str:
        await OVER_HTTP[library](f"{server.url}/order")
        return "done"

    assert ask(agent, tool_fault("slow", delay_ms=1)).fired == {"fault": 1}


def test_a_request_inside_a_named_tool_is_not_hit_twice(server: Served) -> None:
    @bylaw.tool
    def fetch() -> Any:
        return requests.get(f"{server.url}/order", timeout=300).json()

    assert ask(lambda _prompt: str(fetch()), tool_fault("slow", delay_ms=1)).fired == {"fault": 1}
    by_url = tool_fault("error", tool=None, match_url="*/order")
    assert ask(lambda _prompt: str(fetch()), by_url).fired == {"fault": 1}


def test_each_retry_of_a_library_is_seen(server: Served) -> None:
    from tests.live.python.support import nth

    def agent(_prompt: str) -> str:
        retry = urllib3.Retry(2, backoff_factor=0, status_forcelist=[503])
        with requests.Session() as session:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
            return session.get(f"{server.url}/order", timeout=300).text

    run = ask(agent, tool_fault("error", timing=nth(1, 2)))
    assert run.fired == {"fault": 2}
    assert json.loads(run.answer or "") == ORDER


def test_an_altered_reply_keeps_its_other_headers(server: Served) -> None:
    def agent(_prompt: str) -> str:
        ours = httpx.get(f"{server.url}/order").headers.get_list("set-cookie")
        theirs = requests.get(f"{server.url}/order", timeout=300).cookies.get_dict()
        return f"{ours} {sorted(theirs)}"

    assert ask(agent).answer == "['a=1', 'b=2'] ['a', 'b']"


def test_a_server_that_is_down_fails_as_it_does_without_patches() -> None:
    def agent(_prompt: str) -> str:
        import urllib.error
        import urllib.request

        reported = []
        for call in (
            lambda: httpx.get("http://127.0.0.1:1/"),
            lambda: requests.get("http://127.0.0.1:1/", timeout=300),
            lambda: urllib.request.urlopen("http://127.0.0.1:1/", timeout=300),
        ):
            try:
                call()
            except Exception as error:
                reported.append(type(error).__name__)
        return ",".join(reported)

    assert ask(agent).answer == agent("hi") == "ConnectError,ConnectionError,URLError"


FRAMINGS = {
    "whole": b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n",
    "no last chunk": b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n",
    "no line end": b"transfer-encoding: chunked\r\n\r\n%x\r\n%b",
    "half a chunk": b"transfer-encoding: chunked\r\n\r\n1%x\r\n%b",
    "short": b"content-length: 9999\r\nx-size: %d\r\n\r\n%b",
}


def answer_once(listener: socket.socket, framing: str, body: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        asked = b""
        while b"\r\n\r\n" not in asked or (asked.startswith(b"POST") and b'"messages"' not in asked):
            asked += connection.recv(65536)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
        connection.sendall(head + FRAMINGS[framing] % (len(body), body))


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_answer_of_a_model_that_was_cut_off_is_no_answer(framing: str) -> None:
    said = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "at noon"}}]}

    def agent(_prompt: str) -> str:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "when?"}]}
        try:
            return str(requests.post(url, json=asked, timeout=300).json()["choices"][0]["message"]["content"])
        except requests.RequestException:
            return "I could not find out"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_once, args=(listener, framing, json.dumps(said).encode()))
        thread.start()
        run = ask(agent)
        thread.join()
    assert run.answer == ("at noon" if framing == "whole" else "I could not find out")
    assert [attempt.has_failed for attempt in run.attempts] == [framing != "whole"]
    assert ("at noon" in str(run.trace.events)) is (framing == "whole")


@pytest.mark.parametrize("library", OVER_HTTP)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_reply_that_was_cut_off_counts_as_failed_where_the_agent_got_an_error(library: str, framing: str) -> None:
    """Although all of its content has come."""
    body = json.dumps(ORDER).encode()

    async def agent(_prompt: str) -> str:
        try:
            return str(await OVER_HTTP[library](f"http://127.0.0.1:{listener.getsockname()[1]}/order"))
        except Exception as error:  # each library has its own
            return type(error).__name__

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_once, args=(listener, framing, body))
        thread.start()
        run = ask(agent)
        thread.join()
    is_whole = run.answer == str((200, body.decode()))
    assert is_whole is (framing == "whole")
    (note,) = (event for event in run.trace.events if isinstance(event, Annotation) and event.label == "http")
    assert ("error" not in note.data) is is_whole
    assert [attempt.has_failed for attempt in run.attempts] == [not is_whole]


def test_a_fault_needs_no_server() -> None:
    async def agent(_prompt: str) -> str:
        reported = [await call("http://nowhere.invalid/order") for call in OVER_HTTP.values()]
        return ",".join(str(status) for status, _ in reported)

    assert ask(agent, tool_fault("error")).answer == ",".join(["503"] * len(OVER_HTTP))


LAZY = """
def agent(prompt):
    import asyncio, sys
    assert not {"aiohttp", "httpx", "requests", "urllib3"} & set(sys.modules)
    import aiohttp, httpx, requests

    async def status():
        async with aiohttp.ClientSession() as session, session.get(URL) as reply:
            return reply.status

    URL = "http://nowhere.invalid"
    return f"{httpx.get(URL).status_code} {requests.get(URL).status_code} {asyncio.run(status())}"
"""
LAZY_FRAMEWORKS = {
    "pydantic_ai": "import pydantic_ai_agent as it; answer = it.agent.run_sync(prompt).output",
    "agents": """import openai_agents_agent as it, agents
    answer = agents.Runner.run_sync(it.agent, prompt).final_output""",
    "langgraph": """import langgraph_agent as it
    answer = it.agent.invoke({"messages": [("user", prompt)]})["messages"][-1].content""",
}
LAZY_FRAMEWORK = """
def agent(prompt):
    import sys
    assert not {"agents", "langchain_core", "pydantic_ai"} & set(sys.modules)
    %s
    return answer.partition(":")[0]
"""
ASKED = """
import asyncio, sys
from pathlib import Path
from bylaw.contract.agents.python_agent import PythonAgent
from bylaw.contract.model import AgentSpec
from bylaw.contract.faults import ToolFault
from bylaw.contract.faults import Injection
from bylaw.model.events import Annotation

async def main():
    live = PythonAgent(AgentSpec(type="python", endpoint="lazy:agent", timeout_ms=600_000), base=Path(sys.argv[1]))
    await live.start()
    run = await live.run("hi", Injection(faults=(ToolFault(id="f", label="f", mode=sys.argv[2], tool="*"),)))
    await live.stop()
    print(run.answer, run.failure, run.fired)

asyncio.run(main())
"""


def asked_in_a_fresh_process(folder: Path, mode: str, *more: Path) -> str:
    paths = [str(Path(bylaw.__file__).parents[1]), *map(str, more)]
    done = subprocess.run(
        [sys.executable, "-c", ASKED, str(folder), mode],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(paths), "PATH": ""},
    )
    return done.stdout.strip() or done.stderr


def test_a_library_that_is_imported_during_a_run_is_patched(tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(LAZY)
    assert asked_in_a_fresh_process(tmp_path, "error") == "503 503 503 None {'f': 3}"


@pytest.mark.parametrize(
    "name", ["pydantic_ai", *(pytest.param(name, marks=pytest.mark.proof) for name in ("agents", "langgraph"))]
)
def test_a_framework_that_is_imported_during_a_run_is_patched(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip("the frameworks extra is not installed")
    (tmp_path / "lazy.py").write_text(LAZY_FRAMEWORK % LAZY_FRAMEWORKS[name])
    reported = asked_in_a_fresh_process(tmp_path, "empty", Path(__file__).parents[3] / "examples/agents/frameworks")
    assert reported == "The order desk did not help None {'f': 1}"


def test_a_websocket_of_the_agent_is_not_changed() -> None:
    """There are no faults for websockets, and reading the reply would end the connection."""

    async def serve() -> Any:
        async def socket(request: web.Request) -> web.WebSocketResponse:
            talk = web.WebSocketResponse()
            await talk.prepare(request)
            async for message in talk:
                await talk.send_str(f"heard {message.data}")
            return talk

        app = web.Application()
        app.router.add_get("/socket", socket)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, runner.addresses[0][1]

    async def agent(port: int) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{port}/socket") as talk,
        ):
            await talk.send_str("x")
            return str((await talk.receive(timeout=300)).data)

    async def both() -> Any:
        runner, port = await serve()
        try:

            async def asked(_prompt: str) -> str:
                return await agent(port)

            async with started(asked) as live:
                return await live.run("?", Injection(faults=(tool_fault("error", tool="other"),), seed=0, run="run"))
        finally:
            await runner.cleanup()

    assert asyncio.run(both()).answer == "heard x"
