"""One report, one golden file per renderer. `pytest tests/golden --update-golden` rewrites them; read the diff."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bylaw.check.job import check
from bylaw.check.report import json, markdown, terminal
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.report import CheckReport
from bylaw.report.diagnostics import render_diagnostics
from bylaw.rules import parse_rules
from tests.support.build import trace

HERE = Path(__file__).parent

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


def _json() -> str:
    out = io.StringIO()
    json.write_check(_report(), out)
    return out.getvalue()


def _diagnostics() -> tuple[Diagnostic, ...]:
    text = RULES.replace("must_call_before", "must_preceed").replace("severity: warning", "sevrity: warning")
    return parse_rules(text, file="bylaw.yaml").diagnostics


RENDERED = {
    "check.terminal.txt": lambda: terminal.render_check(_report()),
    "check.json": _json,
    "check.md": lambda: markdown.render_check(_report()),
    "diagnostics.terminal.txt": lambda: render_diagnostics(_diagnostics()),
}


@pytest.mark.parametrize("name", sorted(RENDERED))
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    rendered = RENDERED[name]()
    path = HERE / name
    if request.config.getoption("--update-golden"):
        path.write_text(rendered, "utf-8")
    assert rendered == path.read_text("utf-8")
