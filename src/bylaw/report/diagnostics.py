"""Diagnostics: as people read them on stderr, and as the document that a report in any format becomes on bad input."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import click
import msgspec

from bylaw.errors import ExitCode
from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.report.output import Target, emit, open_target
from bylaw.report.text import escape_markdown, printable, terminal_width, wrap

MOST_PRINTED = 100
"""diagnostics printed to a terminal; JSON holds all of them"""
_COLOURS = {"error": "red", "warning": "yellow"}


def summarize(diagnostic: Diagnostic) -> str:
    """A diagnostic in one line, for the list of warnings in a report."""
    help = f"; {diagnostic.help}" if diagnostic.help else ""
    return f"{diagnostic.span or diagnostic.file}: {diagnostic.message}{help} [{diagnostic.code}]"


def report_bad_input(job: str, diagnostics: Sequence[Diagnostic], targets: Sequence[Target]) -> ExitCode:
    """Print every problem to stderr, and write it to each target in place of the report.

    So a program that reads the report never finds an empty or an older one.
    """
    print_diagnostics(diagnostics)
    write_bad_input(job, diagnostics, targets)
    return ExitCode.BAD_INPUT


def write_bad_input(job: str, diagnostics: Sequence[Diagnostic], targets: Sequence[Target]) -> None:
    """A terminal is left out: it has shown the problems already. A format that cannot say it gets an empty document."""
    for target in targets:
        if target.file is not None or target.format != "terminal":
            with open_target(target) as out:
                out.write(_document(job, diagnostics, target.format))


def _document(job: str, diagnostics: Sequence[Diagnostic], format: str) -> str:
    if format == "json":
        text = io.StringIO()
        JsonStream(text, job).end(end_fields(ExitCode.BAD_INPUT, diagnostics))
        return text.getvalue()
    lines = [f"{d.span or d.file}: {d.severity}[{d.code}]: {d.message}" for d in diagnostics]
    if format == "markdown":
        lines = [f"### ❌ Bylaw {job}: BAD INPUT", "", *(f"- {escape_markdown(line)}" for line in lines)]
    elif format in ("terminal", "text"):
        lines = ["BAD INPUT", *lines]
    else:
        return ""
    return "\n".join(lines) + "\n"


# -- as JSON -----------------------------------------------------------------------------------------------------------


class JsonStream:
    """Writes `{"schema", "job", "findings": [ … ], …}`: findings one by one, then the counts, which are known last."""

    def __init__(self, out: TextIO, job: str) -> None:
        self._out = out
        self._head = f'{{\n  "schema": "bylaw.{job.replace(" ", "-")}/1",\n  "job": "{job}",\n  "findings": ['
        self._written = 0

    def finding(self, finding: dict[str, Any]) -> None:
        separator = "," if self._written else self._head
        self._out.write(f"{separator}\n    {_encode(finding)}")
        self._written += 1

    def end(self, fields: dict[str, Any]) -> None:
        self._out.write("\n  ]" if self._written else f"{self._head}]")
        for key, value in fields.items():
            self._out.write(f",\n  {_encode(key)}: {_encode(value)}")
        self._out.write("\n}\n")


def end_fields(code: ExitCode, diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The end of a document without a whole report, after `findings`: bad input, or the command was interrupted."""
    return {"exit_code": int(code), "diagnostics": [diagnostic_as_json(d) for d in diagnostics]}


def diagnostic_as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """The fields of a diagnostic, with line and column at the top for scripts."""
    place = diagnostic.span
    fields: dict[str, Any] = msgspec.to_builtins(diagnostic)
    return {**fields, "line": place.line if place else None, "column": place.column if place else None}


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# -- for people --------------------------------------------------------------------------------------------------------


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    if not diagnostics:
        return
    emit(render_diagnostics(diagnostics[:MOST_PRINTED]), sys.stderr)
    if len(diagnostics) > MOST_PRINTED:
        emit(f"… and {len(diagnostics) - MOST_PRINTED:,} more\n", sys.stderr)


def render_diagnostics(diagnostics: Sequence[Diagnostic]) -> str:
    """Sorted by place, with an empty line between two."""
    ordered = sorted(diagnostics, key=Diagnostic.sort_key)
    return "\n\n".join(render_diagnostic(diagnostic) for diagnostic in ordered) + "\n"


def render_diagnostic(diagnostic: Diagnostic) -> str:
    """The message, the place, the source line with a caret under the exact spot, and a line of help."""
    return "\n".join(_lines(diagnostic))


def _lines(diagnostic: Diagnostic) -> Iterator[str]:
    title = f"{diagnostic.severity}[{diagnostic.code}]"
    first, *rest = wrap(f"{title}: {diagnostic.message}", hanging="  ")
    yield click.style(title, fg=_COLOURS[diagnostic.severity], bold=True) + first.removeprefix(title)
    yield from rest
    span = diagnostic.span
    margin = " " * len(str(span.line) if span else " ")
    yield f"{margin}--> {printable(str(span) if span else diagnostic.file)}"
    if span is not None and diagnostic.excerpt is not None:
        yield from _snippet(diagnostic.excerpt, diagnostic.excerpt_column, span, margin)
    notes = [f"note: {related.message} at {related.span}" for related in diagnostic.related]
    for note in (*notes, *([f"help: {diagnostic.help}"] if diagnostic.help else ())):
        yield from wrap(note, indent=f"{margin} = ", hanging=f"{margin}   ")


def _snippet(excerpt: str, excerpt_column: int, span: Span, margin: str) -> Iterator[str]:
    start = span.column - excerpt_column
    length = span.end_column - span.column if span.end_line == span.line else len(excerpt) - start
    room = terminal_width() - len(margin) - 3
    if len(excerpt) > room:  # a long line is cut to the text around the problem
        cut = max(0, min(start - room // 3, len(excerpt) - room))
        excerpt, start = excerpt[cut : cut + room], start - cut
    yield f"{margin} |"
    yield f"{span.line} | {''.join(c if c.isprintable() else ' ' for c in excerpt)}"
    if 0 <= start <= len(excerpt):
        yield f"{margin} | {' ' * start}{'^' * max(1, min(length, len(excerpt) - start))}"
