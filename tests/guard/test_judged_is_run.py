"""What runs is what was judged: arguments that change meanwhile, bytes, names that occur twice, ways of passing."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.json_values import own_json
from bylaw.guard.model import Limits
from tests.guard.test_face import answering

EVIL = {"id": "no-evil", "when": {"arg_regex": {"path": "to", "pattern": "evil"}}, "then": "block"}
EVIL_IN = {"id": "no-evil", "when": {"arg_contains": {"path": "to", "value": "evil"}}, "then": "block"}
ASK = {"guard": {"mode": "hitl", "rules": [{"id": "ask", "when": {"tool_name_regex": "."}, "then": "pause"}]}}
TOKEN = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


# -- arguments that change --------------------------------------------------------------------------------------------


def test_a_decision_holds_a_copy() -> None:
    guard, to = bylaw.Guard([EVIL_IN]), ["ann"]
    decision = guard.decide(bylaw.Attempt(tool="send", arguments={"to": to, "more": {"cc": [to]}}, session="s"))
    to.append("evil")
    assert decision.call is not None and decision.call.arguments == {"to": ["ann"], "more": {"cc": [["ann"]]}}


def test_what_a_session_remembers_is_its_own() -> None:
    formula = "G (tool(send, args.to = $o) -> O tool(check, args.to = $o))"
    rule = {"id": "checked", "kind": "temporal", "params": {"formula": formula}, "scope": "session", "then": "block"}
    guard, to = bylaw.Guard([rule]), ["ann"]

    def send(to: list[str]) -> bool:
        return guard.decide(bylaw.Attempt(tool="send", arguments={"to": to}, session="s")).allowed

    checked = guard.decide(bylaw.Attempt(tool="check", arguments={"to": to}, session="s"))
    to.append("evil")
    assert checked.call is not None
    checked.call.arguments["to"].append("worse")
    assert send(["ann"]) and not send(["ann", "evil"]) and not send(["ann", "worse"])


class _Text(str):
    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__

    def __str__(self) -> str:
        return "harmless"


class _Whole(int):
    def __int__(self) -> int:
        return 1


class _Dict(dict[str, Any]):
    def items(self) -> Any:
        return {}.items()


class _List(list[Any]):
    def __iter__(self) -> Any:
        return iter(())


def test_a_copy_has_no_class_of_the_host() -> None:
    given = _Dict(to=_Text("evil"), n=_Whole(900), cc=_List([_Text("evil"), (_Whole(2),)]))
    copy = own_json(given, Limits())
    assert copy == {"to": "evil", "n": 900, "cc": ["evil", (2,)]}
    types = [type(one) for one in (copy, copy["to"], copy["n"], copy["cc"], copy["cc"][0], copy["cc"][1][0])]
    assert types == [dict, str, int, list, str, int]


@pytest.mark.parametrize("when", ["while it is decided", "while it runs"])
@pytest.mark.parametrize("stored", [False, True])
def test_an_async_tool_runs_what_was_judged(when: str, stored: bool, tmp_path: Path) -> None:
    guard = bylaw.Guard([EVIL_IN], store=tmp_path / "guard.db" if stored else None)
    sent: list[list[str]] = []

    @guard.tool
    async def send(to: list[str]) -> None:
        if when == "while it runs":
            await asyncio.sleep(0.01)
        sent.append(list(to))

    async def main() -> None:
        async with guard.session("s"):
            for turns in range(4):
                to = ["ann"]
                task = asyncio.create_task(send(to))
                for _ in range(turns):
                    await asyncio.sleep(0)
                to.append("evil")
                try:
                    await task
                except bylaw.Denied as denied:
                    assert "evil" in to and turns < 2, denied

    asyncio.run(main())
    assert sent and all(to == ["ann"] for to in sent)
    guard.close()


@dataclasses.dataclass
class Order:
    amount: int


def test_an_object_that_changed_is_refused() -> None:
    guard, order, other = bylaw.Guard(ASK), Order(5), Order(7)
    ran: list[Any] = []

    @guard.tool(timeout=120)
    def pay(order: Order, more: Any = None) -> None:
        ran.append(order)

    with guard.session("s", agent="clerk"):
        with answering(guard):
            pay(order)
        with (
            answering(guard),
            pytest.raises(bylaw.Denied, match="`order` was changed while the call was being decided"),
        ):
            pay(other, more=_Changing(other))
    assert ran == [order] and ran[0] is order


class _Changing:
    """A model that changes another object when it is written as JSON."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def model_dump(self, mode: str) -> int:
        self._order.amount = 900
        return 1


def test_what_the_edit_left_alone_is_compared_as_well() -> None:
    guard, order, ran = bylaw.Guard(ASK), Order(5), []

    @guard.tool(timeout=120)
    def pay(flag: Any, order: Order) -> None:
        ran.append((flag, order))

    edit = {"tool": "pay", "arguments": {"flag": True, "order": {"amount": 5}}}
    with guard.session("s", agent="clerk"), answering(guard, edited=edit):
        pay(1, order)
    assert ran == [(True, order)] and ran[0][0] is True and ran[0][1] is order  # 1 == True, and is not what was judged


# -- bytes ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Held:
    one: Any


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("wrap", [lambda one: one, _Held], ids=["plain", "in a data class"])
def test_bytes_are_judged_as_their_text(kind: Any, wrap: Callable[[Any], Any]) -> None:
    path = {"path": "to.one" if isinstance(wrap(0), _Held) else "to"}
    guard = bylaw.Guard([{"id": "no-evil", "when": {"arg_regex": {**path, "pattern": "evil"}}, "then": "block"}])

    @guard.tool
    def send(to: Any) -> Any:
        return to

    with guard.session("s"):
        given = wrap(kind("für ann".encode()))
        assert send(given) is given
        for content in (b"evil", b"an evil one", b"\xff\xfe"):
            with pytest.raises(bylaw.Denied) as denied:
                send(wrap(kind(content)))
            assert denied.value.decision.matches[0].certain is (content != b"\xff\xfe")


