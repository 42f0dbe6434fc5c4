"""What the readers of recorded conversations share: one session a list, or one for all records of a file.

What was met lately, in bounded memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from bylaw.model.events import Event, SessionStart
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.conversation import Conversation, Settings, cut_note
from bylaw.traces.assembly.sessions import SessionNames, SessionsInOrder
from bylaw.traces.formats.record import Record, assembly_notes, records_of
from bylaw.traces.records.jsontext import Kept
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Problems


class ConversationReader(ABC):
    kept: ClassVar[Kept | None] = None
    """what of each record stays JSON, because nobody may ever look at it"""

    def __init__(self, problems: Problems, streamed: Callable[[], bool]) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        self._problems = problems
        self._streamed = streamed
        self._assembler = Assembler(problems)
        self._sessions = SessionsInOrder(self._assembler)
        self._names = SessionNames()
        self._open: Conversation | None = None
        """the conversation whose parts come one a record"""
        self._cut = False

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems, self.kept):
            self.read_record(record)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self._close()
        return self._assembler.take_all()

    def notes(self) -> list[str]:
        return [*(cut_note() if self._cut else ()), *assembly_notes(self._assembler)]

    @abstractmethod
    def read_record(self, record: Record) -> None:
        """A whole conversation, or one part of the open one."""

    def _continue(self, record: Record) -> Conversation:
        """The conversation that a part of its own belongs to."""
        if self._open is None:
            self._open = self._begin(None, Settings(), None, record, bounded=self._streamed())
        return self._open

    def _begin(
        self, session: str | None, settings: Settings, metadata: dict[str, Any] | None, record: Record, *, bounded: bool
    ) -> Conversation:
        lane = self._sessions.start(self._names.pick(session))
        if metadata is not None:
            self._assembler.add(SessionStart(origin=lane.origin, source=record.locator(), metadata=metadata))
        return Conversation(self._assembler, lane, settings, bounded=bounded)

    def _close(self) -> None:
        if self._open is not None:
            self._open.end()
            self._open = None


MOST = 1000

Value = TypeVar("Value")


def remember(recent: dict[str, Value], key: str, value: Value) -> None:
    """Where there is too much of it, what was put in first is forgotten."""
    recent[key] = value
    if len(recent) > MOST:
        del recent[next(iter(recent))]
