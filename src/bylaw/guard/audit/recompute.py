"""Row after row through the same guard, and what it says compared with what is written.

What a row records of the world is taken as it is: attempts, results, what people answered, which switches were on. What
the guard made of it is made again. A row that lacks what would be needed is left out, with the reason, and so is
everything in its session that may depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bylaw.engine.predicates import Told
from bylaw.guard.audit import following
from bylaw.guard.audit.book import Book
from bylaw.guard.audit.comparing import Comparing
from bylaw.guard.audit.model import AuditReport
from bylaw.guard.audit.rows import OBSERVED, attempt_of, event_of
from bylaw.guard.audit.said import OtherPredicates, truths_of
from bylaw.guard.audit.sessions import Held, Replayed, Shelf
from bylaw.guard.decide.attempts import action_hash
from bylaw.guard.decide.options import Options
from bylaw.guard.decide.tree import Chain
from bylaw.guard.decide.truths import looking_at
from bylaw.guard.decision import Attempt
from bylaw.guard.guard import Guard
from bylaw.guard.stores.ports import AuditRow, GuardStore
from bylaw.model.guarding import GuardPolicy
from bylaw.model.verdict import Verdict

MOST_GUARDS = 256
"""guards put together at once: each set of rules and options has its own"""
_PRUNED = "rows of its session were forgotten by pruning"
_STRANGE = "the row is not as a guard writes it"
_OTHERS_ASKED = "what was said of arguments that are not written down is not what its rules ask"
_UNWRITTEN = "the attempt could not be written down in full"
_NO_SCHEMAS = "the tool's schema refused it, and was not given or cannot be asked again"


class Recompute:
    def __init__(
        self,
        report: AuditReport,
        policies: Mapping[str, Sequence[GuardPolicy]],
        *,
        store: GuardStore,
        tool_schemas: Mapping[str, Any] | None = None,
    ) -> None:
        """`store` is an empty one, for guards that write nothing."""
        self._report, self._policies = report, policies
        self._compare = Comparing(report)
        self._store, self._schemas = store, tool_schemas
        self._guards: dict[tuple[str, str], Guard] = {}
        self._shelf, self._book = Shelf(), Book()
        self._switches: dict[str, str] = {}
        self._now = 0.0
        self._pruned = False
        """whether the chain does not begin with its first row"""
        self._steps: dict[str, Callable[[AuditRow, Held, Guard], None]] = {
            "decision": self._decision,
            "taken": self._taken,
            "result": self._result,
            "release": self._release,
            "run": self._run,
            "session": self._session,
            **dict.fromkeys(OBSERVED, self._observed),
        }

    def step(self, row: AuditRow) -> None:
        kind = row.data.get("kind")
        self._report.decisions += kind == "decision"
        self._now = row.at
        try:
            if kind == "anchor":
                self._pruned = True
            elif kind == "switch":
                self._switch(row.data)
            elif kind == "review":
                self._book.tell(row.data)
            elif kind in self._steps:
                self._in_session(row, self._steps[kind])
        except OtherPredicates:
            self._lose(row, _OTHERS_ASKED)
        except Exception:  # whoever has edited a row may have put anything there
            self._lose(row, _STRANGE)

    def _in_session(self, row: AuditRow, step: Callable[[AuditRow, Held, Guard], None]) -> None:
        data, held = row.data, self._held(row)
        if data.get("late"):  # no state has moved: its transaction was undone
            self._leave_out(row, f"it was not judged: `{data['decision']['decided_by']}`")
            return
        policy = data["decision"]["policy"] if data["kind"] == "decision" else data["policy"]
        if held.lost is None and policy not in self._policies:
            held.lost = f"the rules {policy[:19]}… were not given"
        if held.lost is not None:
            self._leave_out(row, held.lost)
            return
        step(row, held, self._guard(policy, data.get("options", {})))

    def _held(self, row: AuditRow) -> Held:
        key = row.data["session"]
        if row.data.get("first"):
            return self._shelf.begin(key)
        begins = self._pruned and not self._shelf.known(key)
        held = self._shelf.get(key)
        if begins:
            held.lost = _PRUNED
        return held

    def _guard(self, policy: str, options: dict[str, Any]) -> Guard:
        key = policy, json.dumps(options, sort_keys=True) if options else ""
        guard = self._guards.get(key)
        if guard is None:
            if len(self._guards) >= MOST_GUARDS:
                self._guards.clear()
            guard = self._guards[key] = Guard(
                self._policies[policy],
                store=self._store,
                durable=False,
                options=msgspec.convert(options, Options),
                tool_schemas=self._schemas,
                clock=lambda: self._now,
                sessions=lambda policies, hash: Replayed(policies, hash, self._shelf, self._book, self._store),
            )
            guard.use_switches(self._switches)
        return guard

    def _lose(self, row: AuditRow, reason: str) -> None:
        """What follows in this session may rest on a row that could not be taken."""
        self._leave_out(row, reason)
        session = row.data.get("session")
        if isinstance(session, str):
            held = self._shelf.get(session)
            held.lost = held.lost or reason

    def _leave_out(self, row: AuditRow, reason: str) -> None:
        if row.data.get("kind") == "decision":
            self._report.leave_out(row.seq, reason)

    # -- decisions ------------------------------------------------------------------------------------------------

    def _decision(self, row: AuditRow, held: Held, guard: Guard) -> None:
        data, written = row.data, row.data["decision"]
        if data.get("unwritten"):
            if written.get("denial") != "structural":
                held.lost = _UNWRITTEN
            self._leave_out(row, _UNWRITTEN)
            return
        attempt = self._known(attempt_of(data), data, held, guard)
        if self._refused_by_schema(written, data):
            held.state.deny(action_hash(attempt.tool, attempt.arguments, attempt.agent, guard.policy))
            self._leave_out(row, _NO_SCHEMAS)
            return
        decision = guard.decide(attempt, review=data.get("resumes"))
        self._remember_review(written, attempt, held, guard)
        unfollowed = self._unfollowed(attempt, held, guard)
        if unfollowed:
            self._compare.without(unfollowed, row, decision, held)
        else:
            self._compare.whole(row, decision, held)

    def _known(self, attempt: Attempt, data: Mapping[str, Any], held: Held, guard: Guard) -> Attempt:
        """The attempt with what is known of arguments that are not written down."""
        gone = data.get("redacted")
        if gone is None:
            return attempt
        chain = self._chain(attempt, held, guard)
        places = gone["arguments"]
        truths = truths_of(looking_at(chain, attempt.tool, places), data)
        for policy in chain.reserving:
            rules = following.looking_at_arguments(policy, attempt.tool, places)
            held.unfollowed.update(f"{policy.hash}/{id}" for id in rules)
        if isinstance(attempt.arguments, dict):
            attempt = replace(attempt, arguments=Told(attempt.arguments, truths))
        if "decision" in data:
            self._remember_repeats(attempt, data["decision"], held, guard)
        return attempt

    def _remember_repeats(self, attempt: Attempt, written: Mapping[str, Any], held: Held, guard: Guard) -> None:
        """Two calls may differ in what is not written alone, so how often this one was denied is taken from the row."""
        digest = action_hash(attempt.tool, attempt.arguments, attempt.agent, guard.policy)
        held.state.denied.pop(digest, None)
        if written.get("repeats"):
            held.state.denied[digest] = written["repeats"]

    def _chain(self, attempt: Attempt, held: Held, guard: Guard) -> Chain:
        state = self._shelf.for_guard(attempt.session, guard.policy, guard.policies.all).state
        return guard.policies.chain(attempt, state)

    def _refused_by_schema(self, written: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        by_schema = written["decided_by"] == "arguments" and "do not fit the tool's schema" in written["reason"]
        return by_schema and (self._schemas is None or "redacted" in data)

    def _remember_review(self, written: Mapping[str, Any], attempt: Attempt, held: Held, guard: Guard) -> None:
        if written["action"] == "pause" and written["review"] is not None:
            agent = attempt.agent or held.state.runs.get(attempt.run or "", (None, None))[0]
            self._book.paused(
                written["review"],
                tool=attempt.tool,
                arguments=attempt.arguments,
                agent=agent,
                policy=guard.policy,
            )

    # -- what is written, and what follows ------------------------------------------------------------------------

    def _unfollowed(self, attempt: Attempt, held: Held, guard: Guard) -> set[str]:
        """Rules about this call whose memory is not known, as decisions name them."""
        if not held.unfollowed:
            return set()
        found: set[str] = set()
        for policy in self._chain(attempt, held, guard).judging:
            prefix = "" if policy.agent in (None, attempt.agent) else f"{policy.agent}/"
            ids = (policy.calls.rules[index].id for index, _, _ in policy.calls.calls[attempt.tool].session)
            found.update(prefix + id for id in ids if f"{policy.hash}/{id}" in held.unfollowed)
        return found

    # -- everything else ------------------------------------------------------------------------------------------

    def _taken(self, row: AuditRow, held: Held, guard: Guard) -> None:
        if row.data.get("unwritten"):
            held.lost = _UNWRITTEN
        else:
            guard.take(self._known(attempt_of(row.data), row.data, held, guard))

    def _result(self, row: AuditRow, held: Held, guard: Guard) -> None:
        data = row.data
        if data.get("redacted"):
            call = held.state.open.get(data["result_of"])
            self._unfollow(held, guard, lambda p: following.looking_at_result(p, None if call is None else call.name))
        found = guard.record(
            data["result_of"], data["content"], session=data["session"], is_error=data["is_error"], ts=row.at
        )
        self._found(row, found, held)

    def _observed(self, row: AuditRow, held: Held, guard: Guard) -> None:
        event = event_of(row.data)
        if event is None:
            held.lost = f"a `{row.data['kind']}` was observed, which is not written down in full"
            return
        told, gone = event, bool(row.data.get("redacted"))
        self._unfollow(held, guard, lambda p: following.looking_at_event(p, told, redacted=gone))
        self._found(row, guard.observe(event), held)

    def _unfollow(self, held: Held, guard: Guard, rules: Callable[[Any], Any]) -> None:
        for policy in guard.policies.all:
            held.unfollowed.update(f"{policy.hash}/{id}" for id in rules(policy))

    def _found(self, row: AuditRow, found: Sequence[Verdict], held: Held) -> None:
        """What broke afterwards. Where a rule cannot be followed, its findings are not known either."""
        if held.unfollowed:
            return
        written = [[one["rule"], one["outcome"]] for one in row.data["found"]]
        again = [[verdict.rule.id, verdict.outcome.value] for verdict in found]
        if written != again:
            self._compare.differs(row, "found", written, again, held)

    def _release(self, row: AuditRow, held: Held, guard: Guard) -> None:
        guard.release(row.data["call_id"], session=row.data["session"])

    def _run(self, row: AuditRow, held: Held, guard: Guard) -> None:
        data = row.data
        guard.start_run(data["session"], data["run"], agent=data["agent"], parent_run=data["parent_run"])

    def _session(self, row: AuditRow, held: Held, guard: Guard) -> None:
        data = row.data
        if data["how"] == "terminated":
            guard.terminate(data["session"], data["why"])
        else:
            self._found(row, guard.end_session(data["session"], complete=data["why"] is None), held)
            held.unfollowed.clear()  # what the rules remembered is gone, so it is known again

    def _switch(self, data: Mapping[str, Any]) -> None:
        if data["on"]:
            self._switches[data["agent"]] = data["why"]
        else:
            self._switches.pop(data["agent"], None)
