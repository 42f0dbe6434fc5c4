"""The comparison for programs."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bylaw.diff.model import DiffReport
from bylaw.diff.report import wording
from bylaw.report.diagnostics import diagnostic_as_json


def render_diff(report: DiffReport) -> str:
    return json.dumps(diff_as_json(report), indent=2, ensure_ascii=False) + "\n"


def diff_as_json(report: DiffReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    return {
        "schema": "bylaw.diff/1",
        "job": "diff",
        "exit_code": report.exit_code,
        "verdict": wording.headline(report),
        "summary": list(wording.summary(report)),
        "worst": report.worst.value,
        "gate": {"fail_on": report.fail_on.value, "tripped": report.tripped},
        "axes": fields["axes"],
        "semantic_measure": report.semantic_measure,
        "findings": fields["findings"],
        "tool_rates": [one for one in fields["findings"] if one["what"] == "calls"],
        "first_divergence": fields["divergences"][0] if report.divergences else None,
        "divergences": fields["divergences"],
        "most_important_divergence": msgspec.to_builtins(report.most_important),
        "divergence_count": report.divergence_count,
        "policy": fields["policy"],
        "sessions": fields["sessions"],
        "fingerprint": fields["fingerprint"],
        "tasks": report.groups,
        "turns": {"baseline": report.turns[0], "candidate": report.turns[1]},
        "repeats": report.repeats,
        "by_turn": report.by_turn,
        "deterministic": report.deterministic,
        "pairing": fields["pairing"],
        "guessed_pairs": report.guessed,
        "confirmable": report.confirmable,
        "exchanged_figures": report.exchanged,
        "cases": fields["cases"],
        "one_sided": report.one_sided,
        "judge_failure": report.judge_failure,
        "unused_expectations": fields["unused_expectations"],
        "rules": report.rules,
        "notes": fields["notes"],
        "unread": list(map(diagnostic_as_json, report.unread)),
        **({"diagnostics": list(map(diagnostic_as_json, report.unread))} if report.exit_code == 2 else {}),
    }
