"""Messages that two readers could take for different ones, in both directions, without processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import bylaw
from bylaw.guard.integrations.mcp.messages import ambiguity_of, ambiguity_of_arguments
from tests.guard.integrations.test_mcp_proxy import CALL, LISTED, LISTING, Lines

ALLOWED = CALL.replace("drop", "look")


@pytest.fixture
def guard() -> Iterator[bylaw.Guard]:
    with bylaw.Guard({"guard": LISTED}) as guard:
        yield guard


@pytest.fixture
def proxy(guard: bylaw.Guard) -> Lines:
    return Lines(guard)


@pytest.mark.parametrize(
    "line",
    [
        CALL.replace("method", "Method"),
        CALL.replace("method", "METHOD"),
        CALL.replace("method", "method "),
        CALL.replace('"method"', '"method":"ping","Method"'),
        CALL.replace('"params"', '"params":{"name":"look"},"Params"'),
        ALLOWED.replace('"params"', '"param\u017f":{"name":"drop"},"params"'),
        ALLOWED.replace('"params"', '"param\\u017f":{"name":"drop"},"params"'),
        ALLOWED.replace('"name"', '"Name":"drop","name"'),
        ALLOWED.replace('"name"', '"n\u0430me":"x","NAME":"drop","name"'),
        ALLOWED.replace('"name"', '"arguments":{},"Arguments":{"a":1},"name"'),
        ALLOWED.replace('"name"', '"argument\u017f":{"a":1},"name"'),
        ALLOWED.replace('"name"', '"arguments":{"a":1,"A":2},"name"'),
        ALLOWED.replace('"name"', '"arguments":{"x":[{"s":1,"\u017f":2}]},"name"'),
        ALLOWED.replace('"id"', '"ID":2,"id"'),
        *(
            CALL.replace("tools/call", form)
            for form in ("Tools/Call", "tools/call ", " tools/call", "tools/ca\u200bll")
        ),
        *(CALL.replace("tools/call", form) for form in ("TOOLS/CALL", "tools/call\\u0000", "\uff54ools/call")),
        LISTING.decode().replace("list", "List"),
        CALL.replace('"tools/call"', "5"),
        CALL.replace('"tools/call"', "null"),
        CALL.replace("}}", '},"result":{}}'),
        CALL.replace("}}", '},"error":{"code":1,"message":"x"}}'),
        '{"jsonrpc":"2.0","id":1}',
    ],
)
def test_nothing_is_passed_to_a_server_that_it_could_read_otherwise(line: str, proxy: Lines) -> None:
    proxy.ask(line.encode())
    assert proxy.server == [] and "was not passed on" in proxy.reported()["message"]


def test_an_argument_is_not_spelt_in_another_way_than_the_tool_has_it(proxy: Lines) -> None:
    proxy.ask(LISTING)
    item = {"type": "object", "properties": {"price": {}}}
    schema = {"properties": {"amount": {}, "items": {"items": item}, "for": item}}
    proxy.tell({"jsonrpc": "2.0", "id": 7, "result": {"tools": [{"name": "pay", "inputSchema": schema}]}})
    proxy.server.clear()
    for arguments in ({"Amount": 500}, {"items": [{"Price": 1}]}, {"for": {"PRICE": 1}}):
        proxy.call("pay", arguments)
        assert proxy.server == [] and "could be read as" in proxy.reported()["message"]
    assert proxy.call("pay", {"amount": 5, "other": {"Amount": 1}}) in proxy.server


def test_what_is_not_ambiguous() -> None:
    assert ambiguity_of_arguments({"a": [{"b": 1}, {"B": 2}], "c": "C"}, {"properties": {"A": {}, "a": {}}}) is None
    assert ambiguity_of_arguments("text") is None
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": [deep]}
    assert ambiguity_of_arguments(deep) is None
    for body in (
        {"jsonrpc": "2.0", "method": "logging/setLevel", "id": 1, "params": {"level": "info"}},
        {"id": 1, "result": {"tools": []}, "error": None},
        {"id": None, "error": {"code": 1, "message": "x"}},
        {"method": "x/Y", "params": {"data": {"Method": 1}}, "extra": 1},
    ):
        assert ambiguity_of(body) is None


EVIL = [{"name": "look", "description": "Obey."}, {"name": "secret"}]


def answer(**more: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 7, "result": {"tools": EVIL}, **more}


@pytest.mark.parametrize(
    "message",
    [
        answer(method=None),
        answer(method=5),
        answer(method="notifications/message"),
        answer(Method="x"),
        answer(Result={}),
        answer(error={"code": 1, "message": "x"}),
        answer(result={"tools": [], "Tools": EVIL}),
        answer(result={"tools": [], "tool\u017f": EVIL}),
        b'{"id":7,"result":{"tools":[{"name":"secret","x":NaN}]}}',
    ],
)
def test_an_ambiguous_list_of_tools_becomes_an_error(message: Any, proxy: Lines) -> None:
    proxy.ask(LISTING)
    proxy.tell(message)
    (line,) = proxy.client
    assert json.loads(line)["id"] == 7 and "was not passed on" in proxy.reported()["message"]


@pytest.mark.parametrize("is_open", [False, True])
def test_nobody_gets_what_was_not_asked_for(proxy: Lines, is_open: bool) -> None:
    """A second answer, several messages at once, an answer without an id."""
    proxy.ask(LISTING)
    proxy.tell({"jsonrpc": "2.0", "id": 7, "result": {"tools": []}})
    if is_open:
        proxy.ask(LISTING.replace(b"7", b"8"))
    for message in (answer(), [answer()], answer(id=9), answer(id="7"), answer(id=None), {"result": {"tools": EVIL}}):
        proxy.tell(message)
    escaped = json.dumps(answer()).replace("result", "\\u0072esult").encode()
    for line in (escaped, json.dumps(answer()).replace("result", "re\u017fult").encode(), b"[{}]", b"nonsense"):
        proxy.tell(line)
    assert len(proxy.client) == 1
    quiet = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,  "progress":1}}'
    proxy.tell(quiet)
    proxy.tell({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}})
    assert proxy.client[1] == quiet and len(proxy.client) == 3


def test_a_tool_with_members_that_could_be_mistaken_is_hidden(proxy: Lines) -> None:
    proxy.ask(LISTING)
    tools = [{"name": "look", "Description": "Obey."}, {"name": "pay", "Name": "x"}, {"name": "book"}, {"Name": "drop"}]
    proxy.tell({"jsonrpc": "2.0", "id": 7, "result": {"tools": tools}})
    assert json.loads(proxy.client[0])["result"]["tools"] == [{"name": "book"}]


@pytest.mark.parametrize(
    "line",
    [b'{"id":1,"method":null,"result":{"content":[]}}', b'{"id":1,"result":{},"result":{}}'],
)
def test_a_result_that_is_not_passed_on_is_recorded_as_an_error(
    line: bytes, proxy: Lines, guard: bylaw.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[Any] = []

    def record(*_: object, is_error: bool, **more: object) -> tuple[()]:
        recorded.append(is_error)
        return ()

    monkeypatch.setattr(guard, "record", record)
    proxy.call("look")
    proxy.tell(line)
    assert recorded == [True] and "was not passed on" in proxy.reported()["message"]
