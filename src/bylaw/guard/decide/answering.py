"""One attempt → one decision, in the order of the reference: what stops it before any rule, then the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bylaw.guard.decide import telling
from bylaw.guard.decide.attempts import Refused, ToolSchemas, action_hash, call_of
from bylaw.guard.decide.deciding import count, judge, judge_again, strictest
from bylaw.guard.decide.denying import NotListed, denied, repeated, without_effect
from bylaw.guard.decide.hiding import Place
from bylaw.guard.decide.options import Options
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.decide.tree import NOBODY, Chain, Policies, ancestors
from bylaw.guard.decide.truths import truths
from bylaw.guard.decision import Attempt, Decision, DenialClass, Match
from bylaw.guard.reviews import advice, approved, open_review, spend
from bylaw.guard.stores.ports import SessionRecord, Transaction
from bylaw.model.events import ToolCall
from bylaw.model.guarding import Action

_ALLOW = Action.ALLOW


class Answering:
    def __init__(
        self,
        policies: Policies,
        sessions: Sessions,
        *,
        options: Options,
        policy: str,
        tool_schemas: Mapping[str, Any],
        clock: Callable[[], float],
    ) -> None:
        self._policies, self._sessions = policies, sessions
        self._options, self._policy, self._clock = options, policy, clock
        self._limits = options.limits
        self._tells_counters = sessions.tells_counters
        self._on_error = Action(options.on_error)
        self._schemas = ToolSchemas(tool_schemas) if tool_schemas else None
        self.switches: Mapping[str, str] = {}
        """without a store: kill switches that are on"""

    def answer(
        self,
        attempt: Attempt,
        call_id: str,
        review: str | None,
        transaction: Transaction | None,
        record: SessionRecord,
        state: SessionState,
    ) -> Decision:
        if attempt.run is not None and attempt.agent is None and attempt.run in state.runs:
            attempt = replace(attempt, agent=state.runs[attempt.run][0])
        chain, call = NOBODY, None
        try:
            if transaction is not None or self.switches or record.terminated is not None:
                stopped = self._stopped(attempt, transaction, record, state)
                if stopped is not None:
                    return stopped
            call = call_of(attempt, call_id, state.origin, state.turn, self._limits, self._clock)
            if attempt.agent is not None:
                state.met(attempt)
            chain = self._policies.chain(attempt, state)
            if not chain.admits_all:
                _check_listed(attempt, chain)
            if self._schemas is not None:
                self._schemas.check(call)
        except Refused as why:
            malformed = denied(self._policy, "arguments", str(why), DenialClass.STRUCTURAL)
            return self._effective(self._refused(malformed, call, chain, state), record)
        except NotListed as why:
            return self._effective(self._refused(denied(self._policy, why.by, str(why)), call, chain, state), record)
        if review is not None:
            resumed = self._resumed(attempt, call, review, chain, transaction, state)
            resumed = replace(resumed, blind=chain.blind(state.fed), notes=telling.notes(chain, state))
            return self._effective(resumed, record)
        matches = judge(chain, state, call, self._on_error)
        if chain.elsewhere:
            count(chain.elsewhere, state, call)
        if matches:
            return self._effective(self._matched(attempt, call, chain, matches, transaction, state), record)
        _allow(chain, state, call)
        return Decision(
            action=_ALLOW,
            policy=self._policy,
            blind=chain.blind(state.fed) if chain.can_be_blind else (),
            notes=telling.notes(chain, state) if state.afresh else chain.notes,
            counters=telling.counters(chain, state, call) if self._tells_counters else {},
        )

    def truths(self, attempt: Attempt, places: list[Place], state: SessionState) -> dict[str, dict[str, Any]]:
        """What the predicates of the rules that hold for an attempt say of it, where they look at one of the places."""
        try:
            if attempt.run is not None and attempt.agent is None and attempt.run in state.runs:
                attempt = replace(attempt, agent=state.runs[attempt.run][0])
            call = call_of(attempt, "-", state.origin, state.turn, self._limits, self._clock)
            return truths(self._policies.chain(attempt, state), call, places)
        except Refused:  # no rule was asked
            return {}

    def _effective(self, decision: Decision, record: SessionRecord) -> Decision:
        """A decision that need not be an allowance, with what it does to the session."""
        if self._options.shadow:
            return without_effect(decision)
        if decision.action is Action.TERMINATE and record.terminated is None:
            record.terminated = decision.decided_by or "a rule"
        return decision

    def _stopped(
        self, attempt: Attempt, transaction: Transaction | None, record: SessionRecord, state: SessionState
    ) -> Decision | None:
        """By a person, or by what ended the session; that holds in shadow too."""
        if record.terminated is not None:
            why = f"the session was ended by {record.terminated}"
            return replace(denied(self._policy, "session", why), action=Action.TERMINATE)
        switches = self.switches if transaction is None else transaction.switches()
        if not switches:
            return None
        for name in ("*", attempt.agent, *ancestors(attempt, state, self._options.max_depth)):
            if name is not None and name in switches:
                return denied(self._policy, "kill-switch", switches[name])
        return None

    def _refused(self, decision: Decision, call: ToolCall | None, chain: Chain, state: SessionState) -> Decision:
        """Before any rule was asked. `call` is None where there is none to speak of."""
        decision = replace(decision, blind=chain.blind(state.fed), notes=telling.notes(chain, state))
        if call is None or self._options.shadow:
            return decision
        return repeated(decision, self._hash(call), state, self._options)

    def _counters(self, chain: Chain, state: SessionState, call: ToolCall) -> dict[str, int]:
        """For the record, so only where there is one."""
        return telling.counters(chain, state, call) if self._tells_counters else {}

    def _matched(
        self,
        attempt: Attempt,
        call: ToolCall,
        chain: Chain,
        matches: Sequence[Match],
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        best, would = strictest(matches, shadow=False), strictest(matches, shadow=True)
        action = _ALLOW if best is None else best.then
        decision = Decision(
            action=action,
            decided_by=None if best is None else best.rule,
            matches=tuple(matches),
            reason="" if best is None else best.reason or best.message,
            policy=self._policy,
            would=would.then if would is not None and would.then is not action else None,
            blind=chain.blind(state.fed),
            notes=telling.notes(chain, state),
            counters=self._counters(chain, state, call),
        )
        if action is _ALLOW or self._options.shadow:
            _allow(chain, state, call)
        if self._options.shadow:
            return replace(decision, action=_ALLOW, would=action if action is not _ALLOW else decision.would)
        return decision if action is _ALLOW else self._restricted(decision, attempt, call, transaction, state)

    def _restricted(
        self,
        decision: Decision,
        attempt: Attempt,
        call: ToolCall,
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        digest = self._hash(call)
        decision = repeated(replace(decision, denial=DenialClass.PERMISSION), digest, state, self._options)
        if decision.action is not Action.PAUSE:
            return decision
        with self._sessions.reviewing(transaction, call.origin.session) as within:
            review = open_review(within, attempt, digest, decision, self._options, self._clock())
        return replace(decision, review=review.id, advice=advice(review))

    def _hash(self, call: ToolCall) -> str:
        return action_hash(call.name, call.arguments, call.origin.agent, self._policy)

    def _resumed(
        self,
        attempt: Attempt,
        call: ToolCall,
        review_id: str,
        chain: Chain,
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        """A call that a person was asked about. It is not a new attempt, so nothing is counted again, unless the
        person chose another tool: nobody has attempted that yet. An approval is spent when the call may run."""
        with self._sessions.reviewing(transaction, call.origin.session) as within:
            review, problem = approved(within, review_id, attempt, self._policy, self._clock())
            if review is None:
                return replace(denied(self._policy, "review", problem), review=review_id)
            if review.tool != call.name:
                count(chain.judging, state, call)
            stops = judge_again(chain, state, call, Action.BLOCK, edited=review.edited is not None)
            best = strictest(stops, shadow=False)
            if best is not None:
                stopped = denied(self._policy, best.rule, best.reason or best.message)
                return replace(stopped, action=best.then, matches=tuple(stops), review=review_id)
            spend(within, review, self._clock())
        _allow(chain, state, call)
        return Decision(action=_ALLOW, decided_by="review", reason="approved", review=review_id, policy=self._policy)


def _check_listed(attempt: Attempt, chain: Chain) -> None:
    if not chain.policies:
        whom = "an agent without a name" if attempt.agent is None else f"the agent `{attempt.agent}`"
        raise NotListed("agent", f"there are no rules for {whom}")
    for tools in chain.allowed:
        if attempt.tool not in tools:
            raise NotListed("allowlist", f"`{attempt.tool}` is not a tool of this agent")


def _allow(chain: Chain, state: SessionState, call: ToolCall) -> None:
    if chain.reserving:  # nobody else needs to know what a result answers
        for policy in chain.reserving:
            (state.policies.get(policy.hash) or state.of(policy)).reserve(call)
        state.opened(call)
