"""A proxy with one run open, the clients of real providers, and a tool's server, all on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

from bylaw.contract.agents.chaos_proxy import ChaosProxy, ProxiedRun
from bylaw.contract.faults import AnyFault, ContextAttack, Injection, LlmFault, ToolFault
from bylaw.contract.model import McpServer
from bylaw.wire.proxy.child_environment import Authority
from tests.support.faults import make_attack, make_llm_fault, make_tool_fault

TEXT = "The order 4711 was sent on Monday and will be with you in three days, as promised before."
CALL = {"name": "find_order", "arguments": {"order": "4711", "region": "north"}}
SCRIPT = f"""
replies:
  - when: {{contains: use the tool, last_role: user}}
    tool_calls: [{json.dumps(CALL)}]
  - when: {{contains: as json}}
    text: '{{"id": 4711, "state": {{"name": "sent"}}}}'
  - text: {TEXT}
"""
PROVIDERS = ("openai", "openai_responses", "anthropic")


def llm(mode: str, **keys: Any) -> LlmFault:
    return make_llm_fault(mode, **keys)


def tool(mode: str, **keys: Any) -> ToolFault:
    return make_tool_fault(mode, **{"tool": "*", **keys})


def attack(type: str, **keys: Any) -> ContextAttack:
    return make_attack(type, **keys)


def fired(run: ProxiedRun) -> int:
    """How often the only fault of a run fired."""
    (count,) = run.plan.fired.values()
    return count


@asynccontextmanager
async def proxied(
    folder: Path,
    *faults: AnyFault,
    upstreams: dict[str, str] | None = None,
    mcp: tuple[McpServer, ...] = (),
    authority: Authority | None = None,
    seed: int = 7,
) -> AsyncIterator[tuple[ChaosProxy, ProxiedRun]]:
    if upstreams is None:
        (folder / "script.yaml").write_text(SCRIPT)
        upstreams = {"openai": "script.yaml", "anthropic": "script.yaml"}
    proxy = ChaosProxy(upstreams=upstreams, mcp=mcp, base=folder, authority=authority)
    await proxy.start()
    run = ProxiedRun(Injection(faults=faults, seed=seed, run="test"), "hello")
    proxy.runs.open(run)
    try:
        yield proxy, run
    finally:
        await proxy.runs.close(run)
        await proxy.stop()


@dataclass
class Said:
    """An answer as the client returns it."""

    text: str
    finish: str | None
    arguments: list[Any] = field(default_factory=list)
    """of the calls, as the client gives them: text for OpenAI, values for Anthropic"""


async def ask(url: str, provider: str, prompt: str, *, streamed: bool, timeout: float = 300) -> Said:
    """One question through the provider's own client, which does not retry."""
    if provider == "anthropic":
        async with anthropic.AsyncAnthropic(
            base_url=f"{url}/anthropic", api_key="x", max_retries=0, timeout=timeout, http_client=_plain(timeout)
        ) as client:
            return await _anthropic(client, prompt, streamed=streamed)
    async with openai.AsyncOpenAI(
        base_url=f"{url}/openai/v1", api_key="x", max_retries=0, timeout=timeout, http_client=_plain(timeout)
    ) as client:
        answering = _chat if provider == "openai" else _responses
        return await answering(client, prompt, streamed=streamed)


def _plain(timeout: float) -> httpx2.AsyncClient:
    """Without loading certificates, which is slow."""
    return httpx2.AsyncClient(verify=False, timeout=timeout)


async def _chat(client: openai.AsyncOpenAI, prompt: str, *, streamed: bool) -> Said:
    messages: Any = [{"role": "system", "content": "be kind"}, {"role": "user", "content": prompt}]
    if not streamed:
        reply = await client.chat.completions.create(model="m", messages=messages)
        choice = reply.choices[0]
        calls = [call.function.arguments for call in choice.message.tool_calls or ()]  # type: ignore[union-attr]
        return Said(choice.message.content or "", choice.finish_reason, calls)
    said = Said("", None)
    calls_by_index: dict[int, str] = {}
    async for chunk in await client.chat.completions.create(model="m", messages=messages, stream=True):
        for part in chunk.choices:
            said.text += part.delta.content or ""
            said.finish = part.finish_reason or said.finish
            for call in part.delta.tool_calls or ():
                held = calls_by_index.get(call.index, "")
                calls_by_index[call.index] = held + ((call.function and call.function.arguments) or "")
    said.arguments = list(calls_by_index.values())
    return said


async def _responses(client: openai.AsyncOpenAI, prompt: str, *, streamed: bool) -> Said:
    if not streamed:
        return _said(await client.responses.create(model="m", input=prompt, instructions="be kind"))
    text, last = "", None
    async for event in await client.responses.create(model="m", input=prompt, instructions="be kind", stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ("response.completed", "response.incomplete"):
            last = event.response
    if last is None:
        raise openai.APIConnectionError(message="the stream ended early", request=None)  # type: ignore[arg-type]
    said = _said(last)
    assert said.text == text
    return said


def _said(response: Any) -> Said:
    finish = response.incomplete_details.reason if response.incomplete_details else response.status
    calls = [item.arguments for item in response.output if item.type == "function_call"]
    return Said(response.output_text, finish, calls)


async def _anthropic(client: anthropic.AsyncAnthropic, prompt: str, *, streamed: bool) -> Said:
    asked: Any = {
        "model": "m",
        "max_tokens": 100,
        "system": "be kind",
        "messages": [{"role": "user", "content": prompt}],
    }
    if not streamed:
        reply = await client.messages.create(**asked)
        texts = "".join(block.text for block in reply.content if block.type == "text")
        return Said(texts, reply.stop_reason, [block.input for block in reply.content if block.type == "tool_use"])
    said, partial = Said("", None), ""
    async for event in await client.messages.create(**asked, stream=True):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            said.text += event.delta.text
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            partial += event.delta.partial_json
        elif event.type == "message_delta":
            said.finish = event.delta.stop_reason
    said.arguments = [partial] if partial else []
    return said


class Seen(list[dict[str, Any]]):
    """The requests that a server got: method, path, headers, body."""


@contextmanager
def server(answer: Any = None, *, wrap: Any = None) -> Iterator[tuple[str, Seen]]:
    """A tool's server. Each answer holds the number of the request, so that no two are equal."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append({"method": self.command, "path": self.path, "headers": headers, "body": body})
            status, content_type, said = (answer or weather)(seen)
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_PUT = do_DELETE = do_GET

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    if wrap is not None:
        http.socket = wrap(http.socket)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if wrap else 'http'}://127.0.0.1:{http.server_address[1]}", seen
    finally:
        http.shutdown()
        http.server_close()


WEATHER = {"city": "Bern", "degrees": 21, "sunny": True, "at": "2026-03-01"}


def weather(seen: Seen) -> tuple[int, str, bytes]:
    return 200, "application/json", json.dumps({**WEATHER, "number": len(seen)}).encode()
