"""Where diagnostics are collected: all of a file's, each with its place and source line."""

from __future__ import annotations

from typing import Literal, Protocol

from bylaw.dialects.source import Source
from bylaw.model.diagnostic import Diagnostic, Related
from bylaw.model.source import Span

MAX_PROBLEMS = 1000
"""per file; the rest are counted. A hostile file must not cost more memory than its own size warrants"""


class Place(Protocol):
    """Anything that stands somewhere in the text: a node, or a pair of offsets."""

    @property
    def head(self) -> Span: ...


class Problems:
    """The diagnostics of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._found: dict[tuple[str, str, Span], Diagnostic] = {}
        self._dropped = 0
        self._first_dropped: Span | None = None

    def error(
        self, *, code: str, message: str, at: Place | Span, help: str | None = None, related: tuple[Related, ...] = ()
    ) -> None:
        self._add("error", code, message, at, help, related)

    def warn(
        self, *, code: str, message: str, at: Place | Span, help: str | None = None, related: tuple[Related, ...] = ()
    ) -> None:
        self._add("warning", code, message, at, help, related)

    def related(self, at: Place | Span, message: str) -> Related:
        """A second place in the same file."""
        span = at if isinstance(at, Span) else at.head
        return Related(span=span, message=message, excerpt=self.source.excerpt(span)[0])

    @property
    def all(self) -> tuple[Diagnostic, ...]:
        found = list(self._found.values())
        if self._first_dropped is not None:
            message = f"{self._dropped} more problems from here on are not shown"
            help = f"the first {MAX_PROBLEMS} are shown; mend those first"
            found.append(self._diagnostic("error", "more-problems", message, self._first_dropped, help))
        return tuple(sorted(found, key=Diagnostic.sort_key))

    def _add(
        self,
        severity: Literal["error", "warning"],
        code: str,
        message: str,
        at: Place | Span,
        help: str | None,
        related: tuple[Related, ...],
    ) -> None:
        span = at if isinstance(at, Span) else at.head
        key = (code, message, span)
        if key in self._found:  # an aliased mapping is read once per alias, but is wrong only once
            return
        if len(self._found) >= MAX_PROBLEMS:
            self._dropped += 1
            self._first_dropped = self._first_dropped or span
            return
        self._found[key] = self._diagnostic(severity, code, message, span, help, related)

    def _diagnostic(
        self,
        severity: Literal["error", "warning"],
        code: str,
        message: str,
        span: Span,
        help: str | None,
        related: tuple[Related, ...] = (),
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
