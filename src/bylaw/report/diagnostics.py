"""A diagnostic as people read it: the place, the source line, a caret under the exact spot, one line of help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.source import Span
from bylaw.report.text import printable

_COLOURS = {"error": "red", "warning": "yellow"}


def render_diagnostics(diagnostics: Sequence[Diagnostic]) -> str:
    """All of them, sorted by place, with a count at the end."""
    ordered = sorted(diagnostics, key=Diagnostic.sort_key)
    return "\n\n".join(render_diagnostic(diagnostic) for diagnostic in ordered) + "\n"


def render_diagnostic(diagnostic: Diagnostic) -> str:
    return "\n".join(_lines(diagnostic))


def _lines(diagnostic: Diagnostic) -> Iterator[str]:
    title = click.style(f"{diagnostic.severity}[{diagnostic.code}]", fg=_COLOURS[diagnostic.severity], bold=True)
    yield f"{title}: {printable(diagnostic.message)}"
    gutter = len(str(diagnostic.span.line)) if diagnostic.span else 1
    if diagnostic.span is None:
        yield f"{' ' * gutter}--> {printable(diagnostic.file)}"
    else:
        yield f"{' ' * gutter}--> {printable(str(diagnostic.span))}"
        yield from _snippet(diagnostic, diagnostic.span, gutter)
    for related in diagnostic.related:
        yield f"{' ' * gutter} = note: {printable(related.message)} at {printable(str(related.span))}"
    if diagnostic.help:
        yield f"{' ' * gutter} = help: {printable(diagnostic.help)}"


def _snippet(diagnostic: Diagnostic, span: Span, gutter: int) -> Iterator[str]:
    excerpt = diagnostic.excerpt
    if excerpt is None:
        return
    margin = " " * gutter
    yield f"{margin} |"
    yield f"{span.line} | {''.join(c if c.isprintable() else ' ' for c in excerpt)}"
    start = span.column - diagnostic.excerpt_column
    if 0 <= start <= len(excerpt):
        width = span.end_column - span.column if span.end_line == span.line else len(excerpt) - start
        yield f"{margin} | {' ' * start}{'^' * max(1, min(width, len(excerpt) - start))}"
