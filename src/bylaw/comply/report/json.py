"""Compliance reports for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from bylaw.comply.model import ComplyReport, PromptDiff, PromptRule, RuleChange
from bylaw.comply.report import wording


def render_comply(report: ComplyReport) -> str:
    return _dump(
        {
            "schema": "bylaw.comply/1",
            "job": "comply",
            "exit_code": report.exit_code,
            "verdict": wording.headline(report),
            "detected": report.detected,
            "prompt": {"file": report.prompt, "sha256": report.sha256},
            "results": [msgspec.to_builtins(result) for result in report.results],
            "notes": list(report.notes),
        }
    )


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
