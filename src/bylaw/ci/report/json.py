"""The whole gate for programs: the summary, and each job's own document under its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from bylaw.ci.model import CiReport
from bylaw.ci.report import wording


def render_ci(report: CiReport, reports: Mapping[str, str]) -> str:
    """`reports`: the JSON of each part that ran."""
    fields: dict[str, Any] = {
        "schema": "bylaw.ci/1",
        "job": "ci",
        "exit_code": report.exit_code,
        "verdict": wording.headline(report),
        "score": report.score,
        "min_score": report.min_score,
        "contract_compliance": report.contract_compliance,
        "parts": msgspec.to_builtins(report.parts),
        "left_out": list(report.left_out),
        "reports": {name: json.loads(text) for name, text in reports.items()},
    }
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
