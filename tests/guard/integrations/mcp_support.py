"""Real MCP servers and the official client, for the tests of the proxy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bylaw
from bylaw.guard.integrations.mcp.listener import McpListener
from bylaw.guard.integrations.mcp.pins import StoredPins, ToolCheck
from bylaw.guard.integrations.mcp.proxy import Settings
from bylaw.guard.integrations.mcp.servers import ServerSpec, maker, splitter

SHOP = Path(__file__).with_name("mcp_shop.py")
PYTHON = (sys.executable, "-W", "ignore")


@contextmanager
def running_shop(kind: str, runs: Path) -> Iterator[str]:
    """The URL of the shop by `http` or `sse`."""
    command = [*PYTHON, str(SHOP), kind, "0"]
    environment = {**os.environ, "SHOP_RUNS": str(runs)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
        process.kill()


def runs_in(path: Path) -> list[tuple[str, dict[str, Any]]]:
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def listening(guard: bylaw.Guard, specs: list[ServerSpec], *, check: bool = False, **more: Any) -> Iterator[str]:
    """The URL of a proxy in this process."""
    tools = ToolCheck(StoredPins(guard.store), splitter(specs)) if check else None
    header = more.pop("session_header", None)
    settings = Settings(guard=guard, make_server=maker(specs), check=tools, **more)
    listener = McpListener(settings, "127.0.0.1", 0, session_header=header)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield listener.url
    finally:
        listener.shutdown()
        listener.server_close()


async def exercise(client: Any, prefix: str = "") -> dict[str, Any]:
    """Every method of the protocol that the shop knows, and what came of it."""
    found: dict[str, Any] = {"version": client.protocol_version, "capabilities": client.server_capabilities}
    progress: list[Any] = []

    async def note(*step: Any) -> None:
        progress.append(step)

    found["tools"] = (await client.list_tools()).tools
    found["look"] = await client.call_tool(f"{prefix}look", {})
    found["fail"] = await client.call_tool(f"{prefix}fail", {})
    found["unknown"] = await _or_error(client.call_tool, f"{prefix}nothing", {})
    found["wrong"] = await _or_error(client.call_tool, f"{prefix}pay", {"amount": "much"})
    found["slow"] = await client.call_tool(f"{prefix}slow", {}, progress_callback=note)
    found["progress"] = progress
    for tool in ("ask", "think"):
        found[tool] = await _or_error(client.call_tool, f"{prefix}{tool}", {})
    found["prompts"] = (await client.list_prompts()).prompts
    found["prompt"] = await client.get_prompt(f"{prefix}greet", {"name": "Änn\u2028"})
    found["no prompt"] = await _or_error(client.get_prompt, f"{prefix}nothing", {})
    found["resources"] = (await client.list_resources()).resources
    found["templates"] = (await client.list_resource_templates()).resource_templates
    found["prices"] = await client.read_resource("shop://prices")
    found["item"] = await client.read_resource("shop://item/7")
    found["no resource"] = await _or_error(client.read_resource, "shop://nothing/at/all")
    found["ping"] = await _or_error(client.send_ping)
    return {name: _plain(value) for name, value in found.items()}


async def _or_error(work: Callable[..., Any], *arguments: Any) -> Any:
    from mcp import MCPError

    try:
        return await work(*arguments)
    except MCPError as problem:
        return [problem.code, problem.message]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else value


def talkative_client(target: Any, mode: str, heard: list[str]) -> Any:
    """A client that answers questions of the server. `heard` gets its notifications."""
    import mcp
    import mcp_types as types

    async def sample(*_: Any) -> Any:
        text = types.TextContent(type="text", text="yes")
        return types.CreateMessageResult(role="assistant", content=text, model="m")

    async def elicit(*_: Any) -> Any:
        return types.ElicitResult(action="accept", content={"colour": "red"})

    async def roots(*_: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///x")])  # type: ignore[arg-type]

    async def log(params: Any) -> None:
        heard.append(f"log {params.data}")

    async def hear(message: Any) -> None:
        heard.append(type(message).__name__)

    return mcp.Client(
        target,
        mode=mode,
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=roots,
        logging_callback=log,
        message_handler=hear,
        read_timeout_seconds=30,
    )
