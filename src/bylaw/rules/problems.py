"""Where diagnostics are collected: all of a file's, each with its place and source line."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from bylaw.model.diagnostic import Diagnostic, Related
from bylaw.model.source import Span
from bylaw.rules.source import Source

MAX_PROBLEMS = 1000
"""errors, and as many warnings, that one file can have. A hostile file must not cost more than its own size warrants"""

Severity: TypeAlias = Literal["error", "warning"]


class Unreadable(Exception):
    """The file cannot be read to its end. Why has been reported already."""


class Place(Protocol):
    """Anything that stands somewhere in the text."""

    @property
    def head(self) -> Span: ...


class Problems:
    """The diagnostics of one file. Raises Unreadable where there are too many errors to go on."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._found: dict[tuple[str, str, Span], Diagnostic] = {}
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}

    def error(
        self, *, code: str, message: str, at: Place, help: str | None = None, related: tuple[Related, ...] = ()
    ) -> None:
        self._add(self._diagnostic("error", code, message, at.head, help, related))
        if self._counts["error"] > MAX_PROBLEMS:
            raise Unreadable

    def warn(self, *, code: str, message: str, at: Place, help: str | None = None) -> None:
        self._add(self._diagnostic("warning", code, message, at.head, help, ()))

    def related(self, at: Place, message: str) -> Related:
        """A second place in the same file."""
        return Related(span=at.head, message=message, excerpt=self.source.excerpt(at.head)[0])

    @property
    def all(self) -> tuple[Diagnostic, ...]:
        return tuple(sorted(self._found.values(), key=Diagnostic.sort_key))

    def _add(self, diagnostic: Diagnostic) -> None:
        assert diagnostic.span is not None
        key = (diagnostic.code, diagnostic.message, diagnostic.span)
        if key in self._found:  # an aliased mapping is read once per alias, but is wrong only once
            return
        self._counts[diagnostic.severity] += 1
        excess = self._counts[diagnostic.severity] - MAX_PROBLEMS
        if excess == 1:
            diagnostic = self._more(diagnostic.severity, diagnostic.span)
        if excess <= 1:
            self._found[key] = diagnostic

    def _more(self, severity: Severity, span: Span) -> Diagnostic:
        message = f"there are more than {MAX_PROBLEMS} {severity}s; those from here on are not shown"
        return self._diagnostic(severity, code="more-problems", message=message, span=span, help=None, related=())

    def _diagnostic(
        self, severity: Severity, code: str, message: str, span: Span, help: str | None, related: tuple[Related, ...]
    ) -> Diagnostic:
        excerpt, column = self.source.excerpt(span)
        return Diagnostic(
            code=code,
            message=message,
            severity=severity,
            file=self.source.file,
            span=span,
            excerpt=excerpt,
            excerpt_column=column,
            help=help,
            related=related,
        )
