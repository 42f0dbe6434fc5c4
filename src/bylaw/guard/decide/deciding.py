"""Rules × attempt → the strictest action, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bylaw.engine.operators.attempt import NOT_COMPARED
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import PolicyState, SessionState
from bylaw.guard.decide.tree import Chain
from bylaw.guard.decision import Match
from bylaw.model.events import ToolCall
from bylaw.model.guarding import Action
from bylaw.model.verdict import Outcome, Verdict


def judge(chain: Chain, state: SessionState, call: ToolCall, on_error: Action) -> Sequence[Match]:
    """Every rule that matches, ancestors first. Attempts are counted; calls are only looked at."""
    matches: tuple[Match, ...] = ()
    for policy, on_attempts, on_calls in chain.concerned[call.name]:
        own = state.policies.get(policy.hash) or state.of(policy)
        attempted = own.attempts.attempt(call) if on_attempts else ()
        made = own.calls.peek(call) if on_calls else ()
        if attempted or made:
            verdicts = (*attempted, *made)
            prefix = _prefix(policy, call)
            matches += tuple(_match(policy, verdict, prefix, on_error) for verdict in verdicts)
    return matches


def count(policies: Sequence[CompiledPolicy], state: SessionState, call: ToolCall) -> None:
    """An attempt that these rules count and do not judge."""
    for policy in policies:
        state.of(policy).attempts.step(call)


def judge_again(chain: Chain, state: SessionState, call: ToolCall, on_error: Action, *, edited: bool) -> list[Match]:
    """Every rule that stops a call which a person has approved. Its attempt is counted already.

    What the person saw has not changed, but what was called meanwhile has: a limit may be used up. An edited call
    was seen by no rule.
    """
    matches: list[Match] = []
    for policy in chain.judging:
        own = state.of(policy)
        verdicts = [*(_look(own, call) if edited else ()), *own.calls.peek(call)]
        matches += [_match(policy, verdict, _prefix(policy, call), on_error) for verdict in verdicts]
    return [match for match in matches if match.then.strictness > Action.PAUSE.strictness]


def _look(state: PolicyState, call: ToolCall) -> list[Verdict]:
    """What the rules about attempts say, with their counters as they stand."""
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


def _prefix(policy: CompiledPolicy, call: ToolCall) -> str:
    return "" if policy.agent in (None, call.origin.agent) else f"{policy.agent}/"


def _match(policy: CompiledPolicy, verdict: Verdict, prefix: str, on_error: Action) -> Match:
    guarded = policy.rules[verdict.rule.id]
    if verdict.outcome is Outcome.ERROR:
        return _shown(policy, verdict.rule.id, prefix, on_error, verdict.message, certain=False)
    broken = verdict.outcome is Outcome.VIOLATED and NOT_COMPARED not in verdict.notes
    certain = broken or guarded.then is Action.ALLOW
    return _shown(policy, verdict.rule.id, prefix, guarded.then, verdict.message, certain=certain)


def _shown(policy: CompiledPolicy, rule_id: str, prefix: str, then: Action, message: str, *, certain: bool) -> Match:
    guarded = policy.rules[rule_id]
    span = guarded.rule.span
    return Match(
        rule=prefix + rule_id,
        then=then,
        message=message,
        reason=guarded.reason,
        certain=certain,
        shadow=guarded.shadow,
        line=None if span is None else str(span),
    )


def strictest(matches: Iterable[Match], *, shadow: bool) -> Match | None:
    """The match that decides: the strictest action, the first of several. `shadow` counts shadow rules in."""
    best: Match | None = None
    for match in matches:
        if (shadow or not match.shadow) and (best is None or match.then.strictness > best.then.strictness):
            best = match
    return best
