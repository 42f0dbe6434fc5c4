"""Which session a record belongs to: by session ids, else one session after the other.

A quick first pass over the whole file decides how its sessions are separated. The first of these that the file has is
used: ids; two or more markers; history; requests. Only the fields that decide this are decoded, and only in parts of
the file that can contain them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, TypeAlias

from msgspec import Struct

from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.continuations import (
    MOST_CONVERSATIONS,
    Continuations,
    Messages,
    MessageSkim,
    identify_answer,
)
from bylaw.traces.assembly.session_buffer import SessionBuffer
from bylaw.traces.records.jsontext import REFUSED

IDS_WITHIN = 4 << 20
"""bytes in which the first session id is searched for; a later one takes effect from its position on"""
UNNAMED = "unnamed"
"""the session of turns before the first record that names one"""
REPEATED = "#"
"""stands between a recorded id and the number of the session among those that have it"""
_MOST_RECORDS = 1 << 10
_MOST_WAITING = 1 << 10
_ANSWERS = frozenset(("assistant", "tool", "function", "model"))
_ITEMS = frozenset(("function_call", "function_call_output"))


class SessionNames:
    """Unique names for sessions that follow each other."""

    def __init__(self) -> None:
        self._number = 0
        self._taken: dict[int, int] = {}
        """hash → how many sessions wanted this name; hashes, because a file may hold millions of sessions"""

    def pick(self, wanted: str | None) -> str:
        """`wanted`, with `#2` if an earlier session has it; else the session's 1-based number."""
        self._number += 1
        name = wanted or str(self._number)
        while (count := self._taken.get(hash(name), 0)) > 0:
            self._taken[hash(name)] = count + 1
            name = f"{name}{REPEATED}{count + 1}"
        self._taken[hash(name)] = 1
        return name


def carries_history(
    messages: list[MessageSkim] | None, raw: bytes, decode_messages: Callable[[bytes], list[Any] | None]
) -> bool:
    """Whether a request continues a conversation.

    It does if it holds an assistant's or a tool's message, or a tool result inside a user's message. To see the latter
    the messages are decoded, which is done only if `raw`, their record, can hold one.
    """
    for message in reversed(messages or ()):  # an answer is usually the last message but one
        role = message.role
        if role in _ANSWERS or (role is None and message.type in _ITEMS):
            return True
    if not messages or b"tool_result" not in raw:
        return False
    contents = (message.get("content") for message in decode_messages(raw) or () if isinstance(message, dict))
    blocks = (block for content in contents if isinstance(content, list) for block in content)
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


# The first pass


class SessionsBy(Enum):
    IDS = "ids"
    MARKERS = "markers"
    HISTORY = "history"
    REQUESTS = "requests"
    """no request carries earlier messages; each that does not continue the one before begins a session"""
    NOTHING = "nothing"
    """no request carries earlier messages, and nothing tells sessions apart"""


class Survey(Struct, frozen=True):
    """The result of the first pass."""

    sessions_by: SessionsBy
    first_session: str | None = None
    """the first session id of the file, if there are ids; UNNAMED if a turn comes before it"""
    by_tags: bool = False
    """the ids are tags"""


class RecordSummary(Struct, frozen=True, gc=False):
    """The session data of one record."""

    session: str | None = None
    tag: str | None = None
    """a label that may be that of the whole recording: the id of a session only if the file has several"""
    is_marker: bool = False
    carries_history: bool = False


NOTHING_SEEN = RecordSummary()
Summarize: TypeAlias = Callable[[bytes], RecordSummary]
"""a format's function that summarizes a record; may raise what the decoder raises"""


class Hints(Struct, frozen=True):
    """Bytes that a line must contain to hold the thing. Searching for them is faster than decoding."""

    session: bytes
    marker: bytes
    request: bytes
    response: bytes


