"""Which key may use which session, and as whom: agents use their own sessions, and those in which an agent above has
announced them.

The agent that has begun a session owns it: only its keys end it. An agent that was announced is known until the session
ends, speaks of its own calls only, and cannot say that it stands elsewhere than it was announced.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from bylaw.guard.decide.chain import ancestors
from bylaw.guard.decide.session import SessionState
from bylaw.guard.guard import Guard
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.service.auth import ANY, Principal
from bylaw.guard.service.errors import Conflict, Forbidden
from bylaw.guard.service.operations.sessions import Sessions
from bylaw.model.events import ToolCall

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
        """A call that is not open may have its result told if it was allowed, and no rule has kept it open. Raises the
        problem, or Forbidden."""
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
