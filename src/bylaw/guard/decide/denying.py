"""Decisions against a call: refused before any rule, denied again and again, or out of the guard's own reach."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.guard.decide import telling
from bylaw.guard.decide.options import Options
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decision import Decision, DenialClass
from bylaw.model.guarding import Action


class NotListed(Exception):
    """The agent may not call this tool, or is none that is known."""

    def __init__(self, by: str, why: str) -> None:
        super().__init__(why)
        self.by = by


def denied(policy: str, by: str, why: str, denial: DenialClass = DenialClass.PERMISSION) -> Decision:
    decision = Decision(action=Action.BLOCK, decided_by=by, reason=why, policy=policy, denial=denial)
    decision.advice = telling.advice(decision)
    return decision


def repeated(decision: Decision, digest: str, state: SessionState, options: Options) -> Decision:
    """A denial, and how often there was the same before. The breaker stops an agent that does not take the hint."""
    decision = replace(decision, repeats=state.deny(digest))
    breaker = options.breaker_then
    if decision.action is Action.PAUSE:  # asking again and again is what a paused agent does
        return replace(decision, advice=telling.advice(decision))
    if decision.repeats + 1 >= options.breaker_after and breaker.strictness > decision.action.strictness:
        decision = replace(decision, action=breaker, decided_by="breaker")
    return replace(decision, advice=telling.advice(decision))


def fallback(policy: str, then: str, by: str, why: str, *, shadow: bool) -> Decision:
    """What stands in for a decision that could not be made."""
    decision = replace(denied(policy, by, why, DenialClass.TRANSIENT), action=Action(then))
    if shadow:
        return without_effect(decision)
    return decision if then != "allow" else replace(decision, denial=None, advice=None)


def without_effect(decision: Decision) -> Decision:
    """As a guard in shadow has it: what would be done is only told."""
    if decision.action is Action.ALLOW:
        return decision
    return replace(decision, action=Action.ALLOW, would=decision.action, denial=None, advice=None)
