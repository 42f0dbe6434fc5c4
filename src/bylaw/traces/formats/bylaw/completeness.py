"""Whether a file holds all it should: by its header, by its last line, or by the last line of each recording in it."""

from __future__ import annotations

from bylaw.traces.formats.bylaw.wire import Header, TraceEndLine, TraceStartLine


class Completeness:
    def __init__(self, header: Header) -> None:
        self._is_marked = header.complete == "marked"
        self._told = header.complete is True
        self._under_way: set[str | None] = set()
        """recordings that have begun and not ended"""
        self._torn = False

    def begins(self, line: TraceStartLine) -> None:
        self._under_way.add(line.recording)

    def ends(self, line: TraceEndLine) -> None:
        if line.recording is None:
            self._told = line.complete
        elif line.complete:
            self._told = True
            self._under_way.discard(line.recording)

    def excuses(self, raw: bytes) -> bool:
        """Whether a line that cannot be read is one that a writer was cut off in, and so no mistake in the file."""
        if not self._is_marked or raw.endswith(b"\n"):
            return False
        self._torn = True
        return True

    @property
    def is_complete(self) -> bool:
        return self._told and not self._under_way and not self._torn

    def notes(self) -> list[str]:
        count = len(self._under_way)
        cut = "a recording was" if count == 1 else f"{count:,} recordings were"
        told = [f"{cut} cut off before the end"] if count else []
        return [*told, *(["the last line is cut off and was left out"] if self._torn else [])]
