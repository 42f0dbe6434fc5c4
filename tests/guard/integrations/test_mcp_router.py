"""Several MCP servers behind one connection: names, pages, questions and failures, without processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.integrations.mcp import router as module
from bylaw.guard.integrations.mcp.messages import Message, Send
from bylaw.guard.integrations.mcp.router import Router
from bylaw.guard.integrations.mcp.servers import (
    ServerProblem,
    default_name,
    named_server,
    read_config,
    read_header,
)


class Scripted:
    """A server that answers by a function of the request."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.answer, self.heard = answer, list[dict[str, Any]]()
        self.receive: Send
        self.ended: Callable[[], object]

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        self.receive, self.ended = receive, ended

    def send(self, message: Message) -> None:
        self.heard.append(json.loads(message.line))
        if "method" in message.body and "id" in message.body:
            answer = self.answer(message.body)
            if answer is not None:
                self.say({"jsonrpc": "2.0", "id": message.body["id"], **answer})

    def say(self, body: dict[str, Any]) -> None:
        self.receive(Message(json.dumps(body).encode()))

    def close(self) -> int:
        return 3


ERROR = {"error": {"code": -32601, "message": "what?"}}


def shop(body: dict[str, Any]) -> Any:
    match body["method"]:
        case "tools/list" if "cursor" in body["params"]:
            return {"result": {"tools": [{"name": "late"}]}}
        case "tools/list":
            return {"result": {"tools": [{"name": "pay"}, {"name": "look"}], "nextCursor": "2"}}
        case "resources/list":
            return {"result": {"resources": [{"uri": "shop://a"}]}}
        case "resources/templates/list":
            return {"result": {"resourceTemplates": [{"uriTemplate": "item://{id}"}]}}
        case "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}
            return {"result": {**result, "instructions": "Sell.", "serverInfo": {"name": "x", "version": "1"}}}
        case "tools/call" | "prompts/get" | "completion/complete" | "resources/read":
            return {"result": {"content": [{"type": "resource_link", "uri": "made://1"}], "by": "shop"}}
        case "silent":
            return None
    return ERROR


def files(body: dict[str, Any]) -> Any:
    match body["method"]:
        case "tools/list":
            return {"result": {"tools": [{"name": "read"}]}}
        case "resources/list":
            return {"result": {"resources": [{"uri": "file:///b"}]}}
        case "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}, "tools": {}}}
            return {"result": {**result, "serverInfo": {"name": "y", "version": "1"}}}
        case "resources/read" | "other/method":
            return {"result": {"by": "files"}}
        case "silent":
            return None
    return ERROR


class Servers:
    def __init__(self) -> None:
        self.shop, self.files = Scripted(shop), Scripted(files)
        self.reported: list[dict[str, Any]] = []
        self.ended = False
        self.router = Router({"shop": self.shop, "files": self.files})

        def end() -> None:
            self.ended = True

        self.router.start(lambda message: self.reported.append(json.loads(message.line)), end)

    def ask(self, method: str, id: Any = 1, **params: Any) -> Any:
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return self.reported[-1] if self.reported else None

    def send(self, body: dict[str, Any]) -> None:
        self.router.send(Message.of(body))


@pytest.fixture
def servers() -> Servers:
    return Servers()


def test_tools_have_the_name_of_their_server_and_pages_are_kept(servers: Servers) -> None:
    page = servers.ask("tools/list")["result"]
    assert [tool["name"] for tool in page["tools"]] == ["shop__pay", "shop__look", "files__read"]
    rest = servers.ask("tools/list", cursor=page["nextCursor"])["result"]
    assert [tool["name"] for tool in rest["tools"]] == ["shop__late"] and "nextCursor" not in rest
    assert len(servers.files.heard) == 1, "it has no second page"
    assert servers.ask("tools/list", cursor="made up")["error"]["message"].startswith("the cursor")


def test_a_call_goes_to_its_server_under_its_own_name(servers: Servers) -> None:
    assert servers.ask("tools/call", name="shop__pay", arguments={"a": 1})["result"]["by"] == "shop"
    assert servers.shop.heard[-1]["params"] == {"name": "pay", "arguments": {"a": 1}} and servers.files.heard == []
    for name in ("pay", "nobody__pay", "", 7, None):
        assert "belongs to no server" in servers.ask("tools/call", name=name)["error"]["message"]
    servers.ask("prompts/get", name="shop__greet")
    assert servers.shop.heard[-1]["params"]["name"] == "greet"
    servers.ask("completion/complete", ref={"type": "ref/prompt", "name": "shop__greet"}, argument={})
    assert servers.shop.heard[-1]["params"]["ref"]["name"] == "greet"


