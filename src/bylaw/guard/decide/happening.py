"""What happens around calls, told to the rules that it concerns: in a live guard, and again over what was recorded."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bylaw.guard.decide.attempts import Refused
from bylaw.guard.decide.policy import MESSAGES, RESPONSES, RESULTS, CompiledPolicy
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.tree import Chain, Policies
from bylaw.guard.decision import Attempt
from bylaw.model.events import Event, Message, Origin, Request, Response, ToolCall, ToolResult
from bylaw.model.verdict import Outcome, Verdict


def returned(
    policies: Policies, state: SessionState, call_id: str, content: Any, is_error: bool | None, at: float
) -> tuple[ToolResult, list[tuple[CompiledPolicy, Verdict]]]:
    """The call ran, and this came back: the result, and what it breaks."""
    result = _result(state.open.pop(call_id, None), call_id, state.key, content, is_error, at)
    state.fed |= {RESULTS}
    return result, _told(policies, state, result, settle=call_id)


def observed(
    policies: Policies, state: SessionState, event: Event
) -> tuple[Event, list[tuple[CompiledPolicy, Verdict]]]:
    """The event with its turn, and what it breaks."""
    if isinstance(event, Response):
        state.turn = 0 if state.turn is None else state.turn + 1
        event = replace(event, turn=state.turn)
        state.fed |= {RESPONSES, MESSAGES} if event.request is not None else {RESPONSES}
    elif isinstance(event, Message | Request):
        state.fed |= {MESSAGES}
    return event, _told(policies, state, event)


def ended(state: SessionState, *, complete: bool) -> list[tuple[CompiledPolicy, Verdict]]:
    """What only the end of the session decides. What the rules remembered is gone afterwards."""
    found: list[tuple[CompiledPolicy, Verdict]] = []
    for own in state.policies.values():
        own.settle(None)
        broken = [v for v in own.calls.end(complete=complete) if v.outcome is Outcome.VIOLATED]
        found += [(own.policy, verdict) for verdict in broken]
    state.policies.clear()
    return found


def released(state: SessionState, call_id: str) -> bool:
    """The call was allowed and never ran."""
    given_back = [policy.release(call_id) for policy in state.policies.values()]
    state.open.pop(call_id, None)
    return any(given_back)


def _told(
    policies: Policies, state: SessionState, event: Event, *, settle: str | None = None
) -> list[tuple[CompiledPolicy, Verdict]]:
    found: list[tuple[CompiledPolicy, Verdict]] = []
    for policy in concerned(policies, event, state).reserving:
        own = state.of(policy)
        if settle is not None:
            own.settle(settle)
        found += [(policy, verdict) for verdict in own.tell(event) if verdict.outcome is not Outcome.OK]
    return found


def concerned(policies: Policies, event: Event, state: SessionState) -> Chain:
    """Whose rules hold for the agent that it happened to. A line of agents that no call could come from has none
    but those that hold for everyone."""
    origin = event.origin
    agent = policies.named(origin.agent)
    above = state.above.get(agent, ()) if agent is not None else ()
    told = Attempt(tool="-", agent=agent, run=origin.run, ancestors=above, parent_run=origin.parent_run)
    try:
        return policies.chain(told, state)
    except Refused:
        return policies.apart(agent)


def _result(
    call: ToolCall | None, call_id: str, session: str, content: Any, is_error: bool | None, at: float
) -> ToolResult:
    return ToolResult(
        origin=call.origin if call is not None else Origin(session),
        turn=call.turn if call is not None else None,
        at=at,
        name=call.name if call is not None else None,
        call_id=call_id,
        content=content,
        is_error=is_error,
        call=call,
    )
