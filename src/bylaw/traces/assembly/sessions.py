"""Names for sessions that follow each other: their own where they have one of their own, else their number.

Does a request continue a conversation, or start one afresh?

A quick first look at a whole file: by what are its sessions told apart?

In order of trust: ids; two or more markers; history. Only fields that decide this are decoded, and only where a stretch
of the file can hold them.

Which session a record belongs to. Two ways, one set of questions: by ids, or one session after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.session_buffer import Lane
from bylaw.traces.records.jsontext import REFUSED


class SessionNames:
    def __init__(self) -> None:
        self._number = 0
        self._taken: set[int] = set()
        """hashes: a file may hold millions of sessions"""

    def pick(self, wanted: str | None) -> str:
        """`wanted` if no earlier session has it, else the session's 1-based number."""
        self._number += 1
        name = wanted or str(self._number)
        if hash(name) in self._taken:
            name = str(self._number)
        while hash(name) in self._taken:
            name += "'"  # that number is taken as well, by a session that is called so
        self._taken.add(hash(name))
        return name


_ANSWERS = frozenset(("assistant", "tool", "function", "model"))
_ITEMS = frozenset(("function_call", "function_call_output"))


class MessageSkim(Struct, gc=False):
    """As much of a message as tells who it is from."""

    role: str | None = None
    type: str | None = None


def carries_history(
    messages: list[MessageSkim] | None, raw: bytes, decode_messages: Callable[[bytes], list[Any] | None]
) -> bool | None:
    """Whether an assistant's or a tool's message is among these; None where no message was recorded at all.

    A tool result inside a user's message counts too: it answers a call of this conversation. To see it takes the whole
    messages, so these are decoded only where `raw`, the record they are from, can hold one.
    """
    if not messages:
        return None
    for message in reversed(messages):  # an answer is mostly the last message but one
        role = message.role
        if role in _ANSWERS or (role is None and message.type in _ITEMS):
            return True
    return b"tool_result" in raw and any(map(_has_result, decode_messages(raw) or ()))


def _has_result(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )


IDS_WITHIN = 4 << 20
"""bytes in which the first session id is looked for. One that comes later counts from where it stands."""


UNNAMED = "unnamed"
"""the session of turns before the first record that names one"""


class SessionsBy(Enum):
    IDS = "ids"
    MARKERS = "markers"
    HISTORY = "history"
    NOTHING = "nothing"
    """no request carries earlier messages, so nothing tells sessions apart"""


class Survey(Struct, frozen=True):
    sessions_by: SessionsBy
    first_session: str | None = None
    """the first session id of the file, where there are ids; UNNAMED where a turn comes before it"""


class Seen(Struct, frozen=True, gc=False):
    """What one record shows."""

    session: str | None = None
    is_marker: bool = False
    carries_history: bool = False


NOTHING_SEEN = Seen()
Look: TypeAlias = Callable[[bytes], Seen]
"""a format's own way to look at a record; may raise what the decoder raises"""


class Hints(Struct, frozen=True):
    """Bytes without which no line can hold the thing. Looking for them is quicker than decoding."""

    session: bytes
    marker: bytes
    request: bytes
    response: bytes


def survey(runs: Iterable[bytes], look: Look, hints: Hints, split: Callable[[bytes], Iterable[bytes]]) -> Survey:
    """`runs` are stretches of the file that hold whole records, `split` divides one."""
    markers = seen = 0
    history = answered = False
    for run in runs:
        early = seen < IDS_WITHIN
        seen += len(run)
        wanted = (not history and hints.request in run) or hints.marker in run or (early and hints.session in run)
        answered = answered or (not wanted and hints.response in run)
        for raw in split(run) if wanted else ():
            try:
                found = look(raw)
            except REFUSED:
                found = NOTHING_SEEN  # told when the file is read
            if found.session is not None and early:
                return Survey(SessionsBy.IDS, UNNAMED if answered else found.session)
            answered = answered or hints.response in raw
            markers += found.is_marker
            history = history or found.carries_history
    if markers > 1:
        return Survey(SessionsBy.MARKERS)
    return Survey(SessionsBy.HISTORY if history else SessionsBy.NOTHING)


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
