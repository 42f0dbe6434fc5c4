"""A released call leaves no trace in the state of the rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bylaw.engine.compile import Program, compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.engine.temporal.monitor import TemporalMonitor
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.stores import MemoryStore
from bylaw.model.events import Event, Message, Origin, Response, ToolCall, ToolResult
from bylaw.model.rule import Scope
from bylaw.rules import load_rules
from bylaw.text.redaction.redactor import Redaction, Redactor
from tests.audit.support import verified
from tests.guard.strategies import Rules, arguments, behaviour_rules, mixed_rules, steps, tools
from tests.guard.support import attempt, guard, policies
from tests.guard.test_offline_is_inline import Steps, inline


def _strict(program: Program) -> Program:
    """Without what it learns on the way: events that change nothing would from then on not even be counted."""
    for monitor in program.monitors:
        if isinstance(monitor, TemporalMonitor):
            monitor._idle = None
    return program


def _known(evaluation: Evaluation) -> Any:
    """All that it knows, read off anew, whatever it may have noted down."""
    evaluation._snapshot = None
    evaluation._written.clear()
    known = json.loads(evaluation.snapshot())
    for scope in known.get("sessions", ()):
        scope["violated"] = sorted(scope.get("violated", ()))
        scope["failed"] = scope.get("failed", {})
        scope["states"] = scope.get("states", {})
    return known


@given(mixed_rules, steps, st.randoms(use_true_random=False))
def test_a_step_that_is_taken_back(rules: Rules, reported: Steps, chance: Any) -> None:
    events, _ = inline(rules, reported)
    # as a guard has it: every scope is the session
    program = _strict(compile_rules([replace(rule, scope=Scope.SESSION) for rule in load_rules(rules).rules]))
    evaluation, plain = Evaluation(program), Evaluation(program)
    for event in events:
        plain.step(event)
        if not isinstance(event, ToolCall | ToolResult):
            evaluation.step(event)
            continue
        for _ in range(2):
            before = _known(evaluation)
            undo = _reserved(evaluation, event, peek=chance.random() < 0.5)
            assert _known(evaluation) == _known(plain)
            evaluation.undo("1", undo)
            assert _known(evaluation) == before
        _reserved(evaluation, event, peek=chance.random() < 0.5)
        assert _known(evaluation) == _known(plain)


def _reserved(evaluation: Evaluation, event: Event, *, peek: bool) -> Any:
    if not isinstance(event, ToolCall):
        return evaluation.retractable(event)[1]
    if peek:
        evaluation.peek(event)
    return evaluation.reserve(event)


@pytest.mark.parametrize("stored", [False, True], ids=["in-memory", "stored"])
@given(behaviour_rules, steps, st.data())
def test_a_call_that_is_released_was_never_made(stored: bool, rules: Rules, reported: Steps, data: Any) -> None:
    """Some calls are given back, at some time later: what is left is what the others alone would have left. So it is
    where the session is written down and read again between any two events."""
    compiled = CompiledPolicy(policies(rules)[0])
    _strict(compiled.calls)
    session = SessionState("1")
    made: list[Event] = []
    unsettled: list[ToolCall] = []
    for event in [event for event in inline(rules, reported)[0] if isinstance(event, ToolCall | ToolResult)]:
        if stored and data.draw(st.booleans()):
            session = load("1", dump(session), [compiled])
        state = session.of(compiled)
        if isinstance(event, ToolResult):
            session.open.pop(event.call_id or "", None)
            state.settle(event.call_id)
            state.observe(event)
            unsettled = [call for call in unsettled if call.call_id != event.call_id]
            made.append(event)
            continue
        state.reserve(event)
        if data.draw(st.booleans()):
            session.open_call(event)
        unsettled.append(event)
        made.append(event)
        if unsettled and data.draw(st.booleans()):
            gone = unsettled.pop(data.draw(st.integers(0, len(unsettled) - 1)))
            assert state.release(gone.call_id)
            assert not state.release(gone.call_id)
            session.open.pop(gone.call_id, None)
            made = [one for one in made if one is not gone and not (isinstance(one, ToolResult) and one.call is gone)]
    plain = Evaluation(compiled.calls)
    for one in made:
        plain.step(one)
    assert _known(session.of(compiled).calls) == _known(plain)


CARD = "4111 1111 1111 1111"
_WHERE = {"arg_eq": {"path": "card", "value": CARD}}
REDACTED: dict[str, dict[str, Any]] = {
    "max_calls": {"kind": "max_calls", "params": {"tool": "pay", "limit": 2, "where": _WHERE}},
    "at most": {"kind": "temporal", "params": {"at_most": 2, "of": {"tool": "pay", "args": {"card": CARD}}}},
    "same": {"kind": "temporal", "params": {"at_most": 2, "of": "pay", "same": "card"}},
    "sum": {"kind": "max_sum", "params": {"tool": "pay", "path": "amount", "limit": 2, "where": _WHERE}},
    "object": {
        "kind": "max_calls",
        "params": {"tool": "pay", "limit": 2, "where": {"arg_eq": {"path": "of", "value": {"card": CARD}}}},
    },
    "list": {
        "kind": "max_calls",
        "params": {"tool": "pay", "limit": 2, "where": {"arg_contains": {"path": "all", "value": CARD}}},
    },
    "key": {
        "kind": "max_calls",
        "params": {"tool": "pay", "limit": 2, "where": {"arg_present": {"path": f"keys.{CARD}"}}},
    },
}


@pytest.mark.parametrize("rule", REDACTED.values(), ids=REDACTED)
def test_a_count_of_redacted_calls_is_not_lost(rule: dict[str, Any]) -> None:
    """Another process releases a call. It does not know the arguments of the calls that are counted again."""
    rules = [{"id": "r", "scope": "session", "then": "block", **rule}]
    paid = {"card": CARD, "amount": 1, "of": {"card": CARD}, "all": [CARD], "keys": {CARD: 1}}
    store = MemoryStore()
    decided = [guard(rules, store=store).decide(attempt({"tool": "pay", "args": paid})) for _ in range(2)]
    assert all(decision.allowed for decision in decided)
    assert guard(rules, store=store).release(decided[0])
    again = [guard(rules, store=store).decide(attempt({"tool": "pay", "args": paid})) for _ in range(2)]
    assert [decision.allowed for decision in again] == [True, False]
    assert verified(store, rules).findings == []
    assert CARD not in str([row.data for row in store.audit(after=0)])


def test_a_released_order_is_in_doubt_where_it_was_redacted() -> None:
    """The first `verify` never ran, and whether the second was of this card is not known any more."""
    params = {"first": {"tool": "verify", "where": _WHERE}, "second": "pay"}
    rules = [{"id": "r", "kind": "must_call_before", "scope": "session", "params": params, "then": "block"}]
    store = MemoryStore()
    tried = [{"tool": "verify", "args": {"card": card}} for card in (CARD, "5555 5555 5555 4444")]
    first, _ = (guard(rules, store=store).decide(attempt(one)) for one in tried)
    assert guard(rules, store=store).release(first)
    decision = guard(rules, store=store).decide(attempt("pay"))
    assert (decision.allowed, [match.certain for match in decision.matches]) == (False, [False])


def test_rules_that_look_elsewhere_are_not_in_doubt() -> None:
    where = {"arg_eq": {"path": "to.name", "value": "ann"}}
    params = {"tool": "pay", "limit": 2, "where": where}
    rules = [{"id": "r", "kind": "max_calls", "scope": "session", "params": params, "then": "block"}]
    store = MemoryStore()
    paid = [{"tool": "pay", "args": {"to": {"name": name, "card": CARD}}} for name in ("ann", "bob", "bob", "ann")]
    decided = [guard(rules, store=store).decide(attempt(one)) for one in paid]
    assert guard(rules, store=store).release(decided[0])
    assert [guard(rules, store=store).decide(attempt(one)).allowed for one in (paid[0], paid[1])] == [True, True]
    last = guard(rules, store=store).decide(attempt(paid[0]))
    assert (last.allowed, [match.certain for match in last.matches]) == (False, [True])
    assert verified(store, rules).findings == []


def test_a_message_that_was_redacted_is_in_doubt() -> None:
    formula = 'G (user("4111") -> G !tool(pay))'
    rules = [
        {"id": "r", "kind": "temporal", "scope": "session", "params": {"formula": formula}, "then": "block"},
    ]
    store = MemoryStore()
    look = guard(rules, store=store).decide(attempt("look"))
    for text in (f"it is {CARD}", "hello"):
        guard(rules, store=store).observe(Message(origin=Origin("default"), role="user", content=text))
    assert guard(rules, store=store).release(look)
    guard(rules, store=store).observe(Response(origin=Origin("default"), text="", content=[], stop_reason="end_turn"))
    assert not guard(rules, store=store).decide(attempt("pay")).allowed


masks = st.lists(st.sampled_from(["n", "o", "l", "l.0", "l.*", "n.k"]), max_size=2)


@given(behaviour_rules, steps, masks, st.data())
def test_what_was_redacted_never_lets_a_call_through(rules: Rules, reported: Steps, mask: list[str], data: Any) -> None:
    compiled = CompiledPolicy(policies(rules)[0])
    redact = Redactor(Redaction(mask=mask))
    session, made = SessionState("1"), list[Event]()
    for event in [event for event in inline(rules, reported)[0] if isinstance(event, ToolCall | ToolResult)]:
        if isinstance(event, ToolResult):
            call = session.open.pop(event.call_id or "", None)
            session.of(compiled).settle(event.call_id)
            session.of(compiled).observe(replace(event, call=call))
        else:
            session.of(compiled).reserve(event)
            session.open_call(event)
        made.append(event)
        session.redact = redact
        session = load("1", dump(session), [compiled])
        if isinstance(event, ToolCall) and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(list(session.open)))
            if session.of(compiled).release(gone):
                made = [one for one in made if getattr(one, "call_id", None) != gone]
            session.open.pop(gone)
    plain = Evaluation(compiled.calls)
    for one in made:
        plain.step(one)
    for tool, given_ in data.draw(st.lists(st.tuples(tools, arguments), min_size=1, max_size=4)):
        call = ToolCall(origin=Origin("1"), turn=0, at=2e9, name=tool, call_id="x", arguments=given_ or {})
        stopped = {verdict.rule.id for verdict in session.of(compiled).calls.peek(call)}
        assert {verdict.rule.id for verdict in plain.peek(call)} <= stopped
