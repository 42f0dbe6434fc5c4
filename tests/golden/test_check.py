"""The report of `bylaw check`, and diagnostics."""

from __future__ import annotations

import pytest

from bylaw.check.api import check
from bylaw.check.report import RENDERERS
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.verdict import CheckReport
from bylaw.report.diagnostics import render_diagnostics
from bylaw.rules import parse_rules
from tests.golden.conftest import Golden
from tests.support.build import trace

RULES = r"""
rules:
  - id: confirm-before-refund
    description: money moves only after the amount was confirmed
    kind: must_call_before
    params: {first: confirm, second: "refund*"}
    scope: session
  - {id: no-secrets, kind: forbidden_text, params: {text: "sk-[a-z0-9]+", regex: true}, severity: critical}
  - {id: budget, kind: max_total_tokens, params: {n: 100}, severity: warning}
  - {id: never-delete, kind: no_call, params: {tool: delete}}
  - id: large-orders
    kind: no_call
    params: {tool: refund}
    when: [{path: request.params.amount, op: ">", value: 500}]
  - {id: say-goodbye, kind: must_include_text, params: {text: goodbye}, severity: info}
"""

TURNS = [
    {"session": "a", "calls": ["confirm", {"name": "refund", "args": {"id": "A-1", "amount": 45}}], "tokens": [10, 5]},
    {"session": "b", "calls": [{"name": "refund_all", "args": {"why": "`<b>x</b>` | \x1b[31mred"}}], "tokens": [10, 5]},
    {"session": "b", "text": "your key is sk-abc123, keep *it* safe", "request": {"params": {"amount": "1,500"}}},
]


def _report() -> CheckReport:
    clean = trace([{"text": "goodbye", "tokens": [1, 1]}], name="clean.jsonl")
    return check([trace(TURNS, name="run.jsonl"), clean], parse_rules(RULES, file="bylaw.yaml").rules)


def _diagnostics() -> tuple[Diagnostic, ...]:
    text = RULES.replace("must_call_before", "must_preceed").replace("severity: warning", "sevrity: warning")
    return parse_rules(text, file="bylaw.yaml").diagnostics


@pytest.mark.parametrize("format", RENDERERS)
def test_check(format: str, golden: Golden) -> None:
    golden("check", format, RENDERERS[format](_report()))


def test_diagnostics(golden: Golden) -> None:
    golden("diagnostics", "terminal", render_diagnostics(_diagnostics()))
