"""FastMCP: a server with the middleware, and an agent that calls it with FastMCP's own client in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import fastmcp
import pytest
from fastmcp.exceptions import ToolError
from fastmcp.server.transforms.search import RegexSearchTransform
from mcp import MCPError

import bylaw
from tests.guard.integrations.situations import RULES, Outcome, Shop, Situations, WaitingDriver, run_page


class FastMCPDriver(WaitingDriver):
    """MCP knows no model: the agent makes its calls, and then says `done`."""

    async def astart(self) -> Outcome:
        server = server_of(self.shop)
        server.add_middleware(bylaw.integrations.fastmcp(self.guard, **self.options))
        self.outcome = outcome = Outcome()
        async with fastmcp.Client(server) as client:
            for turn in self.turns:
                calls = [client.call_tool(tool, given, raise_on_error=False) for tool, given in turn]
                outcome.results += [text(result) for result in await asyncio.gather(*calls)]
        outcome.answer = "done"
        return outcome


def text(result: Any) -> str:
    return str(result.content[0].text)


def server_of(shop: Shop) -> fastmcp.FastMCP:
    server: fastmcp.FastMCP = fastmcp.FastMCP("shop")

    @server.tool
    def look() -> str:
        return shop.run("look")

    @server.tool
    def drop() -> str:
        return shop.run("drop")

    @server.tool
    def wipe() -> str:
        return shop.run("wipe")

    @server.tool
    async def delegate() -> str:
        return await shop.delegate()

    @server.tool
    def pay(amount: int) -> str:
        return shop.run("pay", amount=amount)

    @server.tool
    def book(seat: int) -> str:
        return shop.run("book", seat=seat)

    return server


class TestFastMCP(Situations):
    driver = FastMCPDriver
    test_what_the_model_says_reaches_the_rules = None  # type: ignore[assignment]  # MCP does not carry it

    def test_terminated(self, guard: bylaw.Guard, shop: Shop) -> None:
        """The client runs the agent, so the server can only refuse every later call."""
        with guard.session("s"):
            outcome = self.driver(guard, shop, [[("wipe", {})], [("look", {})]]).start()
        assert outcome.results[0].startswith("it is over") and "was ended" in outcome.results[1]
        assert shop.runs == []

    def test_the_guard_crashes(self, guard: bylaw.Guard, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guard, "decide", lambda *_, **__: 1 / 0)
        with guard.session("s"), pytest.raises(MCPError):  # which leaves the client
            self.driver(guard, shop, [[("look", {})]]).start()
        assert shop.runs == []

    def test_what_tools_return_is_recorded(self, guard: bylaw.Guard, shop: Shop, monkeypatch: Any) -> None:
        recorded: list[Any] = []
        record = guard.record
        monkeypatch.setattr(guard, "record", lambda *given, **more: recorded.append(given[1]) or record(*given, **more))
        with guard.session("s"):
            self.driver(guard, shop, [[("look", {}), ("drop", {})]]).start()
        assert recorded == [{"result": "look done"}]


def test_without_a_session_every_call_is_refused() -> None:
    """FastMCP's own `session_id` is another one for each request, so that no limit would ever be reached."""
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard:
        outcome = FastMCPDriver(guard, shop, [[("look", {})]]).start()
    assert outcome.results[0].startswith("the attempt names no session") and shop.runs == []


def test_a_limit_holds_across_connections() -> None:
    shop = Shop()
    with bylaw.Guard({"guard": RULES}) as guard:
        for _ in range(2):
            FastMCPDriver(guard, shop, [[("book", {"seat": 1})]], session="desk").start()
    assert len(shop.runs) == 1


def test_tools_outside_the_allowlist_are_hidden() -> None:
    async def listed() -> list[str]:
        server = server_of(Shop())
        server.add_middleware(bylaw.integrations.fastmcp(guard))
        async with fastmcp.Client(server) as client:
            return [tool.name for tool in await client.list_tools()]

    rules = {"agent": "desk", "tools": ["look", "pay"], "rules": []}
    with bylaw.Guard({"guard": [rules]}) as guard, guard.session("s", agent="desk"):
        assert asyncio.run(listed()) == ["look", "pay"]


def call(server: Any, tool: str, given: Any) -> Any:
    async def run() -> Any:
        async with fastmcp.Client(server) as client:
            return await client.call_tool(tool, given, raise_on_error=False)

    return asyncio.run(run())


def test_a_mounted_server_is_called_by_its_prefix() -> None:
    """Rules about the tools of a mounted server name them as the client does."""
    shop, outer = Shop(), fastmcp.FastMCP("outer")
    outer.mount(server_of(shop), namespace="shop")
    rules = {"rules": [{"id": "no", "when": {"tool_name_in": ["shop_drop"]}, "then": "block"}]}
    with bylaw.Guard({"guard": rules}) as guard:
        outer.add_middleware(bylaw.integrations.fastmcp(guard, session="s"))
        assert call(outer, "shop_drop", {}).is_error and shop.runs == []
        assert not call(outer, "shop_look", {}).is_error


def test_a_call_inside_the_server_is_decided() -> None:
    shop = Shop()
    server = server_of(shop)
    with bylaw.Guard({"guard": RULES}) as guard:
        server.add_middleware(bylaw.integrations.fastmcp(guard, session="s"))
        with pytest.raises(ToolError, match="tables stay"):
            asyncio.run(server.call_tool("drop", {}))
    assert shop.runs == []


def test_a_tool_that_calls_others_is_decided_and_so_are_they() -> None:
    shop = Shop()
    server = server_of(shop)
    server.add_transform(RegexSearchTransform())
    with bylaw.Guard({"guard": RULES}) as guard:
        server.add_middleware(bylaw.integrations.fastmcp(guard, session="s"))
        assert text(call(server, "call_tool", {"name": "drop", "arguments": {}})).startswith("tables stay")
        assert text(call(server, "call_tool", {"name": "look", "arguments": {}})) == "look done"
    assert shop.runs == [("look", {})]


def test_a_tool_that_raises_is_recorded_as_made() -> None:
    server: fastmcp.FastMCP = fastmcp.FastMCP("shop")

    @server.tool
    def book() -> str:
        raise ValueError("no seat")

    with bylaw.Guard({"guard": RULES}) as guard:
        server.add_middleware(bylaw.integrations.fastmcp(guard, session="s"))
        assert "no seat" in text(call(server, "book", {}))
        assert text(call(server, "book", {})).startswith("one booking")


def test_a_tool_that_an_app_finds_by_a_hash_is_judged_by_its_name() -> None:
    shop = Shop()
    server = server_of(shop)
    with bylaw.Guard({"guard": RULES}) as guard:
        server.add_middleware(bylaw.integrations.fastmcp(guard, session="s"))

        async def by_hash(digest: str, name: str, **_: Any) -> Any:
            return await server.get_tool(name)

        server.get_tool_by_hash = by_hash  # type: ignore[method-assign]
        result = call(server, "0123456789ab_drop", {})
    assert text(result).startswith("tables stay") and shop.runs == []


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("fastmcp", tmp_path, monkeypatch)
