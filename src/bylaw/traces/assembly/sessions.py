"""Which session a record belongs to. Two ways, one set of questions: by ids, or one session after the other."""

from __future__ import annotations

from typing import Protocol

from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.lane import Lane
from bylaw.traces.assembly.survey import SessionsBy, Survey

_MOST_RECORDS = 1 << 10
_MOST_WAITING = 1 << 10


class Sessions(Protocol):
    current: Lane
    """the session of the latest record"""
    watch_history: bool
    """whether a request that starts afresh begins a session"""
    waiting: dict[str, list[Lane]]
    """requests of earlier sessions, by record id, that may still get a response"""

    def find(self, session: str | None, parent: str | None) -> Lane:
        """The session of a record that names `session` and answers the record `parent`; it becomes the current one."""

    def saw(self, record_id: str | None) -> None:
        """A record of the current session can be answered by this id. Requests and responses need not be told of."""

    def begin_afresh(self) -> None: ...
    def begins(self, session: str | None) -> bool:
        """A marker was met: does it begin a session?"""

    def by_id(self, session: str) -> Sessions:
        """What tells sessions apart from the first id on."""

    def notes(self) -> list[str]: ...


def sessions_of(survey: Survey, assembler: Assembler) -> Sessions:
    if survey.first_session is not None:
        return SessionsById(assembler, survey.first_session)
    return SessionsInOrder(assembler, survey.sessions_by)


class SessionsById:
    """Records name their session. One that does not belongs to that of the record it answers, else to the latest."""

    def __init__(self, assembler: Assembler, first_session: str) -> None:
        self.watch_history = False
        self.waiting: dict[str, list[Lane]] = {}
        self.current = assembler.lane(first_session)
        self._assembler = assembler
        self._records: dict[str, Lane] = {}

    def find(self, session: str | None, parent: str | None) -> Lane:
        if session is not None:
            if session != self.current.origin.session:
                self.current = self._assembler.lane(session)
        elif parent is not None:
            found = self._records.get(parent) or self._assembler.lane_of(parent)
            if found is not None and found is not self.current:
                # by its name, for the lane itself may have had to make room meanwhile
                self.current = self._assembler.lane(found.origin.session)
        return self.current

    def saw(self, record_id: str | None) -> None:
        if record_id is not None:
            self._records[record_id] = self.current
            if len(self._records) > _MOST_RECORDS:
                del self._records[next(iter(self._records))]

    def begin_afresh(self) -> None:
        pass

    def begins(self, session: str | None) -> bool:
        return session is not None and not self._assembler.lane(session).used

    def by_id(self, session: str) -> SessionsById:
        return self

    def notes(self) -> list[str]:
        return []


class SessionsInOrder:
    """Sessions follow each other. Only a response that names its request may still belong to an earlier one."""

    def __init__(self, assembler: Assembler, by: SessionsBy = SessionsBy.NOTHING) -> None:
        self.watch_history = by is SessionsBy.HISTORY
        self.waiting: dict[str, list[Lane]] = {}
        self._assembler = assembler
        self._by = by
        self._started = 0
        self.current = self._next(None)

    def find(self, session: str | None, parent: str | None) -> Lane:
        if parent in self.waiting and not self.current.asks(parent):
            self._resume(parent)
        return self.current

    def saw(self, record_id: str | None) -> None:
        pass

    def begin_afresh(self) -> None:
        if self.current.used:
            self.start()

    def begins(self, session: str | None) -> bool:
        if self._by is not SessionsBy.MARKERS:
            return False
        self.start()
        return True

    def by_id(self, session: str) -> SessionsById:
        if not self.current.used:
            self._assembler.forget(self.current)
        return SessionsById(self._assembler, session)

    def notes(self) -> list[str]:
        if self._by is SessionsBy.NOTHING and self._assembler.requests > 1:
            return ["no request carries earlier messages, so the file is read as one session"]
        return []

    def start(self, session: str | None = None) -> Lane:
        """Begin the next session, named or else numbered. A session in which nothing happened is not counted."""
        lane = self.current
        if any(record is not None for record, _ in lane.open):
            self._leave(lane)
        elif lane.used:
            self._assembler.end_session(lane)
        else:
            self._assembler.forget(lane)
            self._started -= 1
        self.current = self._next(session)
        return self.current

    def _next(self, session: str | None) -> Lane:
        self._started += 1
        return self._assembler.lane(str(self._started) if session is None else session)

    def _leave(self, lane: Lane) -> None:
        """The session may still get the responses it waits for."""
        for record, _ in lane.open:
            if record is not None:
                self.waiting.setdefault(record, []).append(lane)
        while len(self.waiting) > _MOST_WAITING:
            del self.waiting[next(iter(self.waiting))]

    def _resume(self, parent: str) -> None:
        lanes = self.waiting.pop(parent)
        while lanes:
            lane = lanes.pop(0)
            if lane.asks(parent):
                if lanes:
                    self.waiting[parent] = lanes
                self._leave(self.current)
                self.current = lane
                return
