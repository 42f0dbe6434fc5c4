"""Where something stands: in a rule file (`Span`) or in a recorded trace (`Locator`)."""

from __future__ import annotations

from msgspec import Struct


class Span(Struct, frozen=True, order=True):
    """A stretch of a user's own text. Lines and columns count from 1; the end column is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Locator(Struct, frozen=True, gc=False):
    """Where an event was recorded: a file and a line, or an element's path or span id inside it."""

    file: str
    line: int | None = None
    """1-based line, where the format has lines"""
    item: str | None = None
    """path or span id inside the file, where lines do not tell"""

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.item) if part is not None)
