"""The rules of a guard over the rows of one session, in order. The guard's own functions evaluate the rules.

Rows are facts. A call that the guard allowed was made; a call that it stopped was only attempted. Window counters
apply, and no finding can undo a call. A rule that depends on a value which rows leave out is not judged here, see
`event_rows`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.attempts import call_of, count_attempt, judge, reserve_call
from bylaw.guard.decide.chain import Chain
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import (
    SessionState,
    concerned_chain,
    end_session,
    observe_event,
    record_result,
    release_call,
)
from bylaw.guard.incidents.event_rows import (
    PartialCall,
    RecordedDecision,
    Rules,
    Unreadable,
    add_time,
    lost_rules,
    partial_call,
    read_decision,
    read_observation,
    recorded_findings,
    recorded_matches,
    rule_key,
    text_at,
)
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Limits, Match
from bylaw.guard.stores.records import EventRow
from bylaw.model.condition import Reach
from bylaw.model.events import Event, ToolCall
from bylaw.model.rule import Action, GuardRule
from bylaw.model.verdict import Verdict

MOST_REVIEWS = 256
"""reviews of a session whose tool is remembered"""
_ANY_SIZE = Limits(bytes=1 << 30, depth=256)
"""recorded arguments were checked when they were recorded"""


class RowViolation(Struct, frozen=True, kw_only=True):
    """A rule broken by a row."""

    row: EventRow
    rule: str
    guarded: GuardRule
    message: str
    certain: bool = True
    stopped: bool = False
    call: ToolCall | None = None


class CountedAttempt(Struct, frozen=True):
    """An attempt for the rules that count over more than its session."""

    row: EventRow
    decision: RecordedDecision
    reach: Reach
    chain: Chain
    call: ToolCall
    partial: PartialCall | None


class Fold:
    """One session, as far as it was followed."""

    def __init__(
        self,
        rules: Rules,
        state: SessionState,
        *,
        asked: Mapping[str, str] | None = None,
        lost: Iterable[str] = (),
        unjudged: Mapping[str, int] | None = None,
        after: int = 0,
    ) -> None:
        """The arguments are fields of `Following`. `after`: rows up to this number were counted over all sessions."""
        self._after = after
        self.attempted: list[CountedAttempt] = []
        self._rules, self._policies, self.state = rules, rules.policies, state
        self.asked = dict(asked or {})
        self.lost = set(lost)
        self.unjudged = dict(unjudged or {})
        self.judged: tuple[Chain, ToolCall] | None = None
        """the last attempt, and the policies that apply to it"""

    def step(self, row: EventRow, at: float) -> Sequence[RowViolation]:
        """Raises Unreadable for a row that no guard has written; the state is then unchanged."""
        match row.kind:
            case "decision":
                return self._decision(row, read_decision(row, at))
            case "taken":
                past = read_decision(row, at)
                if past.judged:
                    return self._decision(row, past)
                self._past_call(row, past)
            case "result":
                return self._result(row, at)
            case "observation":
                return self._observation(row, at)
            case "session" if row.data.get("how") == "ended":
                return self._end(row)
            case "run":
                self.state.announce(text_at(row, "run"), row.data.get("agent"), row.data.get("parent_run"))
            case "release":
                release_call(self.state, text_at(row, "call_id"))
            case "review" if row.data.get("what") == "opened":
                self.asked[text_at(row, "review")] = text_at(row, "tool")
                if len(self.asked) > MOST_REVIEWS:
                    del self.asked[next(iter(self.asked))]
        return ()

    # -- calls ----------------------------------------------------------------------------------------------------

    def _decision(self, row: EventRow, decision: RecordedDecision) -> Sequence[RowViolation]:
        allowed = decision.action == "allow"
        if not decision.judged and not (decision.resumed and allowed):
            return ()
        located = self._locate(decision, row)
        if located is None:
            return ()
        call, chain, partial = located
        state, self.judged = self.state, (chain, call)
        matches: Sequence[Match] = ()
        if decision.judged:
            matches = judge(chain, state, call, Action.BLOCK)
            if chain.elsewhere:
                count_attempt(chain.elsewhere, state, call)
        elif self.asked.get(decision.review or "", call.name) != call.name:  # a person chose another tool
            count_attempt(chain.judging, state, call)
        if allowed:
            reserve_call(chain, state, call)
        found: Sequence[RowViolation] = ()
        if decision.judged and (matches or partial is not None or self.lost):
            found = list(self._list_matches(row, decision, matches, chain, call, partial))
        if partial is not None and allowed:
            self.lost |= partial.lost
        return found

    def _past_call(self, row: EventRow, decision: RecordedDecision) -> None:
        located = self._locate(decision, row)
        if located is not None:
            call, chain, partial = located
            count_attempt(chain.judging, self.state, call)
            reserve_call(chain, self.state, call)
            if partial is not None:
                self.lost |= partial.lost

    def _locate(self, decision: RecordedDecision, row: EventRow) -> tuple[ToolCall, Chain, PartialCall | None] | None:
        """The call and the policies that apply to it; None if no rule can judge it, as the guard found too."""
        state, attempt = self.state, decision.attempt
        agent = state.agent_of(attempt) or self._policies.named(None)
        if attempt.agent is None and agent is not None:
            attempt = replace(attempt, agent=agent)
        try:
            call = call_of(attempt, decision.call_id, state.origin, state.turn, _ANY_SIZE, _no_clock)
            chain = self._policies.chain(attempt, state.runs, state.above)
            state.remember_agent(attempt)
        except RefusedAttempt:
            return None
        if self._rules.wide and row.seq > self._after and not decision.resumed:
            self.attempted += self._list_attempts(row, decision, replace(attempt, agent=call.origin.agent), call)
        if decision.redacted is None:
            return call, chain, None
        partial = partial_call(call, chain, decision.redacted)
        return partial.call, chain, partial

    def _list_attempts(
        self, row: EventRow, decision: RecordedDecision, attempt: Attempt, call: ToolCall
    ) -> Iterator[CountedAttempt]:
        for reach, policies in self._rules.wide.items():
            state = self.state
            chain = self._rules.everywhere if reach == "all" else policies.chain(attempt, state.runs, state.above)
            partial = None if decision.redacted is None else partial_call(call, chain, decision.redacted)
            yield CountedAttempt(row, decision, reach, chain, call if partial is None else partial.call, partial)

    def _list_matches(
        self,
        row: EventRow,
        decision: RecordedDecision,
        matches: Sequence[Match],
        chain: Chain,
        call: ToolCall,
        partial: PartialCall | None,
    ) -> Iterator[RowViolation]:
        rules = chain.rules_by_name(call.origin.agent)
        unclear = self._unclear(rules, matches, chain, call, partial)
        recorded = recorded_matches(row) if unclear and self._rules.are_those_of(decision.policy) else None
        for match in matches:
            if match.rule not in unclear:
                yield from violation_of_match(row, decision, rules[match.rule][1], match, call)
        for name in unclear:
            policy, guarded = rules[name]
            if recorded is None or (name not in recorded and self._rules.is_partly_evaluated(policy, guarded)):
                self._count_unjudged(name, guarded)
            elif name in recorded:
                match = Match(
                    rule=name,
                    then=guarded.then,
                    message=str(recorded[name].get("message") or ""),
                    certain=recorded[name].get("certain") is not False,
                    shadow=guarded.shadow,
                )
                yield from violation_of_match(row, decision, guarded, match, call)

    def _unclear(
        self,
        rules: Mapping[str, tuple[CompiledPolicy, GuardRule]],
        matches: Sequence[Match],
        chain: Chain,
        call: ToolCall,
        partial: PartialCall | None,
    ) -> list[str]:
        """Names of rules that this call concerns and whose verdict is unknown."""
        lost = self.lost | partial.lost if partial is not None else self.lost
        agent = call.origin.agent
        found = [policy.rule_name(id, agent) for policy, id in lost_rules(chain.judging, call, lost)] if lost else []
        if partial is not None and partial.doubtful:
            doubts = (one.rule for one in matches if not one.certain)
            found += [name for name in doubts if rule_key(rules[name][0], rules[name][1].rule.id) in partial.doubtful]
        return found

    def _count_unjudged(self, name: str, guarded: GuardRule) -> None:
        if not guarded.shadow and guarded.then.restricts:
            self.unjudged[name] = self.unjudged.get(name, 0) + 1

    # -- events around calls --------------------------------------------------------------------------------------

    def _result(self, row: EventRow, at: float) -> Sequence[RowViolation]:
        data, call_id = row.data, text_at(row, "result_of")
        result, found = record_result(
            self._policies, self.state, call_id, data.get("content"), data.get("is_error"), at
        )
        if data.get("redacted"):
            self.lost |= self._rules.lost_by(result, redacted=True)
        return self._list_observed(row, found, event=result, call=result.call)

    def _observation(self, row: EventRow, at: float) -> Sequence[RowViolation]:
        read = read_observation(row, at)
        if read is None:  # any rule may have looked at it
            rules = [(policy, rule.id) for policy in self._policies.all for rule in policy.calls.rules]
            self.lost |= {rule_key(policy, id) for policy, id in rules}
            return list(self._list_violations(row, (), rules, agent=row.data.get("agent")))
        event, found = observe_event(self._policies, self.state, read)
        self.lost |= self._rules.lost_by(event, redacted=bool(row.data.get("redacted")))
        return self._list_observed(row, found, event=event)

    def _end(self, row: EventRow) -> Sequence[RowViolation]:
        policies = [own.policy for own in self.state.policies.values()]
        found = end_session(self.state, complete=row.data.get("why") is None)
        lost = [(policy, id) for policy in policies for id in policy.rules if rule_key(policy, id) in self.lost]
        ended = list(self._list_violations(row, found, lost, agent=None))
        self.lost.clear()  # the state of the rules was reset, so it is known again
        return ended

    def _list_observed(
        self,
        row: EventRow,
        found: Sequence[tuple[CompiledPolicy, Verdict]],
        *,
        event: Event,
        call: ToolCall | None = None,
    ) -> Sequence[RowViolation]:
        lost: Sequence[tuple[CompiledPolicy, str]] = ()
        if self.lost:
            chain = concerned_chain(self._policies, event, self.state)
            lost = list(lost_rules(chain.reserving, event, self.lost))
        return (
            list(self._list_violations(row, found, lost, agent=event.origin.agent, call=call)) if found or lost else ()
        )

    def _list_violations(
        self,
        row: EventRow,
        found: Iterable[tuple[CompiledPolicy, Verdict]],
        lost: Sequence[tuple[CompiledPolicy, str]],
        *,
        agent: str | None,
        call: ToolCall | None = None,
    ) -> Iterator[RowViolation]:
        """The rules that an event broke; for rules with unknown state, those that the guard found broken."""
        agent = self._policies.named(agent)
        broken = [(p, v.rule.id, v.message) for p, v in found if rule_key(p, v.rule.id) not in self.lost]
        recorded = recorded_findings(row) if lost and self._rules.are_those_of(row.data.get("policy")) else None
        for policy, id in lost:
            if recorded is None:
                self._count_unjudged(policy.rule_name(id, agent), policy.rules[id])
            elif id in recorded:
                broken.append((policy, id, recorded[id]))
        for policy, id, message in broken:
            guarded = policy.rules[id]
            if not guarded.shadow and guarded.then.restricts:
                yield RowViolation(
                    row=row, rule=policy.rule_name(id, agent), guarded=guarded, message=message, call=call
                )


def counters_of(rules: Rules, session: str, rows: Iterable[EventRow]) -> dict[str | None, dict[str, int]]:
    """Run → `rule: counter` → its value at the last attempt of the run. Windows of the session are among them, which
    the guard does not evaluate before a call; counters over an agent or over all are not."""
    fold, shown = Fold(rules, SessionState(session)), dict[str | None, dict[str, int]]()
    for at, _, row in sorted(map(add_time, rows), key=lambda one: one[:2]):
        fold.judged = None
        with suppress(Unreadable):
            fold.step(row, at)
        if fold.judged is not None:
            chain, call = fold.judged
            values = shown.setdefault(call.origin.run, {})
            for policy in chain.counting:
                values |= policy.counters(fold.state.of(policy).attempts.states_of(call.origin.session), call)
    return shown


def violation_of_match(
    row: EventRow, decision: RecordedDecision, guarded: GuardRule, match: Match, call: ToolCall
) -> Iterator[RowViolation]:
    """The finding of a match, unless the rule has no effect, or the guard applied it."""
    was_matched = match.rule in decision.matched
    stopped = was_matched and decision.action != "allow"
    if match.shadow or not match.then.restricts or (was_matched and decision.in_shadow):
        return
    if stopped and match.then is Action.PAUSE:  # a person was asked, as the rule demands
        return
    yield RowViolation(
        row=row,
        rule=match.rule,
        guarded=guarded,
        message=match.message,
        certain=match.certain,
        stopped=stopped,
        call=call,
    )


def _no_clock() -> float:
    raise AssertionError("a recorded attempt has a time")
