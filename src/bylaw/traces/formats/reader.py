"""Base classes of the readers: they take blocks of records, pass what they say to the assembler, and return events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct, field

from bylaw.model.events import Annotation, Event, Locator, Origin, SessionStart, Usage
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import (
    EVERYTHING,
    UNREAD_BLOCK,
    AssistantContent,
    calls_in,
    read_content,
    results_inside,
    unread_kinds,
)
from bylaw.traces.assembly.conversation import Conversation, Settings, truncation_notes
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.assembly.sessions import (
    Hints,
    SessionNames,
    SessionsBy,
    SessionsInOrder,
    Summarize,
    Survey,
    survey,
)
from bylaw.traces.formats.record import Path, Record, object_field, records_of
from bylaw.traces.records.files import BrokenCompression, Input
from bylaw.traces.records.jsontext import Undecoded
from bylaw.traces.records.layout import Layout, Records
from bylaw.traces.records.lines import Block, line_runs
from bylaw.traces.records.problems import Problems

MOST_RECENT = 1000
_MOST_LOGGED = 1 << 16
LOGGED_TWICE = "a record with the id `{}` was read before, with other content: this one is not read"
_MOST_LEFT = 16
"""conversations without a name that a later list may continue"""
Key = TypeVar("Key")
Value = TypeVar("Value")


class Reader(Protocol):
    """Reads the records of one trace, in order."""

    header: dict[str, Any]
    complete: bool

    def read(self, block: Block) -> list[Event]:
        """The events that are final after these records."""

    def finish(self) -> list[Event]:
        """The events that waited for more records."""

    def notes(self) -> list[str]:
        """The assumptions of the reader."""


class OpenedFile(Struct, frozen=True):
    """A file to make a reader for."""

    source: Input
    layout: Layout
    records: Records
    problems: Problems
    verify_ids: bool = False
    eager: bool = False
    """whether to give events as soon as possible, for people who wait for them"""

    def raw_records(self) -> Iterator[bytes]:
        """All records of the file, for readers that need a first pass."""
        ignored = Problems(self.source.name, skip_bad=True)
        return (raw for block in Records(self.source, self.layout, ignored).blocks() for raw, _ in block)

    def survey(self, summarize: Summarize, hints: Hints) -> Survey:
        """How the file's sessions are separated, by a first pass over it."""
        with suppress(BrokenCompression):  # reported when the file is read
            if self.layout is Layout.LINES:
                runs = (run for run in line_runs(self.source.chunks()) if run is not None)
                return survey(runs, summarize, hints, BytesIO)
            return survey(self.raw_records(), summarize, hints, lambda record: (record,))
        return Survey(SessionsBy.NOTHING)

    def first_record(self) -> bytes:
        """The first record that is not blank, or nothing."""
        return next((raw for raw in self.raw_records() if raw.strip()), b"")


class AssemblingReader:
    """A reader that builds its events with an assembler."""

    def __init__(self, opened: OpenedFile) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        self._problems = opened.problems
        self._assembler = Assembler(opened.problems)
        self._is_truncated = False

    def finish(self) -> list[Event]:
        return self._assembler.take_all()

    def notes(self) -> list[str]:
        return [*truncation_notes(self._is_truncated), *unanswered_notes(self._assembler)]

    def _annotate(self, origin: Origin, source: Locator, label: str, data: Any, at: str | float | None = None) -> None:
        self._assembler.add(Annotation(origin=origin, at=at, source=source, label=label, data=data))


class _ListedConversation(Struct, eq=False, frozen=True):
    """The conversation of the latest record that held a whole one."""

    conversation: Conversation
    items: list[Any]
    session: str | None

    def repeated_in(self, items: list[Any]) -> int:
        """How many items are those of this record: all if `items` is the same list later on, else none.

        Some logs hold the state of a conversation after each step. Two equal lists are the same only if their messages
        have ids: benchmarks record several runs that may be equal.
        """
        size = len(self.items)
        if not 0 < size <= len(items) or self.items[-1] != items[size - 1]:
            return 0
        last = items[-1]
        inner = object_field(last, "kwargs") or object_field(last, "data") or last
        has_id = isinstance(inner, dict) and isinstance(inner.get("id"), str)
        is_later = size < len(items) or has_id
        return size if is_later and self.items == items[:size] else 0


