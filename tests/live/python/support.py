"""Helpers: run a Python agent with faults, and a server on loopback for it to call."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bylaw.contract.agents.python_agent import PythonAgent
from bylaw.contract.faults import AnyFault, ContextAttack, Injection, LlmFault, Timing, ToolFault
from bylaw.contract.live_agent import AgentRun
from bylaw.contract.model import AgentSpec
from tests.support.faults import make_attack, make_llm_fault, make_tool_fault

ORDER = {"order_id": "A-17", "status": "shipped", "total": 42, "updated_at": "2026-03-02"}
MODULE = "agent_of_a_test"


def tool_fault(mode: str, *, id: str = "fault", tool: str | None = "*", **options: Any) -> ToolFault:
    if mode in ("timeout", "slow"):
        options.setdefault("delay_ms", 40)
    return make_tool_fault(mode, id=id, tool=tool, **options)


def llm_fault(mode: str, **options: Any) -> LlmFault:
    if mode in ("timeout", "slow_first_token"):
        options.setdefault("delay_ms", 40)
    if mode == "response_drift":
        options.setdefault("drift_type", "tone_shift")
    return make_llm_fault(mode, id="fault", **options)


def attack(kind: str, **options: Any) -> ContextAttack:
    return make_attack(kind, id="fault", **options)


def nth(*calls: int) -> Timing:
    return Timing(nth=calls)


@asynccontextmanager
async def started(agent: Any, *, base: Path | None = None, **options: Any) -> Any:
    """Start an agent: an object, or the one at `module:attribute`."""
    address = agent
    if not isinstance(agent, str):
        module = types.ModuleType(MODULE)
        module.agent = agent  # type: ignore[attr-defined]
        sys.modules[MODULE] = module
        address = f"{MODULE}:agent"
    options.setdefault("timeout_ms", 300_000)
    live = PythonAgent(AgentSpec(type="python", endpoint=address, **options), base=base)
    await live.start()
    try:
        yield live
    finally:
        await live.stop()
        sys.modules.pop(MODULE, None)


def ask(agent: Any, *faults: AnyFault, prompt: str = "where is A-17?", seed: int = 0, **options: Any) -> AgentRun:
    """One run of the agent with these faults."""

    async def once() -> AgentRun:
        async with started(agent, **options) as live:
            return await live.run(prompt, Injection(faults=faults, seed=seed, run="run"))

    return asyncio.run(once())


def ask_until(reached: Callable[[], bool], agent: Any, *faults: AnyFault) -> AgentRun:
    """One run that times out, but not before the agent has got so far: repeated with more time until it has."""
    for timeout_ms in (80, 1000, 10_000, 100_000):
        run = ask(agent, *faults, timeout_ms=timeout_ms)
        if reached():
            return run
    raise AssertionError("the agent did not get so far")


class Served:
    """A server that stores the requests it gets."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""
        self.port = 0

    def reply(self, path: str, body: bytes) -> tuple[bytes, str]:
        if path.endswith("/chat/completions"):
            return _model_reply(body, _OPENAI, _openai_events), _kind(body)
        if path.endswith("/messages"):
            return _model_reply(body, _ANTHROPIC, _anthropic_events), _kind(body)
        return json.dumps(ORDER).encode(), "application/json"


SAID = "Order A-17 is shipped and will come on Monday morning at nine."
CALL = {"name": "find_order", "arguments": json.dumps({"order_id": "A-17"})}
_OPENAI = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": SAID,
        "tool_calls": [{"id": "t1", "type": "function", "function": CALL}]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}  # fmt: skip
_ANTHROPIC = {
    "id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": SAID},
                {"type": "tool_use", "id": "t1", "name": "find_order", "input": {"order_id": "A-17"}}],
    "usage": {"input_tokens": 1, "output_tokens": 2},
}  # fmt: skip


def _kind(body: bytes) -> str:
    return "text/event-stream" if json.loads(body).get("stream") else "application/json"


def _model_reply(body: bytes, reply: dict[str, Any], events: Callable[[], bytes]) -> bytes:
    return events() if json.loads(body).get("stream") else json.dumps(reply).encode()


def _openai_events() -> bytes:
    from bylaw.wire.formats import format_named

    return b"".join(format_named("openai").stream(_OPENAI))


def _anthropic_events() -> bytes:
    from bylaw.wire.formats import format_named

    return b"".join(format_named("anthropic").stream(_ANTHROPIC))


@contextmanager
def serving() -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            served.asked.append((self.path, dict(self.headers.items()), body))
            reply, kind = served.reply(self.path, body)
            packed = "gzip" in self.headers.get("accept-encoding", "") and "/packed" in self.path
            reply = gzip.compress(reply) if packed else reply
            self.send_response(302 if self.path == "/moved" else 200)
            self.send_header("content-type", kind)
            in_chunks = self.path.startswith("/chunked")
            if in_chunks:
                self.send_header("transfer-encoding", "chunked")
            else:
                self.send_header("content-length", str(len(reply)))
            self.send_header("set-cookie", "a=1")
            self.send_header("set-cookie", "b=2")
            if packed:
                self.send_header("content-encoding", "gzip")
            if self.path == "/moved":
                self.send_header("location", "/order")
            self.end_headers()
            if in_chunks:
                pieces = [reply[at : at + 40] for at in range(0, len(reply), 40)]
                reply = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
            self.wfile.write(reply)

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """Some tests break the connection on purpose."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    served.port = server.server_port
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
