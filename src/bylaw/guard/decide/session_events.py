"""Events around calls (results, messages, responses, releases, the end), fed to the rules that they concern.

The live guard uses these functions, and so does the follow-up over the event log.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec.structs import replace

from bylaw.guard.decide.attempts import Refused
from bylaw.guard.decide.policy import MESSAGES, RESPONSES, RESULTS, Chain, CompiledPolicy, Policies
from bylaw.guard.decide.session import SessionState
from bylaw.guard.model import Attempt
from bylaw.model.events import Event, Message, Origin, Request, Response, ToolResult
from bylaw.model.verdict import Outcome, Verdict

Findings: TypeAlias = list[tuple[CompiledPolicy, Verdict]]


def record_result(
    policies: Policies, state: SessionState, call_id: str, content: Any, is_error: bool | None, at: float
) -> tuple[ToolResult, Findings]:
    """The call ran and returned `content`: the result as an event, and the rules that it breaks."""
    call = state.open.pop(call_id, None)
    result = ToolResult(
        origin=call.origin if call is not None else Origin(state.key),
        turn=call.turn if call is not None else None,
        at=at,
        name=call.name if call is not None else None,
        call_id=call_id,
        content=content,
        is_error=is_error,
        call=call,
    )
    state.fed |= {RESULTS}
    return result, _observe(policies, state, result, settle=call_id)


def observe_event(policies: Policies, state: SessionState, event: Event) -> tuple[Event, Findings]:
    """The event with its turn, and the rules that it breaks."""
    if isinstance(event, Response):
        state.turn = 0 if state.turn is None else state.turn + 1
        event = replace(event, turn=state.turn)
        state.fed |= {RESPONSES, MESSAGES} if event.request is not None else {RESPONSES}
    elif isinstance(event, Message | Request):
        state.fed |= {MESSAGES}
    return event, _observe(policies, state, event)


def end_session(state: SessionState, *, complete: bool) -> Findings:
    """The rules that only the end of the session breaks. The state of all rules is reset."""
    found: Findings = []
    for own in state.policies.values():
        own.settle(None)
        verdicts = own.calls.end(complete=complete)
        found += [(own.policy, verdict) for verdict in verdicts if verdict.outcome is Outcome.VIOLATED]
    state.policies.clear()
    return found


def release_call(state: SessionState, call_id: str) -> bool:
    """The call was allowed and never ran. Returns whether any rule had reserved it."""
    released = [policy.release(call_id) for policy in state.policies.values()]
    state.open.pop(call_id, None)
    return any(released)


def concerned_chain(policies: Policies, event: Event, state: SessionState) -> Chain:
    """The policies of the agent that the event happened to. If its ancestors are invalid, only its own apply."""
    origin = event.origin
    agent = policies.named(origin.agent)
    above = state.above.get(agent, ()) if agent is not None else ()
    attempt = Attempt(tool="-", agent=agent, run=origin.run, ancestors=above, parent_run=origin.parent_run)
    try:
        return policies.chain(attempt, state.runs)
    except Refused:
        return policies.without_ancestors(agent)


def _observe(policies: Policies, state: SessionState, event: Event, *, settle: str | None = None) -> Findings:
    found: Findings = []
    for policy in concerned_chain(policies, event, state).reserving:
        own = state.of(policy)
        if settle is not None:
            own.settle(settle)
        found += [(policy, verdict) for verdict in own.observe(event) if verdict.outcome is not Outcome.OK]
    return found
