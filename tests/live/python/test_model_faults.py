"""Every model fault, for a model that the agent asks over HTTP, in both wire formats, with and without streaming."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from tests.live.python.support import SAID, Served, ask, attack, llm_fault

pytestmark = pytest.mark.sampled(2)

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
MODES = (
    "timeout", "truncated_response", "rate_limit", "empty", "garbage", "response_drift", "stream_cut",
    "slow_first_token", "server_error", "malformed_tool_call",
)  # fmt: skip


class Asker:
    """An agent that asks a model once and stores the answer."""

    def __init__(self, url: str, *, streams: bool = False, library: str = "httpx") -> None:
        self.seen: Any = None
        self.sent: bytes = b""
        self._url = url
        self._streams = streams
        self._library = library

    async def ainvoke(self, prompt: str) -> str:
        system = {"role": "system", "content": "You are the desk of a shop."}
        messages = [system, {"role": "user", "content": prompt}]
        body = {"model": "m", "messages": messages, "stream": self._streams, "max_tokens": 100}
        try:
            self.seen = await getattr(self, f"_{self._library}")(body)
        except Exception as error:
            self.seen = error
        return "done"

    async def _httpx(self, body: Any) -> tuple[int, str]:
        async with httpx.AsyncClient(timeout=300) as client, client.stream("POST", self._url, json=body) as reply:
            got = b""
            try:
                async for piece in reply.aiter_bytes():
                    got += piece
            except httpx.HTTPError as error:
                return reply.status_code, f"{got.decode()}BROKEN {type(error).__name__}"
            return reply.status_code, got.decode()

    async def _requests(self, body: Any) -> tuple[int, str]:
        with requests.post(self._url, json=body, timeout=300, stream=True) as reply:
            got = b""
            try:
                for piece in reply.iter_content(64):
                    got += piece
            except requests.RequestException as error:
                return reply.status_code, f"{got.decode()}BROKEN {type(error).__name__}"
            return reply.status_code, got.decode()

    async def _aiohttp(self, body: Any) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.post(self._url, json=body) as reply:
            got = b""
            try:
                async for piece in reply.content.iter_any():
                    got += piece
            except aiohttp.ClientError as error:
                return reply.status, f"{got.decode()}BROKEN {type(error).__name__}"
            return reply.status, got.decode()

    async def _http_client(self, body: Any) -> tuple[int, str]:
        asked = urllib.request.Request(self._url, json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=300) as reply:
            return reply.status, b"".join(iter(reply.readline, b"")).decode()


def words_of(text: str) -> str:
    """The answer's text, of a whole reply or of the events of a stream."""
    from bylaw.wire.formats import format_named
    from bylaw.wire.formats.base import read_events

    wire = format_named("anthropic" if "message_start" in text or '"type": "message"' in text else "openai")
    if text.startswith(("data:", "event:")):
        return "".join(wire.text_in(event) for event in read_events(text.encode()))
    reply = json.loads(text)
    if "stop_reason" in reply:
        return "".join(block.get("text", "") for block in reply["content"])
    return reply["choices"][0]["message"].get("content") or ""


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("provider", PATHS)
@pytest.mark.parametrize("mode", MODES)
def test_the_agents_own_request_to_the_model_sees_the_fault(
    mode: str, provider: str, streams: bool, server: Served
) -> None:
    agent = Asker(server.url + PATHS[provider], streams=streams)
    run = ask(agent, llm_fault(mode, max_tokens=3))
    assert run.fired == {"fault": 1}
    if mode == "timeout":
        assert isinstance(agent.seen, httpx.ReadTimeout)
        return
    status, text = agent.seen
    if mode in ("rate_limit", "server_error"):
        assert status == {"rate_limit": 429, "server_error": 500}[mode]
        assert "error" in json.loads(text)
        assert server.asked == []
        return
    assert status == 200
    if mode == "stream_cut":
        assert "BROKEN RemoteProtocolError" in text and SAID not in text
        return
    said = words_of(text)
    wanted = {"truncated_response": " ".join(SAID.split()[:3]), "empty": "", "slow_first_token": SAID}
    assert said == wanted[mode] if mode in wanted else (said != SAID) == (mode != "malformed_tool_call")


@pytest.mark.parametrize("library", ["httpx", "requests", "aiohttp"])
@pytest.mark.parametrize("streams", [False, True])
def test_each_library_passes_on_a_broken_and_an_altered_answer(library: str, streams: bool, server: Served) -> None:
    agent = Asker(server.url + PATHS["openai"], streams=streams, library=library)
    assert ask(agent, llm_fault("truncated_response", max_tokens=2)).fired == {"fault": 1}
    assert words_of(agent.seen[1]) == "Order A-17"
    assert ask(agent, llm_fault("stream_cut", max_tokens=3)).fired == {"fault": 1}
    assert "BROKEN" in agent.seen[1]


@pytest.mark.parametrize("library", ["httpx", "requests", "aiohttp", "http_client"])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("sent", ["", "/chunked"])
def test_without_a_fault_an_answer_passes_unchanged_and_is_recorded(
    library: str, streams: bool, sent: str, server: Served
) -> None:
    agent = Asker(server.url + sent + PATHS["openai"], streams=streams, library=library)
    run = ask(agent)
    assert agent.seen == (200, server.reply(PATHS["openai"], server.asked[0][2])[0].decode())
    texts = [event.text for event in run.trace.events if type(event).__name__ == "Response"]
    assert SAID in texts


@pytest.mark.parametrize("kind", ["overflow", "conflicting_context", "injection_via_context", "memory_poisoning"])
@pytest.mark.parametrize("library", ["httpx", "requests", "aiohttp"])
def test_attacks_on_the_context_are_in_the_request(kind: str, library: str, server: Served) -> None:
    agent = Asker(server.url + PATHS["openai"], library=library)
    run = ask(agent, attack(kind, payloads=("EVIL",), inject_tokens=500), prompt='say "hi"')
    assert run.fired == {"fault": 1}
    sent = json.loads(server.asked[0][2])["messages"]
    assert sent[0] == {"role": "system", "content": "You are the desk of a shop."}
    reported = json.dumps(sent)
    assert len(reported) > 2000 if kind == "overflow" else "EVIL" in reported
    assert any('say "hi"' in message["content"] for message in sent)


@pytest.mark.parametrize("kind", ["overflow", "conflicting_context", "injection_via_context", "memory_poisoning"])
def test_attacks_on_an_agent_without_a_visible_model_go_into_the_prompt(kind: str) -> None:
    asked: list[str] = []

    def agent(prompt: str) -> str:
        asked.append(prompt)
        return "done"

    run = ask(agent, attack(kind, payloads=("EVIL",), inject_tokens=50))
    assert run.fired == {"fault": 1}
    assert "where is A-17?" in asked[-1] and asked[-1] != "where is A-17?"
