"""A timeline for people, one entry at a time, so that a trace of any length flows through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bylaw.inspect.model import Entry, EventEntry, RequestEntry, SessionEntry, Totals, TurnEntry
from bylaw.inspect.report.heading import note_lines, session_lines, title, totals_lines
from bylaw.inspect.report.lines import DIM, Line, labelled
from bylaw.inspect.report.turns import View, entry_lines, request_lines, turn_blocks

NARROWEST = 40


class Page:
    """Renders entries in their order; remembers which model spoke last, to name it only where that changes."""

    def __init__(self, *, width: int, full: bool = False) -> None:
        self._view = View(max(width, NARROWEST), full)
        self._model: str | None = None

    def title(self, name: str, format: str | None) -> str:
        return _text(title(name, format, self._view.width))

    def promise(self) -> str:
        """In place of the totals, where a trace is too long to know them yet."""
        return _text(labelled("holds", DIM, ["much: what it comes to is told at the end"], DIM))

    def totals(
        self, totals: Totals, *, complete: bool, skipped: int = 0, warnings: int = 0, notes: Sequence[str] = ()
    ) -> str:
        columns = self._view.width
        lines = totals_lines(totals, complete=complete, skipped=skipped, warnings=warnings, columns=columns)
        return _text([*lines, *note_lines(notes, columns)])

    def entry(self, entry: Entry) -> str:
        return _text(self._lines(entry))

    def _lines(self, entry: Entry) -> Iterable[Line]:
        if isinstance(entry, SessionEntry):
            return session_lines(entry, self._view.width)
        if isinstance(entry, TurnEntry):
            return [line for block in turn_blocks(entry, self._view, model=self._says(entry)) for line in block.lines]
        if isinstance(entry, RequestEntry):
            return request_lines(entry, self._view)
        assert isinstance(entry, EventEntry)
        return entry_lines(entry, self._view)

    def _says(self, entry: TurnEntry) -> bool:
        response = entry.response
        model = response.model or (response.request.model if response.request else None)
        changed = model is not None and model != self._model
        self._model = model or self._model
        return changed


def _text(lines: Iterable[Line]) -> str:
    return "".join(f"{line.text}\n" for line in lines)
