"""One attempt: checks before any rule sees it, and of a call id that is used again; the rules that match it; denials
that no rule makes. A malformed attempt is a structural denial, never an exception or a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import float_info
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.engine.matching import RedactedArguments
from bylaw.engine.operators.attempt import NOT_COMPARED
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.guard.decide.chain import Chain, Runs
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.redaction import StoredArguments
from bylaw.guard.decide.session import PolicyState, SessionState
from bylaw.guard.json_values import RefusedAttempt, own_json
from bylaw.guard.model import LONGEST_NAME, Attempt, Decision, DenialClass, Limits, Match, Options, check_names, is_name
from bylaw.guard.reviews import action_hash
from bylaw.guard.stores.ports import GuardStore, each_event
from bylaw.model.canonical import prepared
from bylaw.model.events import Origin, ToolCall
from bylaw.model.rule import Action
from bylaw.model.verdict import Outcome, Verdict


def call_of(
    attempt: Attempt, call_id: str, origin: Origin, turn: int | None, limits: Limits, clock: Callable[[], float]
) -> ToolCall:
    """The attempt as the event that rules judge, with arguments of its own, since the host may change its objects.
    `origin` is used if the attempt names nothing but its session. Raises Refused."""
    tool, session, arguments, ts = attempt.tool, attempt.session, attempt.arguments, attempt.ts
    run, parent_run, agent = attempt.run, attempt.parent_run, attempt.agent
    if not (
        type(tool) is str  # the common case, which needs no further check; the caller has checked the session
        and tool.isascii()
        and 0 < len(tool) <= LONGEST_NAME
        and run is parent_run is agent is attempt.call_id is None
        and attempt.ancestors == ()
    ):
        _check_names(attempt)
        origin = Origin(session, run, parent_run, agent)
    if ts is None:
        ts = clock()
    elif not is_time(ts):
        raise RefusedAttempt("`ts` is a finite number of seconds since 1970")
    # `None` means that there are none, not that they were not recorded
    known = {} if arguments is None else own_json(arguments, limits)
    return ToolCall(origin=origin, turn=turn, at=ts, name=tool, call_id=call_id, arguments=known)


def _check_names(attempt: Attempt) -> None:
    """A host may construct an Attempt with values of any type."""
    if not (attempt.tool and is_name(attempt.tool) and is_name(attempt.session)):
        raise RefusedAttempt(f"`tool` and `session` are texts of at most {LONGEST_NAME} characters")
    if not isinstance(attempt.ancestors, tuple | list):  # a text would be taken for a list of letters
        raise RefusedAttempt("`ancestors` are a tuple of names")
    others = (attempt.agent, attempt.run, attempt.parent_run, attempt.call_id, *attempt.ancestors)
    if not all(name is None or is_name(name) for name in others):
        raise RefusedAttempt(f"agents, runs and the id of a call are texts of at most {LONGEST_NAME} characters")


def in_session(attempt: Attempt, review: str | None, default: str | None) -> Attempt:
    """The attempt in the default session, if it names none. Raises Refused."""
    session: Any = attempt.session
    if review is not None and not is_name(review):
        raise RefusedAttempt("`review` is the id of a review")
    if session is not None and not is_name(session):
        raise RefusedAttempt(f"`session` is a text of at most {LONGEST_NAME} characters")
    if session:
        return attempt
    if default is None:
        raise RefusedAttempt("the attempt names no session: pass `session`, or make the guard with `default_session`")
    return replace(attempt, session=default)


def is_time(ts: Any) -> bool:
    return isinstance(ts, int | float) and not isinstance(ts, bool) and abs(ts) <= float_info.max


def no_attempt(value: Any) -> Attempt:
    """In place of something else that a host passed: it is refused, since an exception might be caught and the call
    be run."""
    return Attempt(tool=f"[not an Attempt: {type(value).__name__}]", session="-", ancestors=None)  # type: ignore[arg-type]


def call_key(decision: Decision | str, session: str | None) -> tuple[str, str]:
    """The id of a call and its session, as a host names them."""
    if isinstance(decision, Decision):
        return decision.call_id, decision.session
    if session is None:
        raise TypeError("a call that is named by its id needs session=…")
    check_names(decision=decision, session=session)
    return decision, session


class ToolSchemas:
    """JSON Schemas of tools' arguments, by tool name. A call that does not match is refused as malformed."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._validators = {name: _validator(name, schema) for name, schema in schemas.items()}

    def check(self, call: ToolCall) -> None:
        validator = self._validators.get(call.name)
        if validator is None or type(call.arguments) is RedactedArguments:  # checked before its arguments were redacted
            return
        problem = next(validator.iter_errors(call.arguments if call.arguments is not None else {}), None)
        if problem is not None:
            raise RefusedAttempt(f"the arguments do not fit the tool's schema: {problem.message}")


