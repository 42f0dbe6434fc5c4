"""The report of `bylaw diff`."""

from __future__ import annotations

import pytest

from bylaw.diff.api import compare_versions
from bylaw.diff.model import DiffReport
from bylaw.diff.report import RENDERERS
from bylaw.rules import parse_rules
from tests.golden.conftest import Golden
from tests.support.build import trace

RULES = """
rules:
  - {id: never-delete, kind: no_call, params: {tool: delete}}
  - {id: say-goodbye, kind: must_include_text, params: {text: goodbye}, severity: info, scope: trace}
"""
BASELINE = [
    {"session": "a", "calls": [{"name": "look_up", "args": {"id": 1}}], "tokens": [10, 50], "latency": 900.0},
    {"session": "a", "text": "Your refund of 45.00 was approved, goodbye", "tokens": [20, 60], "latency": 800.0},
    {"session": "b", "text": "Hello", "tokens": [10, 5]},
    {"session": "c", "text": "Good morning", "tokens": [10, 5]},
]
CANDIDATE = [
    {"session": "a", "calls": [{"name": "delete", "args": {"id": 1}}], "tokens": [10, 50], "latency": 1900.0},
    {"session": "a", "text": "I'm sorry, I can't help with `that` <b>refund</b>", "tokens": [20, 160], "latency": 1.0},
    {"session": "b", "text": "Hello", "tokens": [10, 5]},
]


def _report() -> DiffReport:
    rules = parse_rules(RULES, file="bylaw.yaml").rules
    return compare_versions([trace(BASELINE, name="v1.jsonl")], [trace(CANDIDATE, name="v2.jsonl")], rules)


@pytest.mark.parametrize("format", RENDERERS)
def test_diff(format: str, golden: Golden) -> None:
    golden("diff", format, RENDERERS[format](_report()))
