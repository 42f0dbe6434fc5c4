"""Denials that no rule makes: refused before any rule, denied repeatedly, or not possible because of an error."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.guard.decide.session import SessionState
from bylaw.guard.model import Decision, DenialClass, Options
from bylaw.model.guard_policy import Action

_ALLOW = Action.ALLOW


class NotListed(Exception):
    """The tool is not on an allowlist of the agent, the agent is unknown, or the id of the call is not new."""

    def __init__(self, by: str, why: str) -> None:
        super().__init__(why)
        self.by = by


def block(policy: str, by: str, why: str, denial: DenialClass = DenialClass.PERMISSION) -> Decision:
    decision = Decision(action=Action.BLOCK, decided_by=by, reason=why, policy=policy, denial=denial)
    decision.advice = advice(decision)
    return decision


def refusal(policy: str, why: str, *, shadow: bool) -> Decision:
    """The decision on an attempt that cannot be assigned to a session."""
    decision = block(policy, "arguments", why, DenialClass.STRUCTURAL)
    return without_effect(decision) if shadow else decision


def count_repeat(decision: Decision, digest: str, state: SessionState, options: Options) -> Decision:
    """The denial with the number of earlier ones. The breaker applies to an agent that keeps repeating a call."""
    decision = replace(decision, repeats=state.deny(digest))
    breaker = options.breaker_then
    is_over = decision.repeats + 1 >= options.breaker_after and breaker.strictness > decision.action.strictness
    if is_over and decision.action is not Action.PAUSE:  # a paused agent is expected to ask repeatedly
        decision = replace(decision, action=breaker, decided_by="breaker")
    return replace(decision, advice=advice(decision))


def fallback(policy: str, then: str, by: str, why: str, *, shadow: bool) -> Decision:
    """The decision after an error."""
    decision = replace(block(policy, by, why, DenialClass.TRANSIENT), action=Action(then))
    if shadow:
        return without_effect(decision)
    return decision if then != "allow" else replace(decision, denial=None, advice=None)


def without_effect(decision: Decision) -> Decision:
    """The decision of a guard in shadow: it allows, and names the action it would have taken."""
    if decision.action is Action.ALLOW:
        return decision
    return replace(decision, action=Action.ALLOW, would=decision.action, denial=None, advice=None)


def advice(decision: Decision) -> str:
    """What the model may do instead."""
    if decision.denial is DenialClass.STRUCTURAL:
        return f"correct the call: {decision.reason}"
    if decision.denial is DenialClass.TRANSIENT:
        return "try again later; the call was not judged"
    if decision.decided_by == "session" or decision.action is Action.TERMINATE:
        return "stop: no further call of this session will run"
    if decision.repeats:
        return f"the same call was denied {decision.repeats + 1} times; do something else"
    return "do not repeat this call; do something else, or tell the user why it cannot be done"