def survey(
    runs: Iterable[bytes], summarize: Summarize, hints: Hints, split: Callable[[bytes], Iterable[bytes]]
) -> Survey:
    """`runs` are stretches of the file that hold whole records; `split` divides one."""
    markers = seen = 0
    history = answered = is_tagged_late = False
    tag: str | None = None
    for run in runs:
        early = seen < IDS_WITHIN
        seen += len(run)
        wanted = (not history and hints.request in run) or hints.marker in run or (early and hints.session in run)
        answered = answered or (not wanted and hints.response in run)
        for raw in split(run) if wanted else ():
            try:
                found = summarize(raw)
            except REFUSED:
                found = NOTHING_SEEN  # reported when the file is read
            if found.session is not None and early:
                return Survey(SessionsBy.IDS, UNNAMED if answered else found.session)
            if found.tag is not None and early:
                if tag is None:
                    tag, is_tagged_late = found.tag, answered
                elif tag != found.tag:
                    return Survey(SessionsBy.IDS, UNNAMED if is_tagged_late else tag, by_tags=True)
            answered = answered or hints.response in raw
            markers += found.is_marker
            history = history or found.carries_history
    if markers > 1:
        return Survey(SessionsBy.MARKERS)
    return Survey(SessionsBy.HISTORY if history else SessionsBy.NOTHING)


# Sessions while the file is read


class Sessions(ABC):
    """What is asked about messages does nothing where they do not tell sessions apart."""

    separates = False
    """whether the messages of requests tell sessions apart; if so, `request`, `response` and `act` must be called"""
    current: SessionBuffer
    """the session of the latest record"""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self.waiting: dict[str, list[SessionBuffer]] = {}
        """requests of earlier sessions, by record id, that may still get a response"""

    @abstractmethod
    def find(self, session: str | None, parent: str | None) -> SessionBuffer:
        """The session of a record that names `session` and answers the record `parent`; it becomes the current one."""

    @abstractmethod
    def begins(self, session: str | None) -> bool:
        """Whether a marker begins a session."""

    @abstractmethod
    def by_id(self, session: str) -> Sessions:
        """The object that tells sessions apart once the first id is seen."""

    def add_record(self, record_id: str | None) -> None:  # noqa: B027
        """Note that a later record may answer this record. Requests and responses need no note."""

    def request(self, messages: bytes, parent: str | None) -> bool:
        """Switch to the session that a request continues, or begin one. Returns whether that is certain.

        `messages`: a list in JSON that is not empty."""
        return True

    def can_read(self, messages: bytes) -> bool:
        """Whether these are messages by which `request` can tell sessions apart."""
        return False

    def response(self, answer: Any, record_id: str | None, stop: str | None) -> None:  # noqa: B027
        """Note what a later request may repeat."""

    def act(  # noqa: B027
        self, parent: str | None, record_id: str | None, call_id: str | None, *, is_result: bool
    ) -> None:
        """Switch to the session of a call or result that has a record of its own."""

    def notes(self) -> list[str]:
        return []


UNCLEAR = "it is not certain which session this request belongs to; it is read as one of session `{}`"
UNCLEAR_HELP = "rules with `scope: session` depend on it; record a session id"


def sessions_of(survey: Survey, assembler: Assembler) -> Sessions:
    if survey.first_session is not None:
        return SessionsById(assembler, survey.first_session)
    return SessionsInOrder(assembler, survey.sessions_by)


class SessionsById(Sessions):
    """Records name their session. One that does not belongs to that of the record it answers, else to the latest."""

    def __init__(self, assembler: Assembler, first_session: str) -> None:
        super().__init__(assembler)
        self.current = assembler.session(first_session)
        self._records: dict[str, SessionBuffer] = {}

    def find(self, session: str | None, parent: str | None) -> SessionBuffer:
        if session is not None:
            if session != self.current.origin.session:
                self.current = self._assembler.session(session)
        elif parent is not None:
            found = self._records.get(parent) or self._assembler.buffer_of_record(parent)
            if found is not None and found is not self.current:
                # by its name, because the buffer itself may have been closed meanwhile
                self.current = self._assembler.session(found.origin.session)
        return self.current

    def add_record(self, record_id: str | None) -> None:
        if record_id is not None:
            self._records[record_id] = self.current
            if len(self._records) > _MOST_RECORDS:
                del self._records[next(iter(self._records))]

    def begins(self, session: str | None) -> bool:
        return session is not None and not self._assembler.session(session).used

    def by_id(self, session: str) -> SessionsById:
        return self


