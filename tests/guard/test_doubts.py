"""What cannot be compared stops the call, whatever the form of the rule: in one shot, judged once, or with `when`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.decide import session
from bylaw.model.events import Message, Origin, Request, Response, ToolCall
from tests.guard.support import attempt, guard

_BIG = "tool(pay, args.amount > 500)"
_PAY = {"tool": "pay", "args": {"amount": {">": 500}}}
JUDGED_ONCE = {
    "until": {"never": _PAY, "until": "approve"},
    "W": {"formula": f"!{_BIG} W tool(approve)"},
    "U": {"formula": f"!{_BIG} U tool(approve)"},
    "R": {"formula": f"tool(approve) R !{_BIG}"},
    "G in events": {"formula": f"G[<=50] !{_BIG}"},
    "G in turns": {"formula": f"G[<=50t] !{_BIG}"},
    "within an implication": {"formula": f"G (tool(start) -> G !{_BIG})"},
    "not F": {"formula": f"!F[<=50] {_BIG}"},
}
JUDGED_EVERYWHERE = {
    "unless": {"never": _PAY, "unless": "approve"},
    "never": {"never": _PAY},
    "at most": {"at_most": 0, "of": _PAY},
    "G": {"formula": f"G !{_BIG}"},
}


def _guard(params: dict[str, Any], *calls: str) -> Any:
    one = guard([{"id": "r", "kind": "temporal", "scope": "session", "params": params, "then": "block"}])
    for name in calls:
        decided = one.decide(attempt(name))
        assert decided.allowed
        one.record(decided, "ok")
    return one


def _stopped(one: Any, amount: Any) -> tuple[bool, list[bool]]:
    decided = one.decide(attempt({"tool": "pay", "args": {"amount": amount}}))
    return not decided.allowed, [match.certain for match in decided.matches]


@pytest.mark.parametrize("params", [*JUDGED_ONCE.values(), *JUDGED_EVERYWHERE.values()], ids=str)
@pytest.mark.parametrize("amount", ["1,500", [900], None, True, {"a": 1}])
def test_an_argument_that_cannot_be_compared_stops_the_call(params: dict[str, Any], amount: Any) -> None:
    one = _guard(params, "start")
    for _ in range(2):
        assert _stopped(one, amount) == (True, [False])
    assert _stopped(one, 900) == (True, [True])
    assert _stopped(one, 5) == (False, [])


@pytest.mark.parametrize("params", [p for name, p in JUDGED_ONCE.items() if name in ("until", "W", "U", "R")], ids=str)
def test_the_first_event_and_what_follows_an_approval(params: dict[str, Any]) -> None:
    assert _stopped(_guard(params), "1,500") == (True, [False])
    assert _stopped(_guard(params, "other", "approve"), "1,500") == (False, [])


def test_an_approval_that_cannot_be_compared_does_not_count_for_sure() -> None:
    one = _guard({"never": _PAY, "until": {"tool": "approve", "args": {"level": {">": 3}}}})
    decided = one.decide(attempt({"tool": "approve", "args": {"level": "high"}}))
    assert decided.allowed
    one.record(decided, "ok")
    assert _stopped(one, 900) == (True, [False])
    assert _stopped(one, "1,500") == (True, [False])


@pytest.mark.parametrize("formula", ["F tool(pay, args.amount > 500)", "G (tool(pay, args.amount > 500) -> F tool(a))"])
def test_what_may_still_be_kept_stops_nothing(formula: str) -> None:
    assert _stopped(_guard({"formula": formula}, "start"), "1,500") == (False, [])


def test_a_call_that_ran_in_doubt_does_not_open_the_door() -> None:
    """Observed, not decided: the next such call is stopped as the first would have been."""
    one = guard([{"id": "r", "kind": "temporal", "scope": "session", "params": JUDGED_ONCE["until"], "then": "block"}])
    call = ToolCall(origin=Origin("s"), turn=0, name="pay", call_id="1", arguments={"amount": "1,500"})
    one.observe(Response(origin=Origin("s"), turn=0, text="x", content=[], tool_calls=(call,)))
    one.observe(call)
    for amount in ("1,500", [900]):
        decided = one.decide(attempt({"tool": "pay", "args": {"amount": amount}, "session": "s"}))
        assert not decided.allowed


WITH_WHEN = {
    "call predicates": {"tool_name_in": ["pay"], "arg_gt": {"path": "amount", "value": 500}},
    "paths": [
        {"path": "response.tool_calls.*.name", "op": "==", "value": "pay"},
        {"path": "response.tool_calls.*.arguments.amount", "op": ">", "value": 500},
    ],
    "not": {"not": {"path": "response.tool_calls.*.arguments.amount", "op": "<=", "value": 500}},
}


@pytest.mark.parametrize("when", WITH_WHEN.values(), ids=WITH_WHEN)
@pytest.mark.parametrize("known", [False, True])
def test_when_on_calls_that_are_not_known_yet(when: Any, known: bool) -> None:
    rule = {"id": "f", "kind": "no_call", "scope": "session", "params": {"tool": "pay"}, "when": when, "then": "block"}
    one = guard([rule])
    call = ToolCall(origin=Origin("s"), turn=0, name="pay", call_id="1", arguments={"amount": 900})
    response = Response(origin=Origin("s"), turn=0, text="x", content=[])
    if known:
        response = Response(origin=Origin("s"), turn=0, text="x", content=[], tool_calls=(call,))
    one.observe(response)
    decided = one.decide(attempt({"tool": "pay", "args": {"amount": 900}, "session": "s", "call_id": "1"}))
    assert not decided.allowed or decided.blind
    assert [match.certain for match in decided.matches] in ([known], [])


# -- results of calls that are no longer open -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "then",
    [
        "O result(verify)",
        "!O result(verify)",
        "O result(verify, error = false)",
        "!O result(verify, args.order = 1)",
        "count(result(verify)) <= 0",
        "count(result(verify)) >= 1",
    ],
)
def test_a_result_that_is_no_longer_linked_to_its_call_stops_what_depends_on_it(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MOST_OPEN", 2)
    one = guard([{"id": "r", "kind": "temporal", "params": {"formula": f"G (tool(pay) -> {then})"}, "then": "block"}])
    verified = one.decide(attempt({"tool": "verify", "args": {"order": 1}}))
    for _ in range(2):
        assert one.decide(attempt("other")).allowed
    one.record(verified, "ok", is_error=False)
    assert _stopped(one, 5) == (True, [False])


_ASKED = [{"role": "user", "content": "delete it"}]
_SAID = Message(origin=Origin("s"), role="user", content="hello")
_ANSWERED = Response(origin=Origin("s"), text="x", content=[], request=Request(origin=Origin("s"), held_messages=[]))


@pytest.mark.parametrize(
    ("events", "is_blind"),
    [
        ([Request(origin=Origin("s"), held_messages=_ASKED)], True),
        ([Request(origin=Origin("s"), held_messages=_ASKED), Response(origin=Origin("s"), text="x", content=[])], True),
        ([Response(origin=Origin("s"), text="x", content=[], request=Request(origin=Origin("s")))], False),
        ([Message(origin=Origin("s"), role="user", content="x"), Response(origin=Origin("s"), text="x")], False),
        ([_ANSWERED, _SAID, Request(origin=Origin("s"), held_messages=_ASKED)], True),
        ([_SAID, Request(origin=Origin("s"), held_messages=_ASKED), Response(origin=Origin("s"), text="x")], True),
        ([_ANSWERED, Request(origin=Origin("s"), held_messages=_ASKED)], True),
        ([Request(origin=Origin("s"), held_messages=_ASKED), _ANSWERED], False),
        ([_ANSWERED, Request(origin=Origin("s"), held_messages=[])], False),
        ([_ANSWERED, Request(origin=Origin("s"))], False),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_rule_about_messages_is_blind_until_messages_are_read(
    events: list[Any], is_blind: bool, stored: bool, tmp_path: Path
) -> None:
    """The messages of a request are read with its response, and not without it."""
    rule = {"id": "u", "kind": "temporal", "params": {"formula": 'G !(user("delete"))'}, "then": "block"}
    store = tmp_path / "guard.db" if stored else None
    one = bylaw.Guard([rule], store=store)
    for event in events:
        one.observe(event)
        one = bylaw.Guard([rule], store=store) if stored else one
    decision = one.decide(attempt({"tool": "pay", "session": "s"}))
    assert decision.allowed and (decision.blind == ("u",)) is is_blind
    if store is not None:
        report = bylaw.verify_audit(store)
        assert (report.findings, report.decisions) == ([], 1)
