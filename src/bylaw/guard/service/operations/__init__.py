"""Everything that the JSON API and the console can do: one class for each noun, over a guard and its store.

Every function that changes something takes `by`, the name of whoever does it, which the caller has from the key or the
login and never from the request. What they return are structs that msgspec can encode; what they raise is in
`service.errors`. They block while the store works: call them in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bylaw.guard.guard import Guard
from bylaw.guard.service.operations.agents import Agents
from bylaw.guard.service.operations.incidents import IncidentOperations, Notifications
from bylaw.guard.service.operations.record import Audit, Decisions
from bylaw.guard.service.operations.reviews import ReviewOperations
from bylaw.guard.service.operations.rules import Proposals, Rules
from bylaw.guard.service.operations.sessions import Sessions
from bylaw.guard.service.rule_versions import RuleVersions


class Operations:
    """The operations over one guard, by noun."""

    def __init__(self, guard: Guard, versions: RuleVersions, clock: Callable[[], float] = time.time) -> None:
        self.guard, self.versions, self.clock = guard, versions, clock
        self.decisions = Decisions(guard.store, clock)
        self.reviews = ReviewOperations(guard, clock)
        self.incidents = IncidentOperations(guard)
        """with the tasks of both kinds"""
        self.notifications = Notifications(guard, clock)
        self.sessions = Sessions(guard, clock)
        self.rules = Rules(guard, versions, clock)
        self.proposals = Proposals(guard, self.rules, clock)
        self.audit = Audit(guard.store)
        self.agents = Agents(guard, versions, clock)
        """with the kill switches"""


__all__ = ["Operations"]
