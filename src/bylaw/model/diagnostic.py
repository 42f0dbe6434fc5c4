"""A problem in a user's own file, and its place there: a value, never an exception's text."""

from __future__ import annotations

from typing import Literal

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


class Diagnostic(Struct, frozen=True, kw_only=True):
    """Messages are lower case without a full stop; the user's own text stands in backticks; advice goes to `help`."""

    code: str
    """stable, kebab-case; `bylaw explain CODE` prints its page"""
    message: str
    severity: Literal["error", "warning"] = "error"
    file: str
    span: Span | None = None
    """absent where the problem has no place inside the file (it cannot be opened, say)"""
    excerpt: str | None = None
    """the source line that the span starts on, or the part of a long one around it"""
    excerpt_column: int = 1
    """the column of the excerpt's first character"""
    help: str | None = None
    related: tuple[Related, ...] = ()

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    def sort_key(self) -> tuple[str, int, int, str]:
        line, column = (self.span.line, self.span.column) if self.span else (0, 0)
        return (self.file, line, column, self.code)


class Related(Struct, frozen=True):
    """A second place that explains the first, such as the earlier of two equal ids."""

    span: Span
    message: str
    excerpt: str | None = None