def test_the_servers_introduce_themselves_as_one(servers: Servers) -> None:
    result = servers.ask("initialize", protocolVersion="2025-11-25")["result"]
    assert (result["protocolVersion"], result["serverInfo"]["name"]) == ("2025-06-18", "bylaw")
    assert result["capabilities"] == {"tools": {"listChanged": True}, "resources": {}}
    assert result["instructions"] == "shop: Sell."
    servers.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert all(one.heard[-1]["method"] == "notifications/initialized" for one in (servers.shop, servers.files))
    assert servers.ask("server/discover")["error"]["code"] == -32601


def test_resources_go_where_they_are_from(servers: Servers) -> None:
    servers.ask("resources/list")
    servers.ask("resources/templates/list")
    for uri, owner in (("shop://a", "shop"), ("file:///b", "files"), ("item://9", "shop")):
        assert servers.ask("resources/read", uri=uri)["result"]["by"] == owner
    assert servers.ask("resources/read", uri="new://x")["result"]["by"] == "shop", "each is tried"
    servers.ask("tools/call", name="shop__pay")
    assert servers.ask("resources/read", uri="made://1")["result"]["by"] == "shop", "a result has named it"


def test_other_methods_are_tried_at_each_server(servers: Servers) -> None:
    assert servers.ask("other/method")["result"]["by"] == "files"
    assert servers.ask("unknown/method")["error"]["message"] == "what?"


