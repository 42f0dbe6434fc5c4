"""The report for programs. Findings are written one by one, so that any number of them fits."""

from __future__ import annotations

from typing import Any, TextIO

import msgspec

from bylaw.check.report import wording
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.report import CheckReport, Finding


class JsonStream:
    """`{"schema", "job", "findings": [ … ], …}`: findings first, since the counts are known last."""

    def __init__(self, out: TextIO, job: str = "check") -> None:
        self._out = out
        self._job = job
        self._written = 0

    def finding(self, finding: Finding) -> None:
        self._open()
        self._out.write(",\n    " if self._written else "\n    ")
        self._out.write(_dump(finding_as_json(finding)))
        self._written += 1

    def end(self, fields: dict[str, Any]) -> None:
        self._open()
        self._out.write("\n  ]" if self._written else "]")
        for key, value in fields.items():
            self._out.write(f",\n  {_dump(key)}: {_dump(value)}")
        self._out.write("\n}\n")

    def _open(self) -> None:
        if self._job:
            self._out.write(f'{{\n  "schema": "bylaw.{self._job}/1",\n  "job": "{self._job}",\n  "findings": [')
            self._job = ""


def write_check(report: CheckReport, out: TextIO) -> None:
    stream = JsonStream(out)
    for finding in report.findings:
        stream.finding(finding)
    stream.end(check_fields(report))


def check_fields(report: CheckReport) -> dict[str, Any]:
    """All of a check but its findings."""
    return {
        "exit_code": report.exit_code,
        "verdict": wording.headline(report),
        "outcomes": msgspec.to_builtins(report.outcomes),
        "by_rule": msgspec.to_builtins(report.by_rule),
        "never_triggered": wording.never_triggered(report),
        "finding_count": report.finding_count,
        "rules": len(report.rules),
        "turns": report.turns,
        "sessions": report.sessions,
        "skipped": report.skipped,
        "fail_on": report.fail_on,
        "traces": [
            {**msgspec.to_builtins(trace), "problems": [diagnostic_as_json(d) for d in trace.problems]}
            for trace in report.traces
        ],
        "notes": msgspec.to_builtins(report.notes),
        "unread": [diagnostic_as_json(diagnostic) for diagnostic in report.unread],
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    verdict, rule = finding.verdict, finding.verdict.rule
    return {
        "rule": rule.id,
        "kind": rule.kind,
        "severity": rule.severity.value,
        "outcome": verdict.outcome.value,
        "trace": finding.trace,
        "session": verdict.session,
        "turn": verdict.turn,
        "message": verdict.message,
        "evidence": msgspec.to_builtins(verdict.evidence),
        "notes": list(verdict.notes),
        "rule_source": None if rule.span is None else msgspec.to_builtins(rule.span),
    }


def diagnostic_as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """The same fields the terminal shows, with line and column at the top for scripts."""
    place = diagnostic.span
    fields: dict[str, Any] = msgspec.to_builtins(diagnostic)
    return {**fields, "line": place.line if place else None, "column": place.column if place else None}


def _dump(value: Any) -> str:
    return msgspec.json.encode(value).decode()
