"""The rules of a guard over the rows of one session, in order. No rule is evaluated here: the guard's own parts do it.

Rows are facts. A call that the guard allowed was made; one that it stopped was attempted and no more. Window counters
hold here as they stand, and nothing that is found can undo a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.jobs.follow.recorded import Decided, Unreadable, decided, observation, taken, time_of
from bylaw.jobs.guard.attempts import Limits, Refused, call_of
from bylaw.jobs.guard.deciding import count, judge
from bylaw.jobs.guard.happening import ended, observed, released, returned
from bylaw.jobs.guard.policy import MESSAGES, CompiledPolicy
from bylaw.jobs.guard.session import SessionState
from bylaw.jobs.guard.tree import Chain, Policies, without_repeats
from bylaw.model.decision import Match
from bylaw.model.events import ToolCall
from bylaw.model.guarding import Action, GuardPolicy, GuardRule
from bylaw.model.stores import EventRow
from bylaw.model.verdict import Verdict

MOST_ASKED = 256
"""reviews of a session whose tool is kept in mind"""
_ANY_SIZE = Limits(bytes=1 << 30, depth=256)
"""what was written down was bounded when it was"""


class Found(Struct, frozen=True, kw_only=True):
    """A rule, broken by a row."""

    row: EventRow
    rule: str
    guarded: GuardRule
    message: str
    certain: bool = True
    stopped: bool = False
    call: ToolCall | None = None


def following(policies: Sequence[GuardPolicy]) -> Policies:
    """The policies as the follow-up has them: every window counter holds."""
    inline = [replace(p, rules=tuple(replace(r, inline=True) for r in p.rules)) for p in without_repeats(policies)]
    return Policies([CompiledPolicy(policy) for policy in inline])


class Fold:
    """One session, as far as it was followed."""

    def __init__(self, policies: Policies, state: SessionState, asked: Mapping[str, str] | None = None) -> None:
        self._policies, self.state = policies, state
        self.asked = dict(asked or {})

    def step(self, row: EventRow) -> list[Found]:
        """Raises Unreadable for a row that no guard has written; then nothing has changed."""
        match row.kind:
            case "decision":
                return self._decision(row, decided(row))
            case "taken":
                self._taken(taken(row))
            case "result":
                return self._result(row)
            case "observation":
                return self._observation(row)
            case "session" if row.data.get("how") == "ended":
                return self._told(row, ended(self.state, complete=row.data.get("why") is None))
            case "run":
                self.state.runs[_text(row, "run")] = (row.data.get("agent"), row.data.get("parent_run"))
            case "release":
                released(self.state, _text(row, "call_id"))
            case "review" if row.data.get("what") == "opened":
                self.asked[_text(row, "review")] = _text(row, "tool")
                if len(self.asked) > MOST_ASKED:
                    del self.asked[next(iter(self.asked))]
        return []

    # -- calls ----------------------------------------------------------------------------------------------------

    def _decision(self, row: EventRow, told: Decided) -> list[Found]:
        if not told.judged and not (told.resumed and told.action == "allow"):
            return []
        placed = self._placed(told)
        if placed is None:
            return []
        call, chain = placed
        state = self.state
        matches: Sequence[Match] = ()
        if told.judged:
            matches = judge(chain, state, call, Action.BLOCK)
            count(chain.elsewhere, state, call)
        elif self.asked.get(told.review or "", call.name) != call.name:  # a person chose another tool: a new attempt
            count(chain.judging, state, call)
        if told.action == "allow":
            self._made(chain, call)
        return list(self._matched(row, told, matches, chain, call)) if matches else []

    def _taken(self, told: Decided) -> None:
        placed = self._placed(told)
        if placed is not None:
            call, chain = placed
            count(chain.judging, self.state, call)
            self._made(chain, call)

    def _placed(self, told: Decided) -> tuple[ToolCall, Chain] | None:
        """The call, and whose rules hold for it; None where no rule can be asked about it, now as then."""
        state, attempt = self.state, told.attempt
        if attempt.agent is None:
            known = state.runs.get(attempt.run, (None, None))[0] if attempt.run is not None else None
            attempt = replace(attempt, agent=known or self._policies.named(None))
        try:
            call = call_of(attempt, told.call_id, state.origin, state.turn, _ANY_SIZE, _no_clock)
            state.met(attempt)
            return call, self._policies.chain(attempt, state)
        except Refused:
            return None

    def _made(self, chain: Chain, call: ToolCall) -> None:
        for policy in chain.reserving:
            self.state.of(policy).reserve(call)
        if chain.reserving:
            self.state.opened(call)

    def _matched(
        self, row: EventRow, told: Decided, matches: Iterable[Match], chain: Chain, call: ToolCall
    ) -> Iterable[Found]:
        names = _names(chain, call.origin.agent)
        for match in matches:
            known = match.rule in told.matched
            stopped = known and told.action != "allow"
            if match.shadow or not match.then.restricts or (known and told.in_shadow):
                continue
            if stopped and match.then is Action.PAUSE:  # a person was asked: that is what the rule wants
                continue
            yield Found(
                row=row,
                rule=match.rule,
                guarded=names[match.rule],
                message=match.message,
                certain=match.certain,
                stopped=stopped,
                call=call,
            )

    # -- what happens around them ---------------------------------------------------------------------------------

    def _result(self, row: EventRow) -> list[Found]:
        data = row.data
        call_id = _text(row, "result_of")
        result, found = returned(
            self._policies, self.state, call_id, data.get("content"), data.get("is_error"), time_of(row)
        )
        return self._told(row, found, call=result.call, agent=result.origin.agent)

    def _observation(self, row: EventRow) -> list[Found]:
        try:
            event = observation(row)
        except (KeyError, TypeError, AttributeError) as problem:
            raise Unreadable(f"event {row.seq}: {problem!r}") from problem
        event, found = observed(self._policies, self.state, event)
        return [*self._told(row, found, agent=event.origin.agent), *self._taken_over(row, event.origin.agent)]

    def _told(
        self,
        row: EventRow,
        found: Iterable[tuple[CompiledPolicy, Verdict]],
        *,
        call: ToolCall | None = None,
        agent: str | None = None,
    ) -> list[Found]:
        told: list[Found] = []
        agent = self._policies.named(agent)
        for policy, verdict in found:
            guarded = policy.rules[verdict.rule.id]
            if not guarded.shadow and guarded.then.restricts:
                name = _name(policy, verdict.rule.id, agent)
                told.append(Found(row=row, rule=name, guarded=guarded, message=verdict.message, call=call))
        return told

    def _taken_over(self, row: EventRow, agent: str | None) -> list[Found]:
        """What the guard found by messages that it saw and did not write down: nobody can judge these again."""
        said = {str(one.get("rule")): str(one.get("message")) for one in row.data.get("found") or ()}
        told: list[Found] = []
        for policy in self._policies.all if said and row.data.get("kind") != "message" else ():
            for rule_id in said.keys() & policy.rules.keys():
                guarded = policy.rules[rule_id]
                if MESSAGES in policy.needs.get(rule_id, ()) and not guarded.shadow and guarded.then.restricts:
                    name = _name(policy, rule_id, self._policies.named(agent))
                    told.append(Found(row=row, rule=name, guarded=guarded, message=said[rule_id]))
        return told


def _name(policy: CompiledPolicy, rule_id: str, agent: str | None) -> str:
    """As decisions name it: an ancestor's rule with its agent."""
    return rule_id if policy.agent in (None, agent) else f"{policy.agent}/{rule_id}"


def _names(chain: Chain, agent: str | None) -> dict[str, GuardRule]:
    return {_name(policy, key, agent): rule for policy in chain.judging for key, rule in policy.rules.items()}


def _text(row: EventRow, key: str) -> str:
    value: Any = row.data.get(key)
    if not isinstance(value, str):
        raise Unreadable(f"event {row.seq}: `{key}` is no text")
    return value


def _no_clock() -> float:
    raise AssertionError("what was recorded has a time")