def test_questions_of_servers_come_back_to_them(servers: Servers) -> None:
    for server in (servers.shop, servers.files):
        server.say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "?"}})
    ids = [one["id"] for one in servers.reported]
    assert len(set(ids)) == 2
    servers.send({"jsonrpc": "2.0", "id": ids[1], "result": {"action": "accept"}})
    assert servers.files.heard == [{"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}]
    for id in (7, "nobody__1", "shop__", "shop__x", None):
        servers.send({"jsonrpc": "2.0", "id": id, "result": {}})
    assert servers.shop.heard == []


def test_a_server_answers_only_what_it_was_asked(servers: Servers) -> None:
    servers.ask("silent", id=5)
    servers.files.say({"jsonrpc": "2.0", "id": 5, "result": {"content": "forged"}})
    servers.files.say({"jsonrpc": "2.0", "id": 99, "result": {}})
    assert servers.reported == []


@pytest.mark.parametrize("method", [None, 5, "x"])
def test_an_answer_that_is_also_a_request_is_an_error(servers: Servers, method: Any) -> None:
    servers.shop.answer = lambda body: None
    servers.ask("tools/call", id=5, name="shop__pay")
    servers.shop.say({"jsonrpc": "2.0", "id": 5, "method": method, "result": {"tools": [{"name": "evil"}]}})
    assert "was not passed on" in servers.reported[-1]["error"]["message"]
    servers.ask("tools/call", id=7, name="shop__pay")
    servers.shop.receive(Message(b'{"id":7,"result":{},"result":{"x":1}}'))
    assert "is given twice" in servers.reported[-1]["error"]["message"]
    servers.shop.answer = lambda body: {"method": method, "result": {"tools": [{"name": "evil"}]}}
    assert [tool["name"] for tool in servers.ask("tools/list", id=6)["result"]["tools"]] == ["files__read"]


@pytest.mark.parametrize("names", [("a", "a_"), ("a_", "a"), ("a_",)])
def test_a_tool_belongs_to_the_server_that_its_calls_go_to(names: tuple[str, ...]) -> None:
    own = {"a": "_pay", "a_": "pay"}
    answers = {name: {"result": {"tools": [{"name": own[name]}]}} for name in names}
    servers = {name: Scripted(lambda _, name=name: answers[name]) for name in names}  # type: ignore[misc]
    router, reported = Router(servers), list[Message]()
    router.start(reported.append, lambda: None)
    router.send(Message.of({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
    assert [tool["name"] for tool in reported[0].body["result"]["tools"]] == (["a___pay"] if "a" in names else [])


def test_cancelling_and_progress_reach_one_server(servers: Servers) -> None:
    servers.ask("silent", id=5)
    servers.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
    assert servers.shop.heard[-1]["method"] == "notifications/cancelled" and servers.files.heard == []
    question = {"message": "?", "_meta": {"progressToken": "t"}}
    servers.files.say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": question})
    servers.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t"}})
    assert servers.files.heard[-1]["method"] == "notifications/progress"
    assert servers.shop.heard[-1]["method"] != "notifications/progress"


def test_one_that_ends_fails_alone(servers: Servers) -> None:
    servers.ask("silent", id=5)
    servers.shop.ended()
    assert servers.reported[-1] == {
        "jsonrpc": "2.0", "id": 5, "error": {"code": -32000, "message": "the server `shop` has ended"}
    }  # fmt: skip
    assert [tool["name"] for tool in servers.ask("tools/list")["result"]["tools"]] == ["files__read"]
    assert "is not running" in servers.ask("tools/call", name="shop__pay")["error"]["message"]
    assert not servers.ended
    servers.files.ended()
    assert servers.ended and servers.router.close() == 3


def test_a_list_does_not_wait_for_a_silent_server(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over only after the other server has answered, however busy the machine is."""
    asked: list[threading.Timer] = []

    def start(timer: threading.Timer) -> None:
        asked.append(timer)

    monkeypatch.setattr(threading.Timer, "start", start)
    servers.shop.answer = lambda body: None
    servers.ask("tools/list")
    (timer,) = asked
    assert timer.interval == module.PATIENCE
    timer.function(*timer.args, **timer.kwargs)
    assert [tool["name"] for tool in servers.reported[-1]["result"]["tools"]] == ["files__read"]


# -- which servers there are


def test_servers_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entries = {
        "My Shop": {"command": "python", "args": ["${HOME}/s.py"], "env": {"T": "${env:TOKEN}"}, "cwd": "/x"},
        "far": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN:-none}"}},
        "off": {"command": "x", "disabled": True},
        "bare": {"command": "x", "url": None, "args": None, "env": None, "cwd": None},
    }
    path.write_text(json.dumps({"mcpServers": entries}))
    shop, far, bare = read_config(path, {"HOME": "/home/ann", "TOKEN": "t"})
    assert (shop.name, shop.command, shop.environment) == ("My-Shop", ("python", "/home/ann/s.py"), {"T": "t"})
    assert (far.url, far.headers) == ("https://x.example/mcp", {"Authorization": "Bearer t"})
    assert (bare.command, bare.url, bare.environment) == (("x",), None, {})
    for text, why in (
        ('{"mcpServers": {}}', "names no server"),
        ('{"mcpServers": {"a": {"command": "${NOT_SET}"}}}', "`NOT_SET` is not set"),
        ('{"servers": {"a": {"url": "${input:token}"}}}', "only the client knows"),
        ('{"servers": {"a": {"args": []}}}', "neither a command nor a URL"),
        ('{"servers": {"a": {"command": "x", "url": "https://x.example/"}}}', "both `command` and `url`"),
        ('{"servers": {"a": {"url": "https://x.example/", "httpUrl": "https://y.example/"}}}', "both `url` and"),
        ('{"servers": {"a": {"url": 5}}}', "its `url` is not text"),
        ('{"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "x"}}}', "two servers `a-b`"),
        ("{ // mine\n}", "it has comments"),
    ):
        path.write_text(text)
        with pytest.raises(ServerProblem, match=why):
            read_config(path, {})
    with pytest.raises(ServerProblem, match="there is no file"):
        read_config(tmp_path / "none")


def test_servers_and_headers_on_the_command_line() -> None:
    assert named_server("a=python 'my server.py'", {}).command == ("python", "my server.py")
    assert named_server("a=https://x.example/mcp", {"k": "v"}).headers == {"k": "v"}
    for text in ("python server.py", "a=", "a__b=x", "a_=x", "_a=x", "=x", "a b=x", "a='x"):
        with pytest.raises(ServerProblem):
            named_server(text, {})
    assert read_header("Authorization=ENV:TOKEN", {"TOKEN": "Bearer x"}) == ("Authorization", "Bearer x")
    for text in ("Authorization=Bearer x", "Authorization=ENV:", "Authorization=ENV:NONE", "=ENV:TOKEN"):
        with pytest.raises(ServerProblem) as raised:
            read_header(text, {"TOKEN": "x"})
        assert "Bearer" not in str(raised.value), "it may be a secret"
    assert default_name(["/usr/bin/npx", "a"], None) != default_name(["/usr/bin/npx", "b"], None)
    assert default_name([], "https://mcp.example/x").startswith("mcp.example-")
