"""Each row through the same guard; its decision is compared with the recorded one.

Facts are taken from the row: attempts, results, answers of people, switches. Decisions are made again. A row that lacks
a needed value is left out, with the reason, and so is everything in its session that may depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.engine.matching import RedactedArguments
from bylaw.guard.audit.report import AuditFinding, AuditReport
from bylaw.guard.audit.sessions import MARKER, AuditSession, AuditSessions, RecordedReviews, ReplayedSessions
from bylaw.guard.decide.attempts import CallIdUsed
from bylaw.guard.decide.chain import Chain
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.decide.policy import CompiledPolicy, rules_content, stored_rule_hashes
from bylaw.guard.decide.records import attempt_of, decision_row, recorded_event
from bylaw.guard.decide.redaction import (
    predicate_digest,
    recorded_key,
    rules_on_arguments,
    rules_on_event,
    rules_on_places,
    rules_on_result,
    unread_places,
)
from bylaw.guard.model import Attempt, Decision, Options
from bylaw.guard.policies import drop_repeated
from bylaw.guard.reviews import OTHER_CALL, action_hash
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.records import AuditRow
from bylaw.model.canonical import prepared
from bylaw.model.condition import ArgumentIs
from bylaw.model.rule import Action, GuardPolicy
from bylaw.model.verdict import Verdict

MOST_GUARDS = 256
"""guards in memory: one for each set of rules and options"""
COMPARED = ("action", "decided_by", "matched", "would", "denial", "repeats", "counters", "blind")
OBSERVED = frozenset(
    {"request", "response", "message", "session_start", "session_end", "annotation", "tool_call", "tool_result"}
)
"""kinds of rows with an event that the host has observed"""
_PRUNED = "rows of its session were pruned"
_STRANGE = "the row is not one that a guard writes"
_OTHER_PREDICATES = "the recorded predicates on redacted arguments are not those of its rules"
_UNWRITTEN = "the attempt could not be written down in full"  # a key of the JSON document
_NO_SCHEMAS = "the tool's schema refused it, and the schema was not given or cannot be applied again"
_DROPPED = "they were never written, since the store could not be written for too long"
_HIDDEN = "it was refused as another call than the approved one, and the difference is redacted"
_DIFFERS = "an earlier verdict of its session differs"


class OtherPredicates(Exception):
    """The row holds the truth of other predicates than those of the rule."""


class Recompute:
    def __init__(
        self,
        report: AuditReport,
        policies: Mapping[str, Sequence[GuardPolicy]],
        *,
        tool_schemas: Mapping[str, Any] | None = None,
    ) -> None:
        self._report, self._policies, self._schemas = report, policies, tool_schemas
        self._guards: dict[tuple[str, str], BaseGuard] = {}
        self._sessions, self._reviews = AuditSessions(self._rules_before), RecordedReviews()
        self._switches: dict[str, str] = {}
        self._now = 0.0
        self._pruned = False
        """whether the chain does not begin with its first row"""
        self._steps: dict[str, Callable[[AuditRow, AuditSession, BaseGuard], None]] = {
            "decision": self._decision,
            "taken": self._past_call,
            "result": self._result,
            "release": self._release,
            "run": self._run,
            "session": self._session_end,
            **dict.fromkeys(OBSERVED, self._observation),
        }

    def step(self, row: AuditRow) -> None:
        kind = row.data.get("kind")
        self._report.decisions += kind == "decision"
        self._now = row.at
        try:
            if kind == "anchor":
                self._pruned = True
            elif kind == "dropped":
                self._report.leave_out(row.seq, _DROPPED, row.data["decisions"] + row.data["changes"])
            elif kind == "switch":
                self._switch(row.data)
            elif kind == "review":
                self._reviews.read(row.data)
            elif kind == "session" and "policy" not in row.data:  # ended by an operator, whom no rules concern
                self._session(row).record.terminated = row.data["why"]
            elif kind in self._steps:
                self._in_session(row, self._steps[kind])
        except OtherPredicates:
            self._lose(row, _OTHER_PREDICATES)
        except Exception:  # an edited row may hold anything
            self._lose(row, _STRANGE)

    def _in_session(self, row: AuditRow, step: Callable[[AuditRow, AuditSession, BaseGuard], None]) -> None:
        data, session = row.data, self._session(row)
        if data.get("late"):  # no state has changed: the transaction was rolled back
            self._leave_out(row, f"it was not judged: `{data['decision']['decided_by']}`")
            return
        policy = data["decision"]["policy"] if data["kind"] == "decision" else data["policy"]
        if session.lost is None and policy not in self._policies:
            session.lost = f"the rules {policy[:19]}… were not given"
        if session.lost is not None:
            self._leave_out(row, session.lost)
            return
        guard = self._guard(policy, data.get("options", {}))
        step(row, self._sessions.for_guard(data["session"], policy, guard.policies.all), guard)

    def _rules_before(self, policy: str) -> Collection[str] | None:
        """A guard finds only rules in its store that can be stored."""
        known = self._policies.get(policy)
        content = None if known is None else rules_content(drop_repeated(known))
        return None if content is None else stored_rule_hashes(content, policy)

    def _session(self, row: AuditRow) -> AuditSession:
        key = row.data["session"]
        if row.data.get("first"):
            return self._sessions.begin(key)
        is_pruned = self._pruned and not self._sessions.is_known(key)
        session = self._sessions.get(key)
        if is_pruned:
            session.lost = _PRUNED
        return session

    def _guard(self, policy: str, options: dict[str, Any]) -> BaseGuard:
        key = policy, json.dumps(options, sort_keys=True) if options else ""
        guard = self._guards.get(key)
        if guard is None:
            if len(self._guards) >= MOST_GUARDS:
                self._guards.clear()
            guard = self._guards[key] = BaseGuard(
                self._policies[policy],
                store=MemoryStore(),
                durable=False,
                options=msgspec.convert(options, prepared(Options)),
                tool_schemas=self._schemas,
                clock=lambda: self._now,
                sessions=lambda policies, hash: ReplayedSessions(policies, hash, self._sessions, self._reviews),
            )
            guard.use_switches(self._switches)
        return guard

    def _lose(self, row: AuditRow, reason: str) -> None:
        """Later rows of the session may depend on a row that could not be read."""
        self._leave_out(row, reason)
        key = row.data.get("session")
        if isinstance(key, str):
            session = self._sessions.get(key)
            session.lost = session.lost or reason

    def _leave_out(self, row: AuditRow, reason: str) -> None:
        if row.data.get("kind") == "decision":
            self._report.leave_out(row.seq, reason)

    # -- decisions ------------------------------------------------------------------------------------------------

    def _decision(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        data, written = row.data, row.data["decision"]
        if data.get("unwritten"):
            if written.get("denial") != "structural":
                session.lost = _UNWRITTEN
            self._leave_out(row, _UNWRITTEN)
            return
        attempt = self._attempt(data, session, guard)
        by_schema = written["decided_by"] == "arguments" and "do not fit the tool's schema" in written["reason"]
        if by_schema and (self._schemas is None or "redacted" in data):
            session.state.deny(action_hash(attempt.tool, attempt.arguments, _agent(data, attempt)))
            self._leave_out(row, _NO_SCHEMAS)
            return
        if self._is_other_call(data, attempt):
            with self._reviews.without(data["resumes"]):
                self._compare(row, guard.decide(attempt, review=data["resumes"]), session, set(), doubt=_HIDDEN)
            return
        decision = guard.decide(attempt, review=data.get("resumes"))
        if written["action"] == "pause" and written["review"] is not None:
            self._reviews.set_action(written["review"], decision.review, is_redacted="redacted" in data)
        self._compare(row, decision, session, self._rules_with_unknown_state(attempt, session, guard))

    def _is_other_call(self, data: Mapping[str, Any], attempt: Attempt) -> bool:
        """Whether the guard has refused to resume it as another call than the approved one, and the difference may lie
        in redacted values."""
        written, review = data["decision"], data.get("resumes")
        if review is None or (written["decided_by"], written["reason"]) != ("review", OTHER_CALL):
            return False
        return self._reviews.hides_a_difference(review, attempt, is_redacted="redacted" in data)

    def _attempt(self, data: Mapping[str, Any], session: AuditSession, guard: BaseGuard) -> Attempt:
        """The attempt, with the truth of the predicates on arguments that were redacted."""
        recorded = data["attempt"]
        call_id = recorded.get("call_id") or data.get("call_id") or data["decision"]["call_id"]
        attempt = attempt_of(data, session=data["session"], ts=recorded["ts"], call_id=call_id)
        redacted = data.get("redacted")
        if redacted is None:
            if session.state.denied and MARKER in json.dumps(attempt.arguments):  # may look like a redacted call
                self._read_denials(data, attempt, session)
            return attempt
        chain, places = self._chain(attempt, guard), redacted["arguments"]
        truths = recorded_truths(rules_on_places(chain, attempt.tool, places), data)
        unread = unread_places(guard.policies.all, attempt.tool, places)
        for policy in chain.reserving:
            rules = rules_on_arguments(policy, attempt.tool, unread)
            session.unfollowed.update(f"{policy.hash}/{id}" for id in rules)
        if isinstance(attempt.arguments, dict):
            attempt = replace(attempt, arguments=RedactedArguments(attempt.arguments, truths))
        self._read_denials(data, attempt, session)
        return attempt

    def _read_denials(self, data: Mapping[str, Any], attempt: Attempt, session: AuditSession) -> None:
        """Calls may differ only in redacted values, so it is read how often this one was denied before."""
        if "decision" in data:
            digest = action_hash(attempt.tool, attempt.arguments, _agent(data, attempt))
            session.state.denied.pop(digest, None)
            if data["decision"].get("repeats"):
                session.state.denied[digest] = data["decision"]["repeats"]

    def _chain(self, attempt: Attempt, guard: BaseGuard) -> Chain:
        state = self._sessions.for_guard(attempt.session, guard.policy, guard.policies.all).state
        return guard.policies.chain(attempt, state.runs, state.above)

    def _rules_with_unknown_state(self, attempt: Attempt, session: AuditSession, guard: BaseGuard) -> set[str]:
        """Names of the rules about this call whose state is unknown."""
        if not session.unfollowed:
            return set()
        found: set[str] = set()
        for policy in self._chain(attempt, guard).judging:
            ids = (policy.calls.rules[index].id for index, _, _ in policy.calls.calls[attempt.tool].session)
            unknown = (id for id in ids if f"{policy.hash}/{id}" in session.unfollowed)
            found.update(policy.rule_name(id, attempt.agent) for id in unknown)
        return found

    def _compare(
        self, row: AuditRow, decision: Decision, session: AuditSession, unfollowed: set[str], doubt: str | None = None
    ) -> None:
        """`doubt`: why it counts as left out even if it is the same."""
        written, again = row.data["decision"], decision_row(decision)
        if not unfollowed:
            for name in COMPARED:
                if written.get(name) != again.get(name):
                    self._differs(row, name, written.get(name), again.get(name), session)
                    return
            if doubt is None:
                self._report.recomputed += 1
            else:
                self._report.leave_out(row.seq, doubt)
            return
        before, after = ([rule for rule in one["matched"] if rule not in unfollowed] for one in (written, again))
        if before != after:
            self._differs(row, "matched", before, after, session)
            return
        reason = _unknown(unfollowed)
        self._report.leave_out(row.seq, reason)
        if written["action"] != again["action"]:
            session.lost = reason

    def _differs(self, row: AuditRow, name: str, written: Any, again: Any, session: AuditSession) -> None:
        """After a difference, nothing more can be recomputed in the session."""
        session.lost = _DIFFERS
        self._report.add(
            AuditFinding(
                seq=row.seq,
                kind="verdict",
                message=f"its `{name}` does not follow from the rows before it",
                expected=_describe_value(again),
                found=_describe_value(written),
                session=row.data["session"],
            )
        )

    # -- other rows -----------------------------------------------------------------------------------------------

    def _past_call(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        if row.data.get("unwritten"):
            session.lost = _UNWRITTEN
            return
        attempt = self._attempt(row.data, session, guard)
        if "matches" not in row.data:
            guard.record_past_call(attempt)
            return
        unfollowed = self._rules_with_unknown_state(attempt, session, guard)
        written = [[one["rule"], one["then"]] for one in row.data["matches"] if one["rule"] not in unfollowed]
        was_over = session.record.terminated is not None
        try:
            _, matches = guard.judge_past_call(attempt)
        except CallIdUsed as why:
            self._differs(row, "matches", written, str(why), session)
            return
        again = [[match.rule, match.then.value] for match in matches if match.rule not in unfollowed]
        ended, ends = row.data.get("terminated"), None if was_over else session.record.terminated
        if written != again:
            self._differs(row, "matches", written, again, session)
        elif ended != ends and unfollowed.isdisjoint((ended, ends)):
            self._differs(row, "terminated", ended, ends, session)
        elif ended != ends:
            session.lost = _unknown(unfollowed)

    def _result(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        data = row.data
        if data.get("redacted"):
            call = session.state.open.get(data["result_of"])
            tool = None if call is None else call.name
            self._unfollow(session, guard, lambda policy: rules_on_result(policy, tool))
        decided = Decision(action=Action.ALLOW, call_id=data["result_of"], session=data["session"])
        found = guard.record(decided, data["content"], is_error=data["is_error"], ts=row.at)
        self._compare_findings(row, found, session)

    def _observation(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        event = recorded_event(row.data, row.data["session"], row.data["at"])
        if event is None:
            session.lost = f"a `{row.data['kind']}` was observed, which is not recorded in full"
            return
        is_redacted = bool(row.data.get("redacted"))
        self._unfollow(session, guard, lambda policy: rules_on_event(policy, event, redacted=is_redacted))
        self._compare_findings(row, guard.observe(event), session)

    def _unfollow(
        self, session: AuditSession, guard: BaseGuard, rules: Callable[[CompiledPolicy], Iterable[str]]
    ) -> None:
        for policy in guard.policies.all:
            session.unfollowed.update(f"{policy.hash}/{id}" for id in rules(policy))

    def _compare_findings(self, row: AuditRow, found: Sequence[Verdict], session: AuditSession) -> None:
        """Rules that an event broke. If the state of a rule is unknown, its findings are unknown too."""
        if session.unfollowed:
            return
        written = [[one["rule"], one["outcome"]] for one in row.data["found"]]
        again = [[verdict.rule.id, verdict.outcome.value] for verdict in found]
        if written != again:
            self._differs(row, "found", written, again, session)

    def _release(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        guard.release(row.data["call_id"], session=row.data["session"])

    def _run(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        data = row.data
        guard.start_run(data["session"], data["run"], agent=data["agent"], parent_run=data["parent_run"])

    def _session_end(self, row: AuditRow, session: AuditSession, guard: BaseGuard) -> None:
        data = row.data
        if data["how"] == "terminated":
            guard.terminate(data["session"], data["why"])
        else:
            self._compare_findings(row, guard.end_session(data["session"], complete=data["why"] is None), session)
            session.unfollowed.clear()  # the state of the rules was reset, so it is known again

    def _switch(self, data: Mapping[str, Any]) -> None:
        if data["on"]:
            self._switches[data["agent"]] = data["why"]
        else:
            self._switches.pop(data["agent"], None)


def _agent(data: Mapping[str, Any], attempt: Attempt) -> str | None:
    """The agent of an attempt, which its run may have named."""
    agent: str | None = data["decision"].get("agent", attempt.agent)
    return agent


def _unknown(unfollowed: Iterable[str]) -> str:
    names = ", ".join(f"`{rule}`" for rule in sorted(unfollowed))
    return f"{names} looked at values that are not recorded"


def _describe_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def recorded_truths(
    rules: Iterable[tuple[CompiledPolicy, str, Sequence[ArgumentIs]]], data: Mapping[str, Any]
) -> dict[ArgumentIs, bool | None]:
    """The recorded truth of the predicates on redacted arguments. A rule without an entry did not influence the
    verdict. Raises OtherPredicates."""
    truths_by_rule, digests_by_rule = data["redacted"]["truths"], data.get("asked", {})
    found: dict[ArgumentIs, bool | None] = {}
    for policy, id, leaves in rules:
        key = recorded_key(policy, id)
        if key not in truths_by_rule:
            continue
        by_digest = dict(zip(digests_by_rule.get(key, ()), truths_by_rule[key], strict=False))
        wanted = {leaf: predicate_digest(leaf) for leaf in leaves}
        if not by_digest.keys() >= set(wanted.values()):
            raise OtherPredicates
        found.update({leaf: by_digest[digest] for leaf, digest in wanted.items()})
    return found