class SessionsInOrder(Sessions):
    """Sessions without ids. They follow each other, unless requests tell them apart: then they may interleave."""

    def __init__(self, assembler: Assembler, by: SessionsBy = SessionsBy.NOTHING) -> None:
        super().__init__(assembler)
        self.separates = by in (SessionsBy.HISTORY, SessionsBy.REQUESTS)
        self._by = by
        self._messages = Messages()
        self._continuations = Continuations(compare=by is SessionsBy.REQUESTS)
        self._left: dict[str, SessionBuffer] = {}
        """sessions that a later request may continue, if requests tell sessions apart"""
        self._started = 0
        self.current = self._next(None)

    def find(self, session: str | None, parent: str | None) -> SessionBuffer:
        if parent in self.waiting and not self.current.has_open_request(parent):
            self._resume_request(parent)
        return self.current

    def request(self, messages: bytes, parent: str | None) -> bool:
        continuations, current = self._continuations, self.current.origin.session
        asked = self._messages.read(messages)
        found = continuations.find(asked, parent, current)
        goes_on = bool(found.session) and (found.session == current or self._resume(found.session))
        if not goes_on and self.current.used:
            self.start()
        continuations.ask(self.current.origin.session, asked)
        return found.is_certain

    def can_read(self, messages: bytes) -> bool:
        try:
            return bool(self._messages.read(messages).messages)
        except REFUSED:
            return False

    def response(self, answer: Any, record_id: str | None, stop: str | None) -> None:
        self._continuations.answer(self.current.origin.session, identify_answer(answer), record_id, stop)

    def act(self, parent: str | None, record_id: str | None, call_id: str | None, *, is_result: bool) -> None:
        current = self.current.origin.session
        owner = self._continuations.owner(parent, call_id if is_result else None, current)
        if owner is not None and owner != current:
            self._resume(owner)
        session = self.current.origin.session
        self._continuations.act(session, record_id, call_id=None if is_result else call_id or "", is_result=is_result)

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
        if self._by not in (SessionsBy.NOTHING, SessionsBy.REQUESTS) or self._assembler.requests < 2:
            return []
        if self._started > 1:
            return ["no request carries earlier messages, so each that continues no other is read as a session"]
        return ["no request carries earlier messages, so the file is read as one session"]

    def start(self, session: str | None = None) -> SessionBuffer:
        """Begin the next session, named or else numbered. A session without events is not counted."""
        if self.current.used:
            self._leave(self.current)
        else:
            self._assembler.forget(self.current)
            self._started -= 1
        self.current = self._next(session)
        return self.current

    def resume(self, session: str) -> bool:
        """Continue a session that was left; False if it is over."""
        return session in self._left and self._resume(session)

    def end(self, session: str) -> None:
        """No more of a session follows that was left."""
        buffer = self._left.pop(session, None)
        if buffer is not None:
            self._assembler.end_session(buffer)

    def _next(self, session: str | None) -> SessionBuffer:
        self._started += 1
        return self._assembler.session(str(self._started) if session is None else session)

    def _leave(self, buffer: SessionBuffer) -> None:
        """Leave a session that may still get the responses it waits for, or be continued."""
        is_waiting = self._wait(buffer)
        if self.separates and (is_waiting or not buffer.open or self._by is SessionsBy.NOTHING):
            self._put_aside(buffer)
        elif not is_waiting:
            self._assembler.end_session(buffer)

    def _wait(self, buffer: SessionBuffer) -> bool:
        is_waiting = False
        for record, _ in buffer.open:
            if record is not None:
                is_waiting = True
                self.waiting.setdefault(record, []).append(buffer)
        while len(self.waiting) > _MOST_WAITING:
            del self.waiting[next(iter(self.waiting))]
        return is_waiting

    def _put_aside(self, buffer: SessionBuffer) -> None:
        buffer.held = None  # its latest turn is final
        self._left[buffer.origin.session] = buffer
        if len(self._left) > MOST_CONVERSATIONS:
            oldest = self._left.pop(next(iter(self._left)))
            if not any(record is not None for record, _ in oldest.open):
                self._assembler.end_session(oldest, alone=True)

    def _resume(self, session: str) -> bool:
        """Continue an earlier session, if it is still open."""
        buffer = self._left.pop(session, None)
        if buffer is None:
            return False
        self._leave_current()
        self.current = buffer
        return True

    def _resume_request(self, parent: str) -> None:
        buffers = self.waiting.pop(parent)
        while buffers:
            buffer = buffers.pop(0)
            if buffer.has_open_request(parent):
                if buffers:
                    self.waiting[parent] = buffers
                self._leave_current()
                self._left.pop(buffer.origin.session, None)
                self.current = buffer
                return

    def _leave_current(self) -> None:
        self._wait(self.current)
        if self.separates and self.current.used:
            self._put_aside(self.current)
