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
from bylaw.model.events import Event, ToolCall, ToolResult
from bylaw.model.rule import Scope
from bylaw.rules import load_rules
from tests.guard.strategies import Rules, behaviour_rules, mixed_rules, steps
from tests.guard.support import policies
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
def test_a_step_that_is_taken_back(rules: Rules, told: Steps, chance: Any) -> None:
    events, _ = inline(rules, told)
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
def test_a_call_that_is_released_was_never_made(stored: bool, rules: Rules, told: Steps, data: Any) -> None:
    """Some calls are given back, at some time later: what is left is what the others alone would have left. So it is
    where the session is written down and read again between any two events."""
    compiled = CompiledPolicy(policies(rules)[0])
    _strict(compiled.calls)
    session = SessionState("1")
    made: list[Event] = []
    unsettled: list[ToolCall] = []
    for event in [event for event in inline(rules, told)[0] if isinstance(event, ToolCall | ToolResult)]:
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
