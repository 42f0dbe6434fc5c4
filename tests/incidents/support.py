"""A guard that is followed, with a clock that is moved by hand, and what the following has come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.incidents.follower import Correlator, Step
from bylaw.guard.incidents.incidents import Incidents
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import Alert, Detection, EventRow, Incident
from tests.guard.support import Clock, attempt, guard, policies

WINDOW = {
    "id": "burst",
    "when": {"tool_name_in": ["send"], "call_count_in_window_gt": {"tool": "send", "value": 2, "windowSeconds": 60}},
    "then": "pause",
}
CAP = {"id": "cap", "when": {"tool_name_in": ["pay"], "arg_gt": {"path": "amount", "value": 500}}, "then": "block"}


class World:
    """One store, a guard that writes to it, and a correlator that follows."""

    def __init__(self, rules: Any, *, store: GuardStore | None = None, mode: str | None = "hitl", **given: Any) -> None:
        self.clock = Clock()
        self.store = store or MemoryStore(clock=self.clock)
        self.rules, self.mode = rules, mode
        self.guard: BaseGuard = guard(rules, store=self.store, clock=self.clock, mode=mode, **given)
        self.incidents = Incidents(self.store, self.clock)

    def decide(self, tool: str, session: str = "s", *, later: float = 1.0, **fields: Any) -> Any:
        self.clock.now += later
        return self.guard.decide(attempt({"tool": tool, "session": session, **fields}))

    def follow(self, rules: Any = None, **given: Any) -> Step:
        given = {"clock": self.clock, **given}
        return Correlator(policies(rules or self.rules, self.mode), self.store, **given).catch_up()

    def open(self) -> list[tuple[str, str, int]]:
        return [(one.rule, one.session, one.count) for one in self.incidents.list() if one.status != "solved"]


def summary(store: GuardStore) -> dict[str, Any]:
    """Everything about the incidents that stand, but when and how it came to be known."""
    incidents = [one for one in store.followed(Incident, limit=10_000_000) if one.count]
    return {
        "incidents": sorted(map(incident_fields, incidents)),
        "detections": sorted((one.id, one.incident, one.when, one.stopped) for one in all_of(store, Detection)),
        "alerts": sorted(one.id for one in all_of(store, Alert)),
    }


def incident_fields(one: Incident) -> tuple[Any, ...]:
    seen = (one.first_seen, one.last_seen, one.first_event)
    return (one.id, one.rule, one.session, one.count, one.stopped, seen, one.message, str(one.call_id), one.then)


def all_of(store: GuardStore, kind: Any) -> list[Any]:
    return list(store.followed(kind, limit=10_000_000))


def copied(rows: Iterable[EventRow]) -> MemoryStore:
    """A log of these rows, in this order."""
    store = MemoryStore()
    append(store, list(rows))
    return store


def append(store: GuardStore, rows: Sequence[EventRow]) -> None:
    with store.transaction("") as transaction:
        for row in rows:
            transaction.append_event(EventRow(row.session, row.kind, row.at, row.data))
