"""The rules of a guard over the rows of one session, in order. No rule is evaluated here: the guard's own parts do it.

Rows are facts. A call that the guard allowed was made; one that it stopped was attempted and no more. Window counters
hold here as they stand, and nothing that is found can undo a call. What a rule looks at may not be in the rows: then it
is not judged here, see `unwritten`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.attempts import Limits, Refused, call_of
from bylaw.guard.decide.deciding import count, judge
from bylaw.guard.decide.happening import concerned, ended, observed, released, returned
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.tree import Chain
from bylaw.guard.decision import Match
from bylaw.guard.incidents.recorded import Decided, Unreadable, decided, observation, taken
from bylaw.guard.incidents.then import name_of, named, said, word
from bylaw.guard.incidents.unwritten import Known, Rules, concerned_by, key, known
from bylaw.guard.stores.ports import EventRow
from bylaw.model.events import Event, Request, ToolCall
from bylaw.model.guarding import Action, GuardRule
from bylaw.model.verdict import Verdict

MOST_ASKED = 256
"""reviews of a session whose tool is kept in mind"""
_ANY_SIZE = Limits(bytes=1 << 30, depth=256)
"""what was written down was bounded when it was"""
_NONE: frozenset[str] = frozenset()


class Found(Struct, frozen=True, kw_only=True):
    """A rule, broken by a row."""

    row: EventRow
    rule: str
    guarded: GuardRule
    message: str
    certain: bool = True
    stopped: bool = False
    call: ToolCall | None = None


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
    ) -> None:
        """As `Following` has them."""
        self._rules, self._policies, self.state = rules, rules.policies, state
        self.asked = dict(asked or {})
        self.lost = set(lost)
        self.unjudged = dict(unjudged or {})

    def step(self, row: EventRow, at: float) -> Sequence[Found]:
        """Raises Unreadable for a row that no guard has written; then nothing has changed."""
        match row.kind:
            case "decision":
                return self._decision(row, decided(row, at))
            case "taken":
                self._taken(taken(row, at))
            case "result":
                return self._result(row, at)
            case "observation":
                return self._observation(row, at)
            case "session" if row.data.get("how") == "ended":
                return self._ended(row)
            case "run":
                self.state.runs[_text(row, "run")] = (row.data.get("agent"), row.data.get("parent_run"))
            case "release":
                released(self.state, _text(row, "call_id"))
            case "review" if row.data.get("what") == "opened":
                self.asked[_text(row, "review")] = _text(row, "tool")
                if len(self.asked) > MOST_ASKED:
                    del self.asked[next(iter(self.asked))]
        return ()

    # -- calls ----------------------------------------------------------------------------------------------------

    def _decision(self, row: EventRow, told: Decided) -> Sequence[Found]:
        if not told.judged and not (told.resumed and told.action == "allow"):
            return ()
        placed = self._placed(told)
        if placed is None:
            return ()
        call, chain, gone = placed
        state = self.state
        matches: Sequence[Match] = ()
        if told.judged:
            matches = judge(chain, state, call, Action.BLOCK)
            if chain.elsewhere:
                count(chain.elsewhere, state, call)
        elif self.asked.get(told.review or "", call.name) != call.name:  # a person chose another tool: a new attempt
            count(chain.judging, state, call)
        if told.action == "allow":
            self._made(chain, call)
        found: Sequence[Found] = ()
        if told.judged and (matches or gone is not None or self.lost):
            found = list(self._matched(row, told, matches, chain, call, gone))
        if gone is not None and told.action == "allow":
            self.lost |= gone.lost
        return found

    def _taken(self, told: Decided) -> None:
        placed = self._placed(told)
        if placed is not None:
            call, chain, gone = placed
            count(chain.judging, self.state, call)
            self._made(chain, call)
            self.lost |= gone.lost if gone is not None else _NONE

    def _placed(self, told: Decided) -> tuple[ToolCall, Chain, Known | None] | None:
        """The call, and whose rules hold for it; None where no rule can be asked about it, now as then."""
        state, attempt = self.state, told.attempt
        if attempt.agent is None:
            agent = state.runs.get(attempt.run, (None, None))[0] if attempt.run is not None else None
            agent = agent or self._policies.named(None)
            attempt = replace(attempt, agent=agent) if agent is not None else attempt
        try:
            call = call_of(attempt, told.call_id, state.origin, state.turn, _ANY_SIZE, _no_clock)
            state.met(attempt)
            chain = self._policies.chain(attempt, state)
        except Refused:
            return None
        if told.gone is None:
            return call, chain, None
        as_known = known(call, chain, told.gone)
        return as_known.call, chain, as_known

    def _made(self, chain: Chain, call: ToolCall) -> None:
        for policy in chain.reserving:
            self.state.of(policy).reserve(call)
        if chain.reserving:
            self.state.opened(call)

    def _matched(
        self,
        row: EventRow,
        told: Decided,
        matches: Sequence[Match],
        chain: Chain,
        call: ToolCall,
        gone: Known | None,
    ) -> Iterator[Found]:
        rules = named(chain, call.origin.agent)
        unclear = self._unclear(rules, matches, chain, call, gone)
        told_then = word(row) if unclear and self._rules.are_those_of(told.policy) else None
        for match in matches:
            if match.rule not in unclear:
                yield from self._found(row, told, rules[match.rule][1], match, call)
        for name in unclear:
            policy, guarded = rules[name]
            if told_then is None or (name not in told_then and self._rules.is_asked_in_part(policy, guarded)):
                self._count_unjudged(name, guarded)
            elif name in told_then:
                match = replace(told_then[name], shadow=guarded.shadow, then=guarded.then)
                yield from self._found(row, told, guarded, match, call)

    def _unclear(
        self,
        rules: Mapping[str, tuple[CompiledPolicy, GuardRule]],
        matches: Sequence[Match],
        chain: Chain,
        call: ToolCall,
        gone: Known | None,
    ) -> list[str]:
        """Rules that this call concerns and of which it is not known what they say, as decisions name them."""
        lost = self.lost | gone.lost if gone is not None else self.lost
        agent = call.origin.agent
        found = [name_of(policy, id, agent) for policy, id in concerned_by(chain.judging, call, lost)] if lost else []
        if gone is not None and gone.doubtful:
            doubts = (one.rule for one in matches if not one.certain)
            found += [name for name in doubts if key(rules[name][0], rules[name][1].rule.id) in gone.doubtful]
        return found

    def _found(self, row: EventRow, told: Decided, guarded: GuardRule, match: Match, call: ToolCall) -> Iterator[Found]:
        before = match.rule in told.matched
        stopped = before and told.action != "allow"
        if match.shadow or not match.then.restricts or (before and told.in_shadow):
            return
        if stopped and match.then is Action.PAUSE:  # a person was asked: that is what the rule wants
            return
        yield Found(
            row=row,
            rule=match.rule,
            guarded=guarded,
            message=match.message,
            certain=match.certain,
            stopped=stopped,
            call=call,
        )

    def _count_unjudged(self, name: str, guarded: GuardRule) -> None:
        if not guarded.shadow and guarded.then.restricts:
            self.unjudged[name] = self.unjudged.get(name, 0) + 1

    # -- what happens around them ---------------------------------------------------------------------------------

    def _result(self, row: EventRow, at: float) -> Sequence[Found]:
        data = row.data
        call_id = _text(row, "result_of")
        result, found = returned(self._policies, self.state, call_id, data.get("content"), data.get("is_error"), at)
        if data.get("redacted"):
            self.lost |= self._rules.lost_by(result, redacted=True, asked=False)
        if not found and not self.lost:
            return ()
        return self._told(row, found, event=result, call=result.call)

    def _observation(self, row: EventRow, at: float) -> Sequence[Found]:
        data = row.data
        try:
            event = observation(row, at)
            asked = isinstance(event, Request) or bool((data.get("said") or {}).get("request"))
        except (KeyError, TypeError, AttributeError) as problem:
            raise Unreadable(f"event {row.seq}: {problem!r}") from problem
        event, found = observed(self._policies, self.state, event)
        self.lost |= self._rules.lost_by(event, redacted=bool(data.get("redacted")), asked=asked)
        return self._told(row, found, event=event) if found or self.lost else ()

    def _ended(self, row: EventRow) -> Sequence[Found]:
        policies = [own.policy for own in self.state.policies.values()]
        found = ended(self.state, complete=row.data.get("why") is None)
        lost = [(policy, id) for policy in policies for id in policy.rules if key(policy, id) in self.lost]
        told = list(self._judged(row, found, lost, agent=None))
        self.lost.clear()  # what the rules remembered is gone, so it is known again
        return told

    def _told(
        self,
        row: EventRow,
        found: Iterable[tuple[CompiledPolicy, Verdict]],
        *,
        event: Event,
        call: ToolCall | None = None,
    ) -> Sequence[Found]:
        lost: Sequence[tuple[CompiledPolicy, str]] = ()
        if self.lost:
            lost = list(concerned_by(concerned(self._policies, event, self.state).reserving, event, self.lost))
        return list(self._judged(row, found, lost, agent=event.origin.agent, call=call))

    def _judged(
        self,
        row: EventRow,
        found: Iterable[tuple[CompiledPolicy, Verdict]],
        lost: Sequence[tuple[CompiledPolicy, str]],
        *,
        agent: str | None,
        call: ToolCall | None = None,
    ) -> Iterator[Found]:
        """What an event broke, and what the guard found at the time by rules that are lost."""
        agent = self._policies.named(agent)
        for policy, verdict in found:
            if key(policy, verdict.rule.id) not in self.lost:
                yield from self._broken(row, policy, verdict.rule.id, verdict.message, agent, call)
        if not lost:
            return
        found_then = said(row) if self._rules.are_those_of(row.data.get("policy")) else None
        for policy, id in lost:
            if found_then is None:
                self._count_unjudged(name_of(policy, id, agent), policy.rules[id])
            elif id in found_then:
                yield from self._broken(row, policy, id, found_then[id], agent, call)

    def _broken(
        self, row: EventRow, policy: CompiledPolicy, rule: str, message: str, agent: str | None, call: ToolCall | None
    ) -> Iterator[Found]:
        guarded = policy.rules[rule]
        if not guarded.shadow and guarded.then.restricts:
            yield Found(row=row, rule=name_of(policy, rule, agent), guarded=guarded, message=message, call=call)


def _text(row: EventRow, key: str) -> str:
    value: Any = row.data.get(key)
    if not isinstance(value, str):
        raise Unreadable(f"event {row.seq}: `{key}` is no text")
    return value


def _no_clock() -> float:
    raise AssertionError("what was recorded has a time")
