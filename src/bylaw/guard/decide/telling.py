"""What a decision tells beside its action: advice for the model, notes, what the counters showed."""

from __future__ import annotations

from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.tree import Chain
from bylaw.guard.decision import Decision, DenialClass
from bylaw.model.events import ToolCall
from bylaw.model.guarding import Action


def advice(decision: Decision) -> str:
    if decision.denial is DenialClass.STRUCTURAL:
        return f"correct the call: {decision.reason}"
    if decision.denial is DenialClass.TRANSIENT:
        return "try again later; the call was not judged"
    if decision.decided_by == "session" or decision.action is Action.TERMINATE:
        return "stop: no further call of this session will run"
    if decision.repeats:
        return f"this very call was denied {decision.repeats + 1} times; do something else"
    return "do not repeat this call; do something else, or tell the user why it cannot be done"


def notes(chain: Chain, state: SessionState) -> tuple[str, ...]:
    return chain.notes if not state.afresh else (*chain.notes, _AFRESH)


_AFRESH = "the rules have changed since this session began; what they remembered starts afresh"


def counters(chain: Chain, state: SessionState, call: ToolCall) -> dict[str, int]:
    shown: dict[str, int] = {}
    for policy in chain.counting:
        shown |= policy.counters(state.of(policy).attempts.states_of(call.origin.session), call)
    return shown
