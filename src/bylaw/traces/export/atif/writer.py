"""Writes ATIF. A session is held until it ends, since its document can be written only as a whole."""

from __future__ import annotations

from typing import IO, Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Annotation, Event, Origin, SessionEnd, SessionStart
from bylaw.traces.export.atif.trajectory import Place, Trajectory
from bylaw.traces.export.lines import Lines
from bylaw.traces.export.slot import slot_of
from bylaw.traces.formats.bylaw.wire import VERSION, Header, Line, TraceEndLine
from bylaw.traces.formats.restored.slots import Slot
from bylaw.traces.records.lines import MAX_RECORD

MOST_LEVELS = 40
"""agents inside of each other; deeper ones stand beside the outermost"""
_Key = tuple[str | None, str | None]


class _Session(Struct, eq=False):
    agents: dict[_Key, Trajectory] = {}
    """by run and agent; the first one is around the others"""
    places: dict[str, Place] = {}
    rest: list[Slot] = []
    """the lines of what is no step of any agent"""

    def add(self, number: int, line: Line, event: Event) -> None:
        if isinstance(event, (SessionStart, SessionEnd, Annotation)):
            self.rest.append(slot_of(number, line, {}))
        else:
            self.of(event.origin).add(number, line, event, self.places)

    def of(self, origin: Origin) -> Trajectory:
        key = (origin.run, origin.agent)
        found = self.agents.get(key)
        if found is None:
            above = self.agents.get((origin.parent_run, origin.parent_agent)) or next(iter(self.agents.values()), None)
            if above is not None and above.level == MOST_LEVELS:
                above = next(iter(self.agents.values()))
            found = self.agents[key] = Trajectory(origin, level=0 if above is None else above.level + 1)
            if above is not None:
                above.below.append(found)
        return found

    def document(self, name: str, own: dict[str, Any]) -> dict[str, Any]:
        first = next(iter(self.agents.values()), None) or Trajectory(Origin(name), level=0)
        first.rest += self.rest
        return first.document({"trace": VERSION, **own}, first.origin.run)


class AtifWriter:
    def __init__(self, file: IO[bytes], *, name: str, format: str | None, header: dict[str, Any]) -> None:
        self._file = file
        self._lines = Lines(None, self._take)
        self._sessions: dict[str, _Session] = {}
        self._last: tuple[str, _Session] | None = None
        """the latest session that ended: whichever is the last of all tells how the trace ended"""
        self._own: dict[str, Any] = {
            "header": Header(VERSION, name=name, format=format, complete="marked", resolved=True, header=header)
        }
        """what the next document says of the whole"""
        self._too_long = 0

    def write(self, event: Event) -> None:
        self._lines.write(event)

    def finish(self, end: TraceEndLine) -> None:
        self._lines.release()
        for name, session in self._sessions.items():
            self._end(name, session)
        self._own["end"] = slot_of(self._lines.number + 1, end, {})
        if self._last is not None:
            self._put(*self._last)

    def remarks(self) -> list[str]:
        if not self._too_long:
            return []
        are = "1 session is" if self._too_long == 1 else f"{self._too_long:,} sessions are"
        return [f"{are} longer than the {MAX_RECORD >> 20} MiB that Bylaw reads"]

    def _take(self, number: int, line: Line, event: Event) -> None:
        name = event.origin.session
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session()
        session.add(number, line, event)
        if isinstance(event, SessionEnd):
            self._end(name, self._sessions.pop(name))

    def _end(self, name: str, session: _Session) -> None:
        if self._last is not None:
            self._put(*self._last)
        self._last = name, session

    def _put(self, name: str, session: _Session) -> None:
        line = msgspec.json.encode(session.document(name, self._own)) + b"\n"
        self._own = {}
        self._too_long += len(line) > MAX_RECORD
        self._file.write(line)
