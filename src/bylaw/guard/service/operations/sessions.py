"""Sessions: the tree of their runs, their calls, their counters, who ended them, and which key may use them.

Agents use their own sessions, and those in which an agent above has announced them. The agent that has begun a session
owns it: only its keys end it. An agent that was announced is known until the session ends, speaks of its own calls
only, and cannot say that it stands elsewhere than it was announced.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from bylaw.guard.decide.chain import Policies, ancestors
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import load
from bylaw.guard.guard import Guard
from bylaw.guard.incidents.event_rows import Rules
from bylaw.guard.incidents.fold import counters_of
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.service.auth import ANY, Principal
from bylaw.guard.service.errors import Conflict, Forbidden, NotFound
from bylaw.guard.service.operations.record import DecisionView, decision_view, newest_events
from bylaw.guard.service.rule_versions import RuleView, views_of
from bylaw.guard.stores.records import EventRow, SessionRecord
from bylaw.model.events import ToolCall

SessionStatus: TypeAlias = Literal["open", "ended", "terminated"]
MOST_LISTED = 20_000
"""events whose sessions are listed"""
MOST_EVENTS = 5_000
"""events of one session that are read for one answer"""
_FIRST = 10
"""events among which one names the agent: a review stands before the decision that has opened it"""


class CallView(Struct, kw_only=True):
    """One attempt and what became of it."""

    decision: DecisionView
    result_at: float | None = None
    result: Any = None
    is_error: bool | None = None
    released: bool = False
    """allowed, and never made"""
    found: tuple[dict[str, Any], ...] = ()
    """rules that the result has broken"""


class RunView(Struct, kw_only=True):
    """One run of an agent, with the runs below it."""

    run: str | None
    """None: calls that name no run"""
    agent: str | None = None
    parent_run: str | None = None
    started_at: float
    last_at: float
    calls: list[CallView] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    """`rule: counter` → its value at the last attempt of the run: of the run, the session or a window"""
    below: list[RunView] = field(default_factory=list)


class SessionSummary(Struct, kw_only=True):
    session: str
    agents: list[str]
    first_at: float
    last_at: float
    attempts: int = 0
    denied: int = 0
    paused: int = 0
    status: SessionStatus = "open"
    ended_by: str | None = None
    """the rule, or what ended it in its place"""


class SessionView(Struct, kw_only=True):
    summary: SessionSummary
    terminated: str | None
    """why no further call of it may run"""
    tree: list[RunView]
    """runs without a parent, each with those below"""
    observations: list[dict[str, Any]]
    """what was said, as it was recorded"""
    open_calls: list[str]
    """ids of calls that may be running"""
    truncated: bool = False
    """whether it has more events than are shown"""


class Sessions:
    def __init__(self, guard: Guard, clock: Callable[[], float]) -> None:
        self._guard, self._store, self._clock = guard, guard.store, clock
        self._followed: tuple[Policies, Rules] | None = None
        """the rules in force, as the follow-up compiles them"""

    def list(
        self,
        *,
        status: SessionStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
    ) -> Sequence[SessionSummary]:
        """Sessions of the newest events, the most recently used first."""
        found: dict[str, SessionSummary] = {}
        for row in newest_events(self._store, most=MOST_LISTED):
            if row.session and row.kind in _KINDS:
                _add(found, row)
        wanted = (one for one in found.values() if status in (None, one.status))
        return [one for one in wanted if agent is None or agent in one.agents][:limit]

    def get(self, session: str) -> SessionView:
        key = self._guard.session_key(session)
        rows = list(self._store.events(session=key, limit=MOST_EVENTS + 1))
        if not rows:
            raise NotFound(f"there is no session `{session}`")
        truncated, rows = len(rows) > MOST_EVENTS, rows[:MOST_EVENTS]
        found: dict[str, SessionSummary] = {}
        for row in reversed(rows):
            if row.kind in _KINDS:
                _add(found, row)
        summary = found.get(key) or SessionSummary(session=key, agents=[], first_at=rows[0].at, last_at=rows[-1].at)
        record, state = self.state(key)
        if record.terminated is not None:
            summary.status = "terminated"
        return SessionView(
            summary=summary,
            terminated=record.terminated,
            tree=self._with_windows(key, _tree(rows), rows),
            observations=[{"seq": row.seq, **row.data} for row in rows if row.kind == "observation"],
            open_calls=list(state.open),
            truncated=truncated,
        )

    def _with_windows(
        self, key: str, tree: builtins.list[RunView], rows: builtins.list[EventRow]
    ) -> builtins.list[RunView]:
        """Adds the counters that only the follow-up evaluates, as its own fold counts them by the rules in force."""
        in_force = self._guard.policies
        if self._followed is None or self._followed[0] is not in_force:
            self._followed = in_force, Rules([compiled.policy for compiled in in_force.all])
        rules = self._followed[1]
        counted = counters_of(rules, key, rows) if rules.have_windows else {}
        waiting = [*tree]
        while waiting:
            run = waiting.pop()
            run.counters = counted.get(run.run, {}) | run.counters
            waiting += run.below
        return tree

    def state(self, key: str) -> tuple[SessionRecord, SessionState]:
        """The session as the guard would load it."""
        with self._store.transaction(key) as transaction:
            record = transaction.session(key)
        return record, load(key, record.state, self._guard.policies.all)

    def begun_by(self, session: str) -> tuple[bool, str | None]:
        """Whether there is such a session, and the agent that has begun it, if that is known."""
        rows = self._store.events(session=self._guard.session_key(session), limit=_FIRST)
        return bool(rows), next((agent for agent in map(_agent, rows) if agent is not None), None)

    def agent_of_call(self, session: str, call_id: str) -> str | None:
        """Whose call it is, if it was allowed and neither its result nor a release was reported; empty: no agent."""
        agent = None
        for row in self._store.events(session=self._guard.session_key(session), limit=MOST_EVENTS):
            view = decision_view(row)
            if view is not None and view.call_id == call_id:
                agent = (view.agent or "") if view.action == "allow" else None
            elif row.kind in ("release", "result") and call_id in (row.data.get("call_id"), row.data.get("result_of")):
                agent = None
        return agent

    def effective_rules(self, session: str, *, agent: str | None = None, run: str | None = None) -> Sequence[RuleView]:
        """The rules that apply to calls of this agent or run, those of its ancestors first."""
        _, state = self.state(self._guard.session_key(session))
        attempt = Attempt(tool="-", agent=agent, run=run, session=session)
        attempt = Attempt(tool="-", agent=state.agent_of(attempt), run=run, session=session)
        try:
            chain = self._guard.policies.chain(attempt, state.runs, state.above)
        except RefusedAttempt as why:
            raise NotFound(str(why)) from None
        return views_of([compiled.policy for compiled in chain.policies])

    def terminate(self, session: str, *, by: str, why: str = "") -> SessionView:
        """No further call of this session runs."""
        self._guard.terminate(session, f"{by}: {why}" if why else by)
        return self.get(session)


_KINDS = frozenset({"decision", "taken", "session", "run", "result", "observation"})


def _agent(row: EventRow) -> str | None:
    attempt = row.data.get("attempt")
    agent = attempt.get("agent") if isinstance(attempt, dict) else row.data.get("agent")
    return agent if isinstance(agent, str) else None


def _add(found: dict[str, SessionSummary], row: EventRow) -> None:
    """Count a row, the newest first: the first one that ends a session decides its status."""
    one = found.get(row.session)
    if one is None:
        one = found[row.session] = SessionSummary(
            session=row.session, agents=[], first_at=row.at, last_at=row.at, status="open"
        )
        how = row.data.get("how") if row.kind == "session" else None
        if how in ("ended", "terminated"):
            one.status = how
            one.ended_by = row.data.get("why")
    one.first_at, one.last_at = min(one.first_at, row.at), max(one.last_at, row.at)
    agent = _agent(row)
    if agent is not None and agent not in one.agents:
        one.agents.insert(0, agent)
    decision = row.data.get("decision")
    if row.kind == "decision" and isinstance(decision, dict):
        action = decision.get("action")
        one.attempts += 1
        one.denied += action in ("block", "terminate_session")
        one.paused += action == "pause"
        if action == "terminate_session" and one.status != "ended":
            one.status, one.ended_by = "terminated", decision.get("decided_by")
    if row.kind == "taken" and row.data.get("terminated") and one.status != "ended":
        one.status, one.ended_by = "terminated", row.data["terminated"]


def _tree(rows: list[EventRow]) -> list[RunView]:
    runs: dict[str | None, RunView] = {}
    calls: dict[str, CallView] = {}
    for row in rows:
        data = row.data
        if row.kind == "run":
            one = _run(runs, data.get("run"), row)
            one.agent, one.parent_run = data.get("agent") or one.agent, data.get("parent_run") or one.parent_run
        view = decision_view(row)
        if view is not None:
            one = _run(runs, view.run, row)
            one.agent, one.parent_run = one.agent or view.agent, one.parent_run or view.parent_run
            one.counters |= view.counters
            call = CallView(decision=view)
            one.calls.append(call)
            calls[view.call_id] = call
        elif row.kind == "result" and (call_id := str(data.get("result_of"))) in calls:
            call = calls[call_id]
            call.result_at, call.result, call.is_error = row.at, data.get("content"), data.get("is_error")
            call.found = tuple(data.get("found") or ())
        elif row.kind == "release" and (call_id := str(data.get("call_id"))) in calls:
            calls[call_id].released = True
    return _nest_runs(runs)


def _run(runs: dict[str | None, RunView], run: str | None, row: EventRow) -> RunView:
    one = runs.setdefault(run, RunView(run=run, started_at=row.at, last_at=row.at))
    one.last_at = max(one.last_at, row.at)
    return one


def _nest_runs(runs: dict[str | None, RunView]) -> list[RunView]:
    """A run whose parent is not known, or that stands below itself, stands at the top."""
    top = []
    for one in runs.values():
        parent, seen = one.parent_run, {one.run}
        while parent in runs and parent not in seen:
            seen.add(parent)
            parent = runs[parent].parent_run
        is_circle = parent in seen
        if one.parent_run in runs and one.parent_run is not None and not is_circle:
            runs[one.parent_run].below.append(one)
        else:
            top.append(one)
    return top


# -- which key may use which session -----------------------------------------------------------------------------------

MOST_KNOWN = 100_000
"""sessions that are known to belong to an agent"""


class NotOpen(Conflict):
    """The call is not one that the rules wait for."""


class SessionOwners:
    """Whose sessions are whose. Only owners are remembered: a session does not change hands, but its end makes it
    forget who was announced, in whichever worker that was."""

    def __init__(self, sessions: Sessions, guard: Guard) -> None:
        self._sessions, self._guard = sessions, guard
        self._allowed: dict[tuple[str, str], str] = {}
        """session and call → its agent, or an empty text"""
        self._owned: dict[tuple[str, str], None] = {}
        self._lock = threading.Lock()

    def agent(self, who: Principal, agent: str | None) -> str | None:
        """The agent that the key may name. Raises Forbidden."""
        if agent is None and len(who.agents) == 1 and ANY not in who.agents:
            return who.agents[0]
        if not who.is_for(agent):
            named = f"`{agent}`" if agent is not None else "a call without an agent"
            raise Forbidden(f"this key is not for {named}")
        return agent

    def check(self, who: Principal, session: str) -> bool:
        """Raises Forbidden for the session of another agent. Returns whether nobody has used it before."""
        is_new, is_owner = self._owner(who, session)
        if not is_new and not is_owner:
            state = self._state(session)
            announced = {agent for agent, _ in state.runs.values()} | set(state.above)
            if not any(who.is_for(agent) for agent in announced):
                raise Forbidden("this session belongs to another agent")
        return is_new

    def check_owner(self, who: Principal, session: str) -> bool:
        """As `check`, and Forbidden also for an agent that was only announced."""
        is_new = self.check(who, session)
        if not is_new and not self._owner(who, session)[1]:
            raise Forbidden("only the agent that has begun a session ends it")
        return is_new

    def check_place(
        self, who: Principal, session: str, agent: str | None, parent_run: str | None, above: Sequence[str] = ()
    ) -> None:
        """Agents and runs that a call names above its own must be of this key, or announced above it: an agent does not
        choose by whose rules it is judged. A run that nobody has announced the guard refuses. Raises Forbidden."""
        if ANY in who.agents or (parent_run is None and not above):
            return
        state = self._state(session)
        known = state.above.get(agent or "", ())
        parent = state.runs.get(parent_run or "", (None, None))[0]
        for name in (*above, *([] if parent is None else [parent])):
            if not who.is_for(name) and name not in known:
                raise Forbidden(f"`{name}` has not announced this agent in the session")

    def check_run(
        self, who: Principal, session: str, run: str, agent: str | None, parent_run: str | None
    ) -> str | None:
        """The agent of a run that a key may announce: one of its own, where it stands; or any other below a run of its
        own. Raises Forbidden."""
        is_new = self.check(who, session)
        if agent is None or is_new or parent_run is None or who.is_for(agent):
            agent = self.agent(who, agent)
            self.check_place(who, session, agent, parent_run)
            is_below = parent_run is None and not is_new and not self._owner(who, session)[1]
            if is_below and run not in self._state(session).runs:
                raise Forbidden("an agent that was announced names the run above: `parent_run`")
            return agent
        runs = self._state(session).runs
        over = (runs.get(parent_run, (None, None))[0], *ancestors(Attempt(tool="-", run=parent_run), runs))
        if not any(who.is_for(one) for one in over):
            raise Forbidden("this key announces agents only below a run of its own")
        return agent

    def own_call(self, who: Principal, call: ToolCall | None) -> None:
        """Raises NotOpen if no such call is open, and Forbidden if it is another agent's."""
        if call is None:
            raise NotOpen("no such call is open: it was not allowed, was released, or has its result already")
        if not who.is_for(call.origin.agent):
            raise Forbidden("this call is of another agent")

    def note(self, session: str, decision: Decision) -> None:
        """Remember whose call was allowed, if no rule of this guard keeps calls open."""
        if decision.allowed and not self._keeps_open():
            if len(self._allowed) >= MOST_KNOWN:
                self._allowed.clear()
            self._allowed[session, decision.call_id] = decision.agent or ""

    def check_closed(self, who: Principal, session: str, call_id: str, problem: NotOpen) -> None:
        """The result of a call that is not open may be reported if it was allowed, and no rule keeps it open. Raises
        the problem, or Forbidden."""
        agent = None if self._keeps_open() else self._allowed.pop((session, call_id), None)
        if agent is None:
            agent = self._sessions.agent_of_call(session, call_id)
        if agent is None:
            raise problem
        if not who.is_for(agent):
            raise Forbidden("this call is of another agent")

    def _keeps_open(self) -> bool:
        return any(policy.calls.rules for policy in self._guard.policies.all)

    def _owner(self, who: Principal, session: str) -> tuple[bool, bool]:
        """Whether nobody has used the session, and whether the key is of the agent that has begun it."""
        if ANY in who.agents or (who.id, session) in self._owned:
            return False, True
        exists, owner = self._sessions.begun_by(session)
        if not exists or not who.is_for(owner):
            return not exists, False
        with self._lock:
            if len(self._owned) >= MOST_KNOWN:
                self._owned.clear()
            self._owned[who.id, session] = None
        return False, True

    def _state(self, session: str) -> SessionState:
        return self._sessions.state(self._guard.session_key(session))[1]
