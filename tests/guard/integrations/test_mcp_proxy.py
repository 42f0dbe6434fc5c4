"""`bylaw guard mcp`: line by line without processes, and once with a real server and the official client."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.integrations.calls import Calls
from bylaw.guard.integrations.mcp_proxy import McpProxy, run_proxy
from tests.guard.integrations.situations import RULES
from tests.support.command import run_bylaw

SERVER = Path(__file__).parents[2] / "live" / "proxy" / "mcp_server.py"
LISTED = {**RULES, "tools": ["look", "drop", "pay", "wipe", "book"]}


class Connection(McpProxy):
    """A proxy whose two ends are lists."""

    def __init__(self, guard: bylaw.Guard, **more: Any) -> None:
        self.server: list[bytes] = []
        self.client: list[bytes] = []
        super().__init__(Calls(guard, session="s"), to_server=self.server.append, to_client=self.client.append, **more)

    def call(self, tool: str, arguments: Any = None, id: Any = 1) -> bytes:
        params = {"name": tool, "arguments": arguments or {}}
        line = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode() + b"\n"
        self.from_client(line)
        return line

    def told(self) -> Any:
        """The last message to the client: the text of a result, or an error."""
        message = json.loads(self.client[-1])
        return message["error"] if "error" in message else message["result"]["content"][0]["text"]


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": LISTED}) as guard:
        yield guard


@pytest.fixture
def proxy(guard: bylaw.Guard) -> Connection:
    return Connection(guard)


def test_an_allowed_call_and_its_result_are_passed_on_as_they_are(proxy: Connection) -> None:
    line = proxy.call("look")
    assert proxy.server == [line] and proxy.client == []
    answer = b'{ "jsonrpc":"2.0", "id":1, "result":{"content":[], "isError":false} }\n'
    proxy.from_server(answer)
    assert proxy.client == [answer]


def test_a_blocked_call_is_an_error_of_the_tool(proxy: Connection) -> None:
    proxy.call("drop")
    assert proxy.server == [] and proxy.told().startswith("tables stay; do not repeat this call")
    assert json.loads(proxy.client[0])["result"]["isError"] is True


def test_a_paused_call_says_which_review_it_waits_for_and_runs_when_it_is_repeated(
    proxy: Connection, guard: bylaw.Guard
) -> None:
    proxy.call("pay", {"amount": 500})
    (review,) = guard.reviews.list()
    assert proxy.server == [] and proxy.told().startswith(f"waiting for a person: {review.id} (more than 100")
    guard.reviews.approve(review.id, by="ann", edited={"tool": "pay", "arguments": {"amount": 9}})
    proxy.call("pay", {"amount": 500}, id=2)
    (line,) = proxy.server
    assert json.loads(line)["params"] == {"name": "pay", "arguments": {"amount": 9}}


def test_a_rejected_call_and_a_terminated_session(proxy: Connection, guard: bylaw.Guard) -> None:
    proxy.call("pay", {"amount": 500})
    guard.reviews.reject(guard.reviews.list()[0].id, by="ann")
    proxy.call("wipe", id=2)
    assert proxy.told().startswith("it is over")
    proxy.call("look", id=3)
    assert proxy.server == []


def test_two_calls_under_a_limit_of_one(proxy: Connection) -> None:
    proxy.call("book", {"seat": 1}, id=1)
    proxy.call("book", {"seat": 2}, id=2)
    assert len(proxy.server) == 1 and proxy.told().startswith("one booking")


@pytest.mark.parametrize("name", ["_decide", "decide"])
def test_a_guard_that_fails_passes_nothing_on(
    name: str, proxy: Connection, guard: bylaw.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, name, lambda *_, **__: 1 / 0)
    proxy.call("look")
    assert proxy.server == [] and "ZeroDivisionError" in proxy.told()


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_may_wait_for_a_person_while_others_go_on(guard: bylaw.Guard, cancelled: bool) -> None:
    proxy = Connection(guard, wait=20)
    paid = proxy.call("pay", {"amount": 500}, id="a")
    while not guard.reviews.list():
        time.sleep(0.001)
    while not proxy._waiting:
        time.sleep(0.001)
    proxy.from_client(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
    if cancelled:
        proxy.from_client(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}\n')
    before = list(proxy.server)
    guard.reviews.approve(guard.reviews.list()[0].id, by="ann")
    for thread in threading.enumerate():
        if thread.name.endswith("(_call)"):
            thread.join(10)
    assert proxy.server == (before if cancelled else [*before, paid])


def test_tools_outside_the_allowlist_are_hidden(proxy: Connection) -> None:
    proxy.from_client(b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}\n')
    tools = [{"name": "look", "inputSchema": {}}, {"name": "secret", "inputSchema": {}}]
    proxy.from_server(json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"tools": tools, "nextCursor": "x"}}).encode())
    assert json.loads(proxy.client[0])["result"] == {"tools": tools[:1], "nextCursor": "x"}
    proxy.call("secret")
    assert len(proxy.server) == 1 and "`secret` is not a tool of this agent" in proxy.told()


CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop"}}'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        f"[{CALL}]",
        f'[{{"jsonrpc":"2.0","id":2,"method":"ping"}},{CALL}]',
        CALL.replace('"method"', '"method":"ping","method"'),
        CALL.replace('"tools/call"', '"tools/call","method":"ping"'),
        CALL.replace('"name"', '"name":"look","name"'),
        CALL.replace("tools/call", "tools\\/call"),
        CALL.replace("tools/call", "\\u0074ools/call"),
        CALL.replace('"id":1,', ""),
        CALL.replace('"id":1', '"id":null'),
        CALL.replace('"id":1', '"id":true'),
        CALL.replace('{"name":"drop"}', '["drop"]'),
        CALL.replace('"drop"', "NaN"),
        CALL.replace('"drop"', "7"),
        "[" * 100_000,
        f"\ufeff{CALL}",
        CALL + CALL,
        CALL + "\r" + CALL,
    ],
)
def test_no_form_of_a_line_takes_a_call_past_the_guard(line: str, proxy: Connection) -> None:
    proxy.from_client(line.encode() + b"\n")
    assert proxy.server == [] and len(proxy.client) == 1


@pytest.mark.parametrize("break_", ["\r", "\u0085", "\u2028", "\u2029"])
def test_no_message_hides_a_call_in_a_line_of_its_own(break_: str, proxy: Connection) -> None:
    inner = CALL.replace('"', "'") if break_ != "\r" else CALL
    text = f'{{"x":[{break_}{inner}{break_}]}}' if break_ == "\r" else json.dumps({"x": f"{break_}{inner}{break_}"})
    proxy.from_client(text.encode() if break_ == "\r" else json.dumps(json.loads(text), ensure_ascii=False).encode())
    (line,) = proxy.server
    assert len(line.decode().splitlines()) == 1 and json.loads(line) == json.loads(text)


def test_other_messages_are_passed_on_byte_for_byte(proxy: Connection) -> None:
    lines = [
        b'{ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"x": 1.50} }\n',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n',
        b'{"jsonrpc":"2.0","id":3,"result":{"action":"accept"}}\n',
    ]
    for line in lines:
        proxy.from_client(line)
        proxy.from_server(line)
    assert proxy.server == lines and proxy.client == lines


def test_the_official_client_and_a_real_server(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    rules = tmp_path / "guard.yaml"
    rules.write_text(
        json.dumps(
            {
                "guard": {
                    "tools": ["get_weather"],
                    "rules": [
                        {
                            "id": "one",
                            "kind": "max_calls",
                            "params": {"tool": "get_weather", "limit": 1},
                            "scope": "session",
                            "then": "block",
                        }
                    ],
                }
            }
        )
    )

    async def use() -> Any:
        bylaw_guard = ["-m", "bylaw", "guard", "mcp", "-p", str(rules), "--", sys.executable, str(SERVER)]
        async with mcp.Client(mcp.StdioServerParameters(command=sys.executable, args=bylaw_guard)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            first = await client.call_tool("get_weather", {"city": "Bern"})
            second = await client.call_tool("get_weather", {"city": "Chur"})
            hidden = await client.call_tool("greet", {"name": "Ann"})
            return tools, first, second, hidden

    tools, first, second, hidden = asyncio.run(use())
    assert tools == ["get_weather"]
    assert not first.is_error and first.structured_content["city"] == "Bern"
    assert second.is_error and "get_weather" in second.content[0].text
    assert hidden.is_error and "`greet` is not a tool of this agent" in hidden.content[0].text


def test_the_exit_code_is_that_of_the_server(guard: bylaw.Guard, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"")
    with (tmp_path / "in").open("rb") as client, (tmp_path / "out").open("wb") as out:
        assert run_proxy(Calls(guard, session="s"), ["sh", "-c", "exit 7"], client, out) == 7


@pytest.mark.parametrize("rules", ["rules: []", "rules:\n- {id: a, kind: no_call, params: {tool: x}}"])
def test_rules_that_decide_nothing_are_refused(rules: str, tmp_path: Path) -> None:
    (tmp_path / "guard.yaml").write_text(rules)
    ran = run_bylaw(["guard", "mcp", "-p", str(tmp_path / "guard.yaml"), "--", sys.executable, "-c", "print(1)"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "give one a `then`" in ran.stderr
