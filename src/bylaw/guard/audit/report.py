"""An audit's verification: for people, and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from bylaw.guard.audit.model import AuditFinding, AuditReport
from bylaw.report.text import printable

_COLOURS = {0: "green", 1: "red", 3: "yellow"}
_MARKS = {0: "✓", 1: "✗", 3: "∅"}
_LONGEST = 160
"""characters shown of what was expected and found"""


def render_json(report: AuditReport) -> str:
    told: dict[str, Any] = {
        "job": "audit",
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "intact": report.intact,
        "left_out": report.left_out,
        "anchored": bool(report.known),
    }
    return json.dumps({**told, **msgspec.to_builtins(report)}, ensure_ascii=False, indent=2) + "\n"


def render_terminal(report: AuditReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def headline(report: AuditReport) -> str:
    if report.findings:
        found = len(report.findings) + report.more
        return f"{found:,} finding{'' if found == 1 else 's'}: the audit cannot be trusted as it is"
    if not report.rows:
        return "nothing to verify: the audit has no rows"
    if report.left_out:
        return "the chain is intact, and not every verdict could be recomputed"
    return "the chain is intact, and every verdict follows from it"


def _lines(report: AuditReport) -> Iterator[str]:
    code = report.exit_code
    yield click.style(f"{_MARKS[code]} {headline(report)}", fg=_COLOURS[code], bold=True)
    yield f"rows: {report.rows:,}, decisions: {report.decisions:,}, recomputed: {report.recomputed:,}"
    for finding in report.findings:
        yield from _finding(finding)
    if report.more:
        yield f"and {report.more:,} more"
    if report.unrecomputed:
        yield click.style(f"not recomputed: {report.left_out:,}", bold=True)
    for reason, left in sorted(report.unrecomputed.items(), key=lambda item: -item[1].rows):
        seqs = ", ".join(map(str, left.seqs)) + (", …" if left.rows > len(left.seqs) else "")
        yield f"    {left.rows:,}: {printable(reason)} (row {seqs})"
    yield f"head: {report.head}"
    if not report.known:
        note = "no head from elsewhere was given, so a file that was put back as a whole would not show (`--head`)"
        yield click.style(f"note: {note}", dim=True)


def _finding(finding: AuditFinding) -> Iterator[str]:
    where = f"row {finding.seq}" + (f", session {printable(finding.session)}" if finding.session else "")
    kind = click.style(finding.kind, fg="red", bold=True)
    yield f"{kind}  {where}: {printable(finding.message)}"
    if finding.expected is not None:
        yield f"    expected: {_short(finding.expected)}"
    if finding.found is not None:
        yield f"    found:    {_short(finding.found)}"


def _short(text: str) -> str:
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
