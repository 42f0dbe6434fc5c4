"""One attempt → one decision: first the checks that stop a call before any rule, then the rules, then reviews."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bylaw.guard.decide.attempts import (
    NotListed,
    ToolSchemas,
    as_shadow_decision,
    block,
    call_of,
    count_attempt,
    count_repeat,
    judge,
    judge_approved,
    reserve_call,
    strictest,
)
from bylaw.guard.decide.chain import NOBODY, Chain, Policies, lineage
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.records import text_of
from bylaw.guard.decide.redaction import Place, redacted_predicates
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.json_values import RefusedAttempt, copy_json
from bylaw.guard.model import Attempt, Call, Decision, DenialClass, Match, Options
from bylaw.guard.reviews import (
    ReviewTerms,
    action_hash,
    approved_review,
    ask_more,
    needed_approvals,
    open_review,
    review_advice,
    spend,
)
from bylaw.guard.stores.ports import Transaction
from bylaw.guard.stores.records import ReviewRecord, SessionRecord
from bylaw.model.canonical import short_digest
from bylaw.model.events import ToolCall
from bylaw.model.rule import Action, GuardRule

_ALLOW = Action.ALLOW
_OTHER_RULES = "the rules have changed since the call was approved, and those before are not known"
_AFRESH = "the rules have changed since this session began; their state starts empty"


class Decider:
    """Decides one attempt in a session that the caller has locked."""

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
        self._shows_counters = sessions.shows_counters
        self._on_error = Action(options.on_error)
        self._schemas = ToolSchemas(tool_schemas) if tool_schemas else None
        self.switches: Mapping[str, str] = {}
        """kill switches that are on, for a guard without a store"""

    def decide(
        self,
        attempt: Attempt,
        call_id: str,
        review: str | None,
        transaction: Transaction | None,
        record: SessionRecord,
        state: SessionState,
    ) -> Decision:
        if attempt.run is not None and attempt.agent is None:
            attempt = replace(attempt, agent=state.agent_of(attempt))
        chain, call = NOBODY, None
        try:
            if transaction is not None or self.switches or record.terminated is not None:
                stopped = self._decide_stopped(attempt, transaction, record, state)
                if stopped is not None:
                    stopped.agent = None if attempt.agent is None else text_of(attempt.agent)
                    return stopped
            call = call_of(attempt, call_id, state.origin, state.turn, self._limits, self._clock)
            chain = self._policies.chain(attempt, state.runs, state.above)
            if not chain.admits_all:
                _check_listed(attempt, chain)
            if attempt.call_id is not None and not self._options.shadow and state.is_used(attempt.call_id):
                raise NotListed("call-id", f"the call id `{attempt.call_id}` is already used in this session")
            if self._schemas is not None:
                self._schemas.check(call)
            if attempt.agent is not None:
                state.remember_agent(attempt)
        except RefusedAttempt as why:
            malformed = block(self._policy, "arguments", str(why), DenialClass.STRUCTURAL)
            return self._effective(self._decide_refused(malformed, call, chain, state), attempt, call, chain, record)
        except NotListed as why:
            refused = self._decide_refused(block(self._policy, why.by, str(why)), call, chain, state)
            return self._effective(refused, attempt, call, chain, record)
        if review is not None:
            resumed = self._decide_resumed(_judged_attempt(attempt, call), call, review, chain, transaction, state)
            if resumed.action is _ALLOW and attempt.call_id is not None:
                state.use_call_id(attempt.call_id)
            return self._effective(_add_notes(resumed, chain, state), attempt, call, chain, record)
        matches = judge(chain, state, call, self._on_error)
        if chain.elsewhere:
            count_attempt(chain.elsewhere, state, call)
        if matches:
            if not chain.can_pause:
                matches = [_make_blocking(match) for match in matches]
            matched = self._decide_matched(attempt, call, chain, matches, transaction, state)
            if matched.action is _ALLOW and attempt.call_id is not None:
                state.use_call_id(attempt.call_id)
            return self._effective(matched, attempt, call, chain, record)
        reserve_call(chain, state, call)
        if attempt.call_id is not None:
            state.use_call_id(attempt.call_id)
        # what the session remembers of the call must not change with what the host runs
        allowed = Call(call.name, copy_json(call.arguments) if chain.reserving else call.arguments)
        decision = Decision(action=_ALLOW, policy=self._policy, call=allowed)  # most have nothing else to say
        if chain.can_be_blind:
            decision.blind = chain.blind(state.fed)
        if chain.notes or state.afresh:
            decision.notes = _notes(chain, state)
        if self._shows_counters:
            decision.counters = _counters(chain, state, call)
        if attempt.agent is not None:
            decision.agent, decision.version = attempt.agent, chain.version
        elif chain.version is not None:
            decision.version = chain.version
        return decision

    def judge_past_call(
        self,
        attempt: Attempt,
        call: ToolCall,
        chain: Chain,
        transaction: Transaction | None,
        record: SessionRecord,
        state: SessionState,
    ) -> tuple[Match, ...]:
        """Everything that would have stopped a call that has run. The attempt is counted, and the session ends if a
        rule says so that is certain to match."""
        found: list[Match] = []
        stopped = self._decide_stopped(attempt, transaction, record, state)
        if stopped is not None:
            found.append(Match(rule=stopped.decided_by or "session", then=stopped.action, message=stopped.reason))
        try:
            if not chain.admits_all:
                _check_listed(attempt, chain)
        except NotListed as why:
            found.append(Match(rule=why.by, then=Action.BLOCK, message=str(why)))
        found += judge(chain, state, call, self._on_error)
        if chain.elsewhere:
            count_attempt(chain.elsewhere, state, call)
        if record.terminated is None and not self._options.shadow:
            ends = (one.rule for one in found if one.then is Action.TERMINATE and one.certain and not one.shadow)
            record.terminated = next(ends, None)
        return tuple(found)

    def redacted_predicates(
        self, attempt: Attempt, places: list[Place], state: SessionState
    ) -> dict[str, dict[str, Any]]:
        """The truth of the predicates that look at these arguments, of the rules that apply to the attempt."""
        try:
            if attempt.run is not None and attempt.agent is None:
                attempt = replace(attempt, agent=state.agent_of(attempt))
            call = call_of(attempt, "-", state.origin, state.turn, self._limits, self._clock)
            return redacted_predicates(self._policies.chain(attempt, state.runs, state.above), call, places)
        except RefusedAttempt:  # no rule was evaluated
            return {}

    def _effective(
        self, decision: Decision, attempt: Attempt, call: ToolCall | None, chain: Chain, record: SessionRecord
    ) -> Decision:
        """Name the agent and the call that was judged, and apply shadow mode and the effect of the decision on the
        session."""
        if call is not None:
            decision.call = Call(call.name, copy_json(call.arguments))
        agent = attempt.agent
        decision.agent = agent if agent is None or type(agent) is str else text_of(agent)
        decision.version = chain.version
        if self._options.shadow:
            return as_shadow_decision(decision)
        if decision.action is Action.TERMINATE and record.terminated is None:
            record.terminated = decision.decided_by or "a rule"
        return decision

    def _decide_stopped(
        self, attempt: Attempt, transaction: Transaction | None, record: SessionRecord, state: SessionState
    ) -> Decision | None:
        """A terminated session and kill switches stop a call in shadow mode too."""
        if record.terminated is not None:
            why = f"the session was ended by {record.terminated}"
            return replace(block(self._policy, "session", why), action=Action.TERMINATE)
        switches = self.switches if transaction is None else transaction.switches()
        if not switches:
            return None
        stated, possible = lineage(attempt, state.runs, state.above, self._options.max_depth)
        for name in ("*", attempt.agent, *stated, *possible):
            if name is not None and name in switches:
                return block(self._policy, "kill-switch", switches[name])
        return None

    def _decide_refused(self, decision: Decision, call: ToolCall | None, chain: Chain, state: SessionState) -> Decision:
        """Refused before any rule. `call` is None if the attempt has no valid form."""
        decision = _add_notes(decision, chain, state)
        if call is None or self._options.shadow:
            return decision
        return count_repeat(decision, _hash(call), state, self._options)

    def _decide_matched(
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
            notes=_notes(chain, state),
            counters=_counters(chain, state, call) if self._shows_counters else {},
        )
        if action is _ALLOW or self._options.shadow:
            reserve_call(chain, state, call)
        if self._options.shadow:
            return replace(decision, action=_ALLOW, would=action if action is not _ALLOW else decision.would)
        if action is _ALLOW:
            return decision
        decision = count_repeat(replace(decision, denial=DenialClass.PERMISSION), _hash(call), state, self._options)
        if decision.action is not Action.PAUSE:
            return decision
        with self._sessions.review_transaction(transaction, call.origin.session) as within:
            review = open_review(
                within,
                _judged_attempt(attempt, call),
                decision,
                self._options,
                self._clock(),
                redact=self._sessions.redact,
                terms=self._review_terms(attempt, chain, decision, state),
                is_known=lambda policy: self._sessions.rules_before(within, policy) is not None,
            )
        self._sessions.note_review(call.origin.session)
        return replace(decision, review=review.id, advice=review_advice(review))

    def _review_terms(self, attempt: Attempt, chain: Chain, decision: Decision, state: SessionState) -> ReviewTerms:
        rules = chain.rules_by_name(attempt.agent)
        matched = [match.rule for match in decision.matches if not match.shadow and match.then is not _ALLOW]
        paused_by = {name: rules[name] for name in matched if name in rules}
        above = self._ancestors(attempt, state)
        hashes = sorted(_rule_hash(policy, rule) for policy, rule in paused_by.values())
        return ReviewTerms(
            needs=needed_approvals((name, rule) for name, (_, rule) in paused_by.items()),
            above=above,
            bound_to=short_digest([hashes, sorted(above)] if above else hashes),
        )

    def _ancestors(self, attempt: Attempt, state: SessionState) -> tuple[str, ...]:
        """The agents that stand above the one of the attempt, or may."""
        stated, possible = lineage(attempt, state.runs, state.above, self._options.max_depth)
        return (*possible, *stated)

    def _decide_resumed(
        self,
        attempt: Attempt,
        call: ToolCall,
        review_id: str,
        chain: Chain,
        transaction: Transaction | None,
        state: SessionState,
    ) -> Decision:
        """A call that was paused. It is not counted as a new attempt, unless the person chose another tool, which
        nobody has attempted yet. Every rule judges it as of now; a person overrides rules that pause, and no others.
        The approval is spent when the call may run."""
        with self._sessions.review_transaction(transaction, call.origin.session) as within:
            review, problem = approved_review(within, review_id, attempt, self._clock())
            if review is None:
                return replace(block(self._policy, "review", problem), review=review_id)
            new_above = [name for name in self._ancestors(attempt, state) if name not in review.above]
            if new_above:
                why = f"`{new_above[0]}` stands above its agent, and did not when the call was paused"
                return _void(block(self._policy, "review", why), review_id)
            before: Collection[str] | None = None
            if review.policy != self._policy:
                before = self._sessions.rules_before(within, review.policy)
                if before is None:
                    return _void(block(self._policy, "review", _OTHER_RULES), review_id)
            if review.tool != call.name:
                count_attempt(chain.judging, state, call)
            stopped = self._recheck_approved(attempt, call, review, chain, before, within, state)
            if stopped is not None:
                return stopped
            spend(within, review, self._clock())
        reserve_call(chain, state, call)
        return Decision(action=_ALLOW, decided_by="review", reason="approved", review=review_id, policy=self._policy)

    def _recheck_approved(
        self,
        attempt: Attempt,
        call: ToolCall,
        review: ReviewRecord,
        chain: Chain,
        before: Collection[str] | None,
        within: Transaction,
        state: SessionState,
    ) -> Decision | None:
        """Why the call may not run, though it was approved. `before`: the hashes of the rules at the time of the
        review, if they have changed."""
        matches = [
            m for m in judge_approved(chain, state, call, self._on_error) if not m.shadow and m.then is not _ALLOW
        ]
        if not chain.can_pause:
            matches = [_make_blocking(match) for match in matches]
        stops = [match for match in matches if match.then is not Action.PAUSE]
        best = strictest(stops, shadow=False)
        if best is not None:
            stopped = block(self._policy, best.rule, best.reason or best.message)
            return replace(stopped, action=best.then, matches=tuple(stops), review=review.id)
        rules = chain.rules_by_name(attempt.agent)
        paused_by = {match.rule: rules[match.rule] for match in matches}
        if before is not None:
            new = [m for m in matches if _rule_hash(*paused_by[m.rule]) not in before]
            if new:
                why = f"`{new[0].rule}` is new, or has changed since the call was approved"
                return replace(_void(block(self._policy, "review", why), review.id), matches=tuple(new))
        needs = needed_approvals((name, rule) for name, (_, rule) in paused_by.items())
        pending = ask_more(within, review, needs, self._clock())
        if pending is None:
            return None
        why = "not everybody whom the rules demand has approved the call"
        paused = replace(block(self._policy, "review", why), action=Action.PAUSE, matches=tuple(matches))
        return replace(paused, review=review.id, advice=review_advice(pending))


def _judged_attempt(attempt: Attempt, call: ToolCall) -> Attempt:
    """The attempt with the arguments that are judged."""
    return attempt if attempt.arguments is None else replace(attempt, arguments=call.arguments)


def _hash(call: ToolCall) -> str:
    """The call, whichever rules deny it: the breaker counts how often an agent repeats it."""
    return action_hash(call.name, call.arguments, call.origin.agent)


def _rule_hash(policy: CompiledPolicy, rule: GuardRule) -> str:
    return policy.rule_hashes[rule.rule.id]


def _void(decision: Decision, review: str) -> Decision:
    """The approval was for other rules, and a person can give another."""
    return replace(decision, review=review, advice="attempt the call again: it needs a new approval")


def _check_listed(attempt: Attempt, chain: Chain) -> None:
    if not chain.policies:
        whom = "an agent without a name" if attempt.agent is None else f"the agent `{attempt.agent}`"
        raise NotListed("agent", f"there are no rules for {whom}")
    if chain.unknown is not None:
        raise NotListed("agent", f"there are no rules for the agent `{chain.unknown}`, which called this one")
    if chain.refused is not None:
        raise NotListed("sub-agents", chain.refused)
    for tools in chain.allowed:
        if attempt.tool not in tools:
            raise NotListed("allowlist", f"`{attempt.tool}` is not a tool of this agent")


def _make_blocking(match: Match) -> Match:
    """The match of an ancestor's rule as a block, for an agent in request mode, for which no person can be asked."""
    if match.then is not Action.PAUSE:
        return match
    why = f"{match.reason or match.message}, and nobody can be asked in `request` mode"
    return replace(match, then=Action.BLOCK, reason=why)


def _add_notes(decision: Decision, chain: Chain, state: SessionState) -> Decision:
    return replace(decision, blind=chain.blind(state.fed), notes=_notes(chain, state))


def _notes(chain: Chain, state: SessionState) -> tuple[str, ...]:
    return (*chain.notes, _AFRESH) if state.afresh else chain.notes


def _counters(chain: Chain, state: SessionState, call: ToolCall) -> dict[str, int]:
    shown: dict[str, int] = {}
    for policy in chain.counting:
        shown |= policy.counters(state.of(policy).attempts.states_of(call.origin.session), call)
    return shown