def test_a_secret_in_bytes_is_redacted(tmp_path: Path) -> None:
    guard = bylaw.Guard([EVIL], store=tmp_path / "guard.db")

    @guard.tool
    def send(to: bytes, **more: Any) -> bytes:
        return to

    with guard.session("s"):
        send(f"token {TOKEN}".encode(), memory=memoryview(TOKEN.encode()), held=[_Held(TOKEN.encode())])
        with pytest.raises(bylaw.Denied):
            send(b"\xff" + TOKEN.encode())
    rows = str([row.data for row in guard.store.events()])
    assert "redacted" in rows and "Z2hw" not in rows and TOKEN[4:] not in rows
    guard.close()


def test_an_edit_of_bytes() -> None:
    guard, ran = bylaw.Guard(ASK), []

    @guard.tool(timeout=120)
    def send(to: bytes, body: bytearray, cc: bytes = b"me") -> None:
        ran.append((to, body, cc))

    edit = {"tool": "send", "arguments": {"to": "bob", "body": "hello", "cc": "me"}}
    with guard.session("s", agent="clerk"), answering(guard, edited=edit):
        send(b"ann", bytearray(b"hello"))
    assert ran == [(b"bob", bytearray(b"hello"), b"me")]


# -- names and ways of passing ----------------------------------------------------------------------------------------


def _free() -> bylaw.Guard:
    return bylaw.Guard([{"id": "cap", "when": {"arg_gt": {"path": "amount", "value": 500}}, "then": "block"}])


def test_a_name_that_occurs_twice_is_refused() -> None:
    guard = _free()

    @guard.tool
    def pay(amount: int, /, *rest: int, **more: int) -> Any:
        return amount, rest, more

    @guard.tool(ignore=["amount"])
    def hidden(amount: int, /, **more: int) -> Any:
        return amount, more

    with guard.session("s"):
        assert pay(5, 6, other=900) == (5, (6,), {"other": 900})
        for tool, args, named in ((pay, (900,), "amount"), (pay, (5, 900), "rest"), (hidden, (900,), "amount")):
            with pytest.raises(TypeError, match="by position and by name"):
                tool(*args, **{named: 5})


def test_arguments_are_passed_on_as_they_were_passed() -> None:
    guard = _free()

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*args: Any, **named: Any) -> Any:
            return args, named

        return inner

    @guard.tool
    @counting
    def pay(amount: int, to: str = "ann", *, note: str = "") -> None: ...

    @guard.tool
    def many(first: int, second: int = 2, *rest: int, last: int = 0) -> Any:
        return first, second, rest, last

    with guard.session("s"):
        assert pay(amount=5, to="bob") == ((), {"amount": 5, "to": "bob", "note": ""})
        assert pay(5, note="x") == ((5,), {"to": "ann", "note": "x"})
        assert many(1) == (1, 2, (), 0) and many(1, 3, 4, 5, last=6) == (1, 3, (4, 5), 6)
        assert many(second=7, first=1) == (1, 7, (), 0)


class Colour(enum.Enum):
    RED = "red"


def test_a_default_that_is_an_object_stays_the_same_object() -> None:
    guard = _free()
    cache: dict[str, int] = {}

    @guard.tool
    def pay(amount: int, seen: Any = cache, colour: Colour = Colour.RED) -> Any:
        return seen, colour

    with guard.session("s"):
        assert pay(1)[0] is cache and pay(1, colour=Colour.RED)[1] is Colour.RED


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"amount": 5, "connection": "mine"}, "hidden from the rules"),
        ({"amount": 5, "other": 1}, "no parameter `other`"),
        ([5], "its arguments have no names"),
    ],
)
def test_an_edit_that_the_function_cannot_take(arguments: Any, why: str) -> None:
    guard = bylaw.Guard(ASK)

    @guard.tool(ignore=["connection"], timeout=120)
    def pay(connection: object, amount: int) -> None:
        raise AssertionError

    edit = {"tool": "pay", "arguments": arguments}
    with guard.session("s", agent="clerk"), answering(guard, edited=edit), pytest.raises(bylaw.Denied, match=why):
        pay(object(), 900)


def test_an_edit_of_further_arguments() -> None:
    guard, ran = bylaw.Guard(ASK), []

    @guard.tool(timeout=120)
    def pay(first: int, second: int = 2, *rest: int) -> None:
        ran.append((first, second, rest))

    edit = {"tool": "pay", "arguments": {"first": 1, "second": 3, "rest": [4, 5]}}
    with guard.session("s", agent="clerk"), answering(guard, edited=edit):
        pay(second=3, first=9)
    text = {"tool": "pay", "arguments": {"first": 1, "rest": "45"}}
    refused = pytest.raises(bylaw.Denied, match="`rest` is a list")
    with guard.session("s", agent="clerk"), answering(guard, edited=text), refused:
        pay(9)
    assert ran == [(1, 3, (4, 5))]


def test_names_that_no_rule_sees_are_kept_by_an_edit() -> None:
    guard, ran = bylaw.Guard(ASK), []

    @guard.tool(ignore=["more"], timeout=120)
    def pay(amount: int, **more: Any) -> None:
        ran.append((amount, more))

    edit = {"tool": "pay", "arguments": {"amount": 5}}
    with guard.session("s", agent="clerk"), answering(guard, edited=edit):
        pay(900, connection=guard)
    assert ran == [(5, {"connection": guard})]
