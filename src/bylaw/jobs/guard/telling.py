"""What a decision tells beside its action: advice for the model, rules that could not see, what the counters showed."""

from __future__ import annotations

from collections.abc import Sequence

from bylaw.jobs.guard.policy import CompiledPolicy
from bylaw.jobs.guard.session import SessionState
from bylaw.model.decision import Decision, DenialClass
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


def blind(chain: Sequence[CompiledPolicy], state: SessionState) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    for policy in chain:
        found += policy.blind(state.fed)
    return found


def notes(chain: Sequence[CompiledPolicy], state: SessionState) -> tuple[str, ...]:
    notes = tuple(
        f"the rules of {policy.agent or 'every agent'} are switched off"
        for policy in chain
        if policy.policy.switched_off
    )
    if not any(policy.gates for policy in chain) and not notes:
        notes += ("no rule decides calls here: nothing was judged",)
    if state.afresh:
        notes += ("the rules have changed since this session began; what they remembered starts afresh",)
    return notes


def counters(chain: Sequence[CompiledPolicy], state: SessionState, call: ToolCall) -> dict[str, int]:
    shown: dict[str, int] = {}
    for policy in chain:
        if policy.attempts.rules and not policy.policy.switched_off:
            states = state.of(policy).attempts.states_of(call.origin.session)
            shown |= policy.counters(states, call)
    return shown