class ConversationReader(AssemblingReader, ABC):
    """Reads recorded conversations: one session per list, or one session for all records of a file."""

    undecoded: ClassVar[Undecoded | None] = None
    """parts of each record that stay JSON, because rules rarely look at them"""

    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._records = opened.records
        self._sessions = SessionsInOrder(self._assembler)
        self._names = SessionNames()
        self._open: Conversation | None = None
        """the conversation whose parts are one record each"""
        self._listed: _ListedConversation | None = None
        self._left: list[_ListedConversation] = []
        """earlier ones without a name, which may be continued: logs of several conversations interleave"""
        self._latest: Conversation | None = None

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems, self.undecoded):
            self.read_record(record)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self._close()
        for one in self._left:
            self._sessions.end(one.conversation.origin.session)
        return super().finish()

    @abstractmethod
    def read_record(self, record: Record) -> None:
        """Read a whole conversation, or one part of the open one."""

    def read_list(
        self,
        record: Record,
        items: list[Any],
        path: Path,
        session: str | None,
        settings: Settings | None = None,
        metadata: dict[str, Any] | None = None,
        system: Any = None,
    ) -> None:
        """Read a whole conversation in one record, or what it adds to the record before if it repeats all of that."""
        known, start = self._repeated(items, session)
        if known is None:
            self._close()
            conversation = self._begin(session, settings or Settings(), metadata, record, bounded=False)
            if system is not None:
                conversation.add_input({"role": "system", "content": system}, record.locator(".system"))
        else:
            conversation = known.conversation
        self._listed = _ListedConversation(conversation, items, session)
        self._sessions.separates = session is None  # another list may continue it, after some of others
        self.read_items(conversation, record, items, start, path)

    def read_open(self, record: Record) -> None:
        """Read a record that is one part of the open conversation."""
        if self._open is None:
            self._close()
            self._open = self._begin(None, Settings(), None, record, bounded=self._records.streamed)
        self.read_item(self._open, record, record.value, ())
        self._is_truncated = self._is_truncated or self._open.is_truncated

    def _repeated(self, items: list[Any], session: str | None) -> tuple[_ListedConversation | None, int]:
        """The conversation that these items repeat from its start, and how many of them do."""
        latest = self._listed
        if latest is not None and latest.session == session and (start := latest.repeated_in(items)):
            return latest, start
        for one in reversed(self._left) if session is None else ():
            if start := one.repeated_in(items):
                self._close()
                self._left.remove(one)
                if self._sessions.resume(one.conversation.origin.session):
                    one.conversation.resume()
                    return one, start
                break
        return None, 0

    def read_items(self, conversation: Conversation, record: Record, items: list[Any], start: int, path: Path) -> None:
        for index in range(start, len(items)):
            self.read_item(conversation, record, items[index], (*path, index))

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        """Read one message, event or item of a conversation; only readers that have such parts are asked to."""
        raise AssertionError(f"{type(self).__name__} reads no conversation item by item")

    def end_answer(self, conversation: Conversation) -> None:
        """Add the answer that is being collected, for formats in which it consists of several items."""

    def _begin(
        self, session: str | None, settings: Settings, metadata: dict[str, Any] | None, record: Record, *, bounded: bool
    ) -> Conversation:
        if self._latest is not None and not self._sessions.current.used:
            self._latest.end_session()  # all its turns are by agents
        buffer = self._sessions.start(self._names.pick(session))
        if metadata is not None:
            self._assembler.add(SessionStart(origin=buffer.origin, source=record.locator(), metadata=metadata))
        self._latest = Conversation(self._assembler, buffer, settings, bounded=bounded)
        return self._latest

    def _close(self) -> None:
        listed = None if self._listed is None else self._listed.conversation
        for conversation in (listed, self._open):
            if conversation is not None:
                self.end_answer(conversation)
                conversation.end()
        if self._listed is not None and self._listed.session is None:
            self._left.append(self._listed)
            if len(self._left) > _MOST_LEFT:
                self._sessions.end(self._left.pop(0).conversation.origin.session)
        self._listed = self._open = None


class PendingAnswer(Struct, eq=False):
    """An answer that is being collected, for formats in which it consists of several items."""

    record: Record
    path: Path
    at: str | float | None = None
    answer: AssistantContent = field(default_factory=AssistantContent)
    places: list[Locator] = []
    """where each call stands"""


def unanswered_notes(assembler: Assembler) -> list[str]:
    count = assembler.unanswered
    if not count:
        return []
    return ["1 request has no response" if count == 1 else f"{count} requests have no response"]


def add_answer(
    conversation: Conversation,
    record: Record,
    answer: AssistantContent,
    source: Locator,
    *,
    path: Path = (),
    places: list[Locator] | None = None,
    unread: tuple[str, ...] = (),
    at: str | float | None = None,
    model: str | None = None,
    stop_reason: str | None = None,
    latency_ms: float | None = None,
    usage: Usage | None = None,
) -> tuple[list[Any] | None, str | None]:
    """Add an answer to a conversation with the results inside it, and report its problems.

    Returns its content and its text. `places`: the source of each call, if it is not `source`.
    """
    calls, shared = calls_in(answer.uses, conversation.origin, conversation.turn, at, source, answer.arguments, places)
    for call_id, _ in shared:
        record.warn("duplicate-call-id", SHARED_ID.format(call_id), path)
    content, text = answer.blocks, answer.text
    if text is UNSET:
        content, text, _ = read_content(answer.blocks)
        kinds = unread_kinds(content)
        for kind in kinds:
            record.warn("unread-content", UNREAD_BLOCK.format(kind), path)
        unread = EVERYTHING if kinds else unread
    conversation.add_answer(
        source,
        content,
        text,
        calls,
        unread=unread,
        is_checked=True,
        at=at,
        model=model,
        stop_reason=stop_reason,
        latency_ms=latency_ms,
        usage=usage,
        shared=shared,
    )
    for result, following in results_inside(answer, calls) if answer.text is UNSET else ():
        conversation.add_read_result(result, source, at)
        conversation.place_calls(call.call_id for call in following)
    return content, text


class LoggedRecords:
    """Recognizes records that a log holds twice, by their ids and contents. INVARIANT: bounded."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def repeats(self, id: Hashable, content: Any) -> bool | None:
        """Whether this id was seen before with the same content; None if the id is new."""
        digest = hash(msgspec.json.encode(content))
        known = self._known.get(id)
        if known is None:
            self._known[id] = digest
            if len(self._known) > _MOST_LOGGED:
                del self._known[next(iter(self._known))]
            return None
        return known == digest


def remember(recent: dict[Key, Value], key: Key, value: Value, most: int = MOST_RECENT) -> None:
    """Add to a map of the most recent items; the oldest is dropped if there are too many."""
    recent[key] = value
    if len(recent) > most:
        del recent[next(iter(recent))]
