"""Which key may use which session: agents use their own, and those in which an agent above has announced them."""

from __future__ import annotations

import threading

from bylaw.guard.service.auth import ANY, Principal
from bylaw.guard.service.errors import Forbidden
from bylaw.guard.service.operations.sessions import Sessions

MOST_KNOWN = 100_000
"""sessions that are known to belong to an agent"""


class SessionOwners:
    """Whose sessions are whose. What was found once is remembered: a session does not change hands."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: dict[tuple[str, str], None] = {}
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
        if ANY in who.agents or (who.id, session) in self._known:
            return False
        agents = self._sessions.agents_of(session)
        if agents is None:
            return True
        if not any(who.is_for(agent) for agent in agents):
            raise Forbidden("this session belongs to another agent")
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[who.id, session] = None
        return False
