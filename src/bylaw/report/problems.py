"""Showing what is wrong with the user's own files, in whatever format the command speaks."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from bylaw.errors import ExitCode
from bylaw.model.diagnostic import Diagnostic
from bylaw.report.output import Target, emit, opened

SHOWN = 100
"""diagnostics printed to a terminal; JSON carries all"""


def show_on_stderr(diagnostics: Sequence[Diagnostic]) -> None:
    from bylaw.report.diagnostics import render_diagnostics

    if not diagnostics:
        return
    emit(render_diagnostics(diagnostics[:SHOWN]), sys.stderr)
    if len(diagnostics) > SHOWN:
        emit(f"… and {len(diagnostics) - SHOWN:,} more\n", sys.stderr)


def refuse(job: str, diagnostics: Sequence[Diagnostic], targets: Sequence[Target]) -> ExitCode:
    """Bad input: say everything that is wrong on stderr and in every report that was asked for, so that none of an
    earlier run stays behind and looks like an answer.
    """
    show_on_stderr(diagnostics)
    for target in targets:
        if target.format == "json" or target.file is not None:
            with opened(target) as out:
                out.write(_refusal(job, diagnostics, target.format))
    return ExitCode.BAD_INPUT


def refusal_fields(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    from bylaw.report.json import diagnostic_as_json

    return {"exit_code": int(ExitCode.BAD_INPUT), "diagnostics": [diagnostic_as_json(d) for d in diagnostics]}


def _refusal(job: str, diagnostics: Sequence[Diagnostic], format: str) -> str:
    from bylaw.report.json import JsonStream
    from bylaw.report.markdown import escape

    if format == "json":
        text = io.StringIO()
        JsonStream(text, job).end(refusal_fields(diagnostics))
        return text.getvalue()
    lines = [f"{d.span or d.file}: {d.severity}[{d.code}]: {d.message}" for d in diagnostics]
    if format == "markdown":
        return "\n".join([f"### ❌ Bylaw {job}: BAD INPUT", "", *(f"- {escape(line)}" for line in lines)]) + "\n"
    return "\n".join(["BAD INPUT", *lines]) + "\n"