def _validator(tool: str, schema: Any) -> Any:
    import jsonschema_rs  # few guards have schemas

    try:
        return jsonschema_rs.validator_for(schema)
    except (ValueError, TypeError) as problem:
        reason = getattr(problem, "message", None) or str(problem)
        raise ValueError(f"the schema of `{tool}` cannot be used: {reason}") from None


# -- call ids that are used again -------------------------------------------------------------------------------------
# The client of a service reports a call again if the answer was lost. The same call has been counted, so the answer is
# what was found then. Any other call would run without being counted or judged, so it is refused.


class CallIdUsed(RefusedAttempt):
    """The id is that of another call, or it is not known of which."""


def id_as_run(call_id: str) -> str:
    """The id of the call that has run in place of the allowed one, with other arguments."""
    return f"{call_id}-as-run"[-LONGEST_NAME:]


def recorded_matches(store: GuardStore, call: ToolCall, opened: ToolCall | None, runs: Runs) -> tuple[Match, ...]:
    """What was found when this call was decided or reported before. Raises CallIdUsed.

    `opened`: the call that is open under its id, which may have values that the record lacks. `runs`: run → its agent
    and its parent run.
    """
    data = _find_call(store, call.origin.session, call.call_id)
    first: str | None = None
    if data is not None and "redacted" not in data and "unwritten" not in data:
        written = data["attempt"]
        agent = data.get("decision", {}).get("agent") or written.get("agent")
        first = _hash(written["tool"], written.get("arguments"), agent, written.get("run"), runs)
    elif data is not None and opened is not None and type(opened.arguments) not in (StoredArguments, type(None)):
        first = _hash_of(opened, runs)
    if data is None or first is None:
        why = "and it is not known by which call"
    elif first != _hash_of(call, runs):
        why = "by another call"
    else:
        return msgspec.convert(data.get("decision", data).get("matches", ()), prepared(tuple[Match, ...]))
    raise CallIdUsed(f"the call id `{call.call_id}` is already used in this session {why}")


def _find_call(store: GuardStore, session: str, call_id: str) -> dict[str, Any] | None:
    """The row of the last call with this id that was allowed, or judged after it ran. None if there is none, or if it
    was released, or reported again as part of a history, which nobody has judged."""
    found: dict[str, Any] | None = None
    for row in each_event(store, session=session):
        data = row.data
        if row.kind == "decision":
            decision = data["decision"]
            if decision.get("call_id") == call_id and decision["action"] == "allow" and not data.get("late"):
                found = data
        elif row.kind in ("taken", "release") and data.get("call_id") == call_id:
            found = data if "matches" in data else None
    return found


def _hash_of(call: ToolCall, runs: Runs) -> str:
    return _hash(call.name, call.arguments, call.origin.agent, call.origin.run, runs)


def _hash(tool: str, arguments: Any, agent: str | None, run: str | None, runs: Runs) -> str:
    return action_hash(tool, arguments, agent or runs.get(run or "", (None, None))[0])


# -- rules × attempt → matches, of which the strictest decides --------------------------------------------------------


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
        matches += [
            _match(policy, verdict, call, on_error) for verdict in (*_peek_verdicts(own, call), *own.calls.peek(call))
        ]
    return matches


def _peek_verdicts(state: PolicyState, call: ToolCall) -> list[Verdict]:
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
    return as_shadow_decision(decision) if shadow else decision


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
        return as_shadow_decision(decision)
    return decision if then != "allow" else replace(decision, denial=None, advice=None)


def as_shadow_decision(decision: Decision) -> Decision:
    """The decision of a guard in shadow: it allows, and names the action it would have taken."""
    if decision.action is Action.ALLOW:
        return decision
    return replace(decision, action=Action.ALLOW, would=decision.action, denial=None, advice=None)


def advice(decision: Decision) -> str:
    """Advice for the model on what it may do instead."""
    if decision.denial is DenialClass.STRUCTURAL:
        return f"correct the call: {decision.reason}"
    if decision.denial is DenialClass.TRANSIENT:
        return "try again later; the call was not judged"
    if decision.decided_by == "session" or decision.action is Action.TERMINATE:
        return "stop: no further call of this session will run"
    if decision.repeats:
        return f"the same call was denied {decision.repeats + 1} times; do something else"
    return "do not repeat this call; do something else, or tell the user why it cannot be done"
