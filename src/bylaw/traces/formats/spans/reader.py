"""What the readers of span formats share: spans wait in the forest, and are told a session at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bylaw.model.events import Event, Origin
from bylaw.traces.formats.reader import AssemblingReader, Opened
from bylaw.traces.formats.spans.session import SessionSpans
from bylaw.traces.formats.spans.span import Span
from bylaw.traces.formats.spans.tree import MOST_HELD, Forest, Tree
from bylaw.traces.records.lines import Block


class SpanReader(AssemblingReader, ABC):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._forest = Forest()
        self._spans = 0

    def read(self, block: Block) -> list[Event]:
        self.read_block(block)
        for trace in self._forest.overflow():
            self._tell([trace])
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self._tell(self._forest.rest())
        return super().finish()

    def notes(self) -> list[str]:
        notes = super().notes()
        if self._forest.torn:
            notes.append(f"spans of one trace stand more than {MOST_HELD >> 20} MiB apart, so it is read in parts")
        if self._spans and not self._assembler.turns:
            notes.append(f"none of the {self._spans:,} spans is a call of a model or a tool")
        return notes

    @abstractmethod
    def read_block(self, block: Block) -> None:
        """Put the spans of these records into the forest."""

    def interpret(self, span: Span) -> None:
        """Say what a span is about, where that waits until all of it is known."""
        return  # most formats know it at once

    def _tell(self, traces: list[list[Span]]) -> None:
        sessions: dict[str, list[tuple[Span, Origin]]] = {}
        for spans in traces:
            self._spans += len(spans)
            for span in spans:
                self.interpret(span)
            tree = Tree(spans)
            for span in tree.spans:
                session = tree.session_of(span, "1")
                sessions.setdefault(session, []).append((span, tree.origin_of(span, session)))
        for found in sorted(sessions.values(), key=_begin):
            SessionSpans(self._assembler, self._problems).assemble(found)


def _begin(spans: list[tuple[Span, Origin]]) -> float:
    return min((span.start for span, _ in spans if span.start is not None), default=0.0)
