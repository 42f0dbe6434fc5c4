"""The report as JSON, for programs."""

from __future__ import annotations

import io
from typing import Any

import msgspec

from bylaw.check.report import wording
from bylaw.model.verdict import CheckReport, Finding
from bylaw.report.json import JsonStream, diagnostic_as_json


def render_check(report: CheckReport) -> str:
    text = io.StringIO()
    stream = JsonStream(text, "check")
    for finding in report.findings:
        stream.finding(finding_as_json(finding))
    stream.end(check_fields(report))
    return text.getvalue()


def check_fields(report: CheckReport) -> dict[str, Any]:
    """Every field except the findings."""
    return {
        "exit_code": report.exit_code,
        "verdict": wording.headline(report),
        "outcomes": msgspec.to_builtins(report.outcomes),
        "by_rule": msgspec.to_builtins(report.by_rule),
        "unchecked": report.unchecked,
        "never_triggered": wording.never_triggered(report),
        "finding_count": report.finding_count,
        "rules": len(report.rules),
        "turns": report.turns,
        "sessions": report.sessions,
        "skipped": report.skipped,
        "fail_on": report.fail_on,
        "strict": report.strict,
        "warnings": [diagnostic_as_json(diagnostic) for diagnostic in report.warnings],
        "traces": [
            {**msgspec.to_builtins(trace), "problems": [diagnostic_as_json(d) for d in trace.problems]}
            for trace in report.traces
        ],
        "notes": msgspec.to_builtins(report.notes),
        "unread": [diagnostic_as_json(diagnostic) for diagnostic in report.unread],
        **({"diagnostics": list(map(diagnostic_as_json, report.unread))} if report.exit_code == 2 else {}),
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
