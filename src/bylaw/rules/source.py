"""One rule file's text, and the way from an offset in it to a line and a column."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right

from bylaw.model.source import Span

MAX_LINE = 400
"""of longer source lines only a part is shown: one minified line must not fill the terminal"""
PART = 160
LEAD = 60
"""how much of a long line is shown, and how much of that stands before the place"""

# Only what editors count as a line end. YAML counts three more, so its own line numbers are not used.
_LINE_END = re.compile(r"\r\n?|\n")
# Bidirectional controls would let a file show other text than it holds.
_UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Source:
    """Text with a name. Offsets count characters from 0; lines and columns count from 1."""

    __slots__ = ("_starts", "file", "text")

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text.removeprefix("\ufeff")
        self._starts: array[int] | None = None

    def span(self, start: int, end: int) -> Span:
        """The stretch from `start` to `end`, at least one column wide so that a caret can stand under it."""
        line, column = self._place(start)
        end_line, end_column = self._place(max(end, start))
        if (end_line, end_column) == (line, column):
            end_column += 1
        return Span(self.file, line, column, end_line, end_column)

    def line_end(self, offset: int) -> int:
        """The offset at which the line of `offset` ends, without its line end."""
        starts = self._lines()
        line = bisect_right(starts, offset)
        if line == len(starts):
            return len(self.text)
        end = starts[line]
        return end - 2 if self.text.startswith("\r\n", end - 2) else end - 1

    def excerpt(self, span: Span) -> tuple[str, int]:
        """The line that `span` starts on, or the part of a long one around it; and the column that it begins at."""
        start = self._lines()[span.line - 1]
        end = self.line_end(start)
        if end - start <= MAX_LINE:
            return _printable(self.text[start:end]), 1
        skipped = max(0, min(span.column - 1 - LEAD, end - start - PART))
        part = _printable(self.text[start + skipped : start + skipped + PART])
        left, right = "…" if skipped else part[:1], "…" if start + skipped + PART < end else part[-1:]
        return f"{left}{part[1:-1]}{right}", skipped + 1

    def _place(self, offset: int) -> tuple[int, int]:
        starts = self._lines()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def _lines(self) -> array[int]:
        if self._starts is None:
            self._starts = array("I", [0])
            self._starts.extend(end.end() for end in _LINE_END.finditer(self.text))
        return self._starts


def _printable(line: str) -> str:
    """One character for one, so that columns stay what they are."""
    return _UNPRINTABLE.sub("\ufffd", line)
