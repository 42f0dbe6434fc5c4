"""Compliance reports for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from bylaw.comply.decide import coverage_of
from bylaw.comply.model import BehavioralRule, ComplyReport, PromptDiff, PromptRule, RuleChange, State
from bylaw.comply.report import wording
from bylaw.report.json import diagnostic_as_json

_STATED = ("rule_id", "description", "trigger", "required_action", "forbidden_action", "severity")
"""what the prompt says of a rule, whatever the traces show"""
_STATES = (State.VIOLATED, State.UNDECIDED, State.SATISFIED, State.NOT_TRIGGERED)


def render_comply(report: ComplyReport) -> str:
    return _dump(
        {
            "schema": "bylaw.comply/1",
            "job": "comply",
            "exit_code": report.exit_code,
            "verdict": wording.headline(report),
            **_whole(report),
            "rules": _rules(report),
            "prompt": {"file": report.prompt, "sha256": report.sha256},
            "results": [result.to_dict() for result in report.results],
            "notes": list(report.notes),
            "unread": list(map(diagnostic_as_json, report.unread)),
            **({"diagnostics": list(map(diagnostic_as_json, report.unread))} if report.unread else {}),
        }
    )


def _whole(report: ComplyReport) -> dict[str, Any]:
    """The fields of a `ComplianceResult`, over all traces."""
    results = report.results
    rules = [rule for result in results for rule in result.extracted_rules]
    return {
        "detected": report.detected,
        "confidence": max((result.confidence for result in results), default=0.0),
        "violations": [{**one.to_dict(), "trace": result.trace} for result in results for one in result.violations],
        "extracted_rules": [{field: getattr(rule, field) for field in _STATED} for rule in _first(rules)],
        "tokens_used": sum(result.tokens_used for result in results),
        "cost_usd": sum(result.cost_usd for result in results),
        "coverage": coverage_of(rules),
        "degraded": list(dict.fromkeys(note for result in results for note in result.degraded)),
    }


def _rules(report: ComplyReport) -> list[dict[str, Any]]:
    """Each rule with its place in the prompt and its state: the first of `_STATES` that it has on any trace."""
    every: dict[str, list[BehavioralRule]] = {}
    for result in report.results:
        for rule in result.extracted_rules:
            every.setdefault(rule.rule_id, []).append(rule)
    listed = []
    for rules in every.values():
        rule = min(rules, key=lambda rule: _STATES.index(rule.state))
        line, column = wording.line_and_column(report.text, rule.start)
        listed.append(
            {
                "rule_id": rule.rule_id,
                "state": rule.state,
                "confidence": rule.confidence,
                "span": {"start": rule.start, "end": rule.end, "line": line, "column": column},
                "tier": rule.tier,
                "severity": rule.severity,
                "decided_by": rule.decided_by,
                "reason": rule.reason,
                "traces": {state: sum(one.state is state for one in rules) for state in State},
            }
        )
    return listed


def _first(rules: Sequence[BehavioralRule]) -> list[BehavioralRule]:
    """Each rule once."""
    return list({rule.rule_id: rule for rule in reversed(rules)}.values())[::-1]


def render_rules(rules: Sequence[PromptRule], file: str, text: str) -> str:
    listed = [_rule(rule, text) for rule in rules]
    return _dump({"schema": "bylaw.comply-rules/1", "job": "comply rules", "prompt": file, "rules": listed})


def render_diff(diff: PromptDiff) -> str:
    return _dump(
        {
            "schema": "bylaw.comply-diff/1",
            "job": "comply diff",
            "exit_code": diff.exit_code,
            "verdict": wording.diff_headline(diff),
            "before": diff.before,
            "after": diff.after,
            "changes": [_change(diff, change) for change in diff.changes],
            "unchanged": diff.unchanged,
            "notes": list(diff.notes),
        }
    )


def _change(diff: PromptDiff, change: RuleChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "why": change.why,
        "before": change.before and _rule(change.before, diff.texts[0]),
        "after": change.after and _rule(change.after, diff.texts[1]),
    }


def _rule(rule: PromptRule, text: str) -> dict[str, Any]:
    line, column = wording.line_and_column(text, rule.start)
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    return {**fields, "items": [one.item for one in rule.items], "line": line, "column": column}


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
