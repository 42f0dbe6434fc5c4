"""Showing what is wrong with the user's own files, in whatever format the command speaks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bylaw.cli.output import Target, emit, opened
from bylaw.errors import ExitCode
from bylaw.model.diagnostic import Diagnostic

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
    """Bad input: say everything that is wrong on stderr and, where JSON was asked for, there too."""
    from bylaw.report.json import JsonStream, diagnostic_as_json

    show_on_stderr(diagnostics)
    for target in targets:
        if target.format == "json":
            with opened(target) as out:
                fields = {"diagnostics": [diagnostic_as_json(d) for d in diagnostics]}
                JsonStream(out, job).end({"exit_code": int(ExitCode.BAD_INPUT), **fields})
    return ExitCode.BAD_INPUT
