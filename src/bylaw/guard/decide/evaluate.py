"""Rules × attempt → matches, of which the strictest decides; and the denials that no rule makes: refused before any
rule, denied repeatedly, or not possible because of an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from bylaw.engine.operators.attempt import NOT_COMPARED
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.guard.decide.chain import Chain
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import PolicyState, SessionState
from bylaw.guard.model import Decision, DenialClass, Match, Options
from bylaw.model.events import ToolCall
from bylaw.model.rule import Action
from bylaw.model.verdict import Outcome, Verdict


def judge(chain: Chain, state: SessionState, call: ToolCall, on_error: Action) -> Sequence[Match]:
    """Every rule that matches, ancestors first. Attempts are counted; rules about calls only peek."""
    matches: tuple[Match, ...] = ()
    for policy, on_attempts, on_calls in chain.concerned[call.name]:
        own = state.policies.get(policy.hash) or state.of(policy)
        attempted = own.attempts.attempt(call) if on_attempts else ()
        made = own.calls.peek(call) if on_calls else ()
        if attempted or made:
            matches += tuple(_match(policy, verdict, call, on_error) for verdict in (*attempted, *made))
    return matches


def count_attempt(policies: Sequence[CompiledPolicy], state: SessionState, call: ToolCall) -> None:
    """Count an attempt that these policies do not judge."""
    for policy in policies:
        state.of(policy).attempts.step(call)


def reserve_call(chain: Chain, state: SessionState, call: ToolCall) -> None:
    """The call may run."""
    if chain.reserving:  # no other policy needs to link a result to its call
        for policy in chain.reserving:
            (state.policies.get(policy.hash) or state.of(policy)).reserve(call)
        state.open_call(call)


def judge_approved(chain: Chain, state: SessionState, call: ToolCall, on_error: Action) -> list[Match]:
    """Every rule that matches a call which a person approved, by the rules and counters of now. Its attempt was counted
    when it paused."""
    matches: list[Match] = []
    for policy in chain.judging:
        own = state.of(policy)
        matches += [_match(policy, verdict, call, on_error) for verdict in (*_look(own, call), *own.calls.peek(call))]
    return matches


def _look(state: PolicyState, call: ToolCall) -> list[Verdict]:
    """The verdicts of the rules about attempts, without counting this one."""
    program, states = state.policy.attempts, state.attempts.states_of(call.origin.session)
    verdicts: list[Verdict] = []
    for index, _, initial in program.calls[call.name].session:
        rule, monitor = program.rules[index], program.monitors[index]
        assert isinstance(monitor, AttemptMonitor)
        try:
            before: Any = states.get(index, initial)
            found = monitor.look(before, call)
        except Exception as problem:  # as with a new attempt
            verdicts.append(Verdict(rule=rule, outcome=Outcome.ERROR, message=f"could not be evaluated: {problem}"))
            continue
        verdicts += [Verdict(rule=rule, outcome=Outcome.VIOLATED, message=one.message) for one in found]
    return verdicts


def _match(policy: CompiledPolicy, verdict: Verdict, call: ToolCall, on_error: Action) -> Match:
    guarded = policy.rules[verdict.rule.id]
    span = guarded.rule.span
    then, certain = guarded.then, True
    if verdict.outcome is Outcome.ERROR:
        then, certain = on_error, False
    elif then is not Action.ALLOW:
        certain = verdict.outcome is Outcome.VIOLATED and NOT_COMPARED not in verdict.notes
    return Match(
        rule=policy.rule_name(verdict.rule.id, call.origin.agent),
        then=then,
        message=verdict.message,
        reason=guarded.reason,
        certain=certain,
        shadow=guarded.shadow,
        line=None if span is None else str(span),
    )


def strictest(matches: Iterable[Match], *, shadow: bool) -> Match | None:
    """The first match with the strictest action. `shadow` includes shadow rules."""
    best: Match | None = None
    for match in matches:
        if (shadow or not match.shadow) and (best is None or match.then.strictness > best.then.strictness):
            best = match
    return best


# -- denials that no rule makes ---------------------------------------------------------------------------------------


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
