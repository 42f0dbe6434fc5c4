"""Runs every case file in this folder. See tests/README.md for the format of a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.events import Trace
from bylaw.model.verdict import Verdict
from bylaw.rules import parse_rules
from bylaw.traces import load_trace
from tests.support.build import trace as build
from tests.support.judge import every_way
from tests.support.yaml_files import load_yaml

HERE = Path(__file__).parent
_CASE_KEYS = {
    "name",
    "about",
    "rules",
    "turns",
    "file",
    "from",
    "suffix",
    "complete",
    "want",
    "sessions",
    "trace_notes",
}
_WANT_KEYS = {"outcome", "turns", "sessions", "message", "exactly", "evidence", "notes"}


def _cases() -> list[Any]:
    found = []
    for path in sorted(HERE.rglob("*.yaml")):
        for case in load_yaml(path.read_text("utf-8")):
            found.append(pytest.param(case, id=f"{path.relative_to(HERE).with_suffix('')}/{case['name']}"))
    return found


@pytest.mark.parametrize("case", _cases())
def test_case(case: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert case.keys() <= _CASE_KEYS, f"unknown keys in the case: {case.keys() - _CASE_KEYS}"
    trace = _trace(case, request)
    text = case["rules"] if isinstance(case["rules"], str) else yaml.dump(case["rules"], Dumper=yaml.CSafeDumper)
    ruleset = parse_rules(text, file="rules.yaml")
    assert not [d for d in ruleset.diagnostics if d.is_error], ruleset.diagnostics
    answers = every_way(ruleset.rules, trace.events, trace.complete)
    verdicts = _verdicts(ruleset.rules, trace)
    assert case["want"].keys() == answers.keys(), "a case says what it wants of every rule"
    for rule, want in case["want"].items():
        _compare(want, *answers[rule], [v for v in verdicts if v.rule.id == rule])
    if "sessions" in case:
        assert [e.origin.session for e in trace.events if e.kind == "response"] == [str(s) for s in case["sessions"]]
    for part in case.get("trace_notes", []):
        assert any(part in note for note in trace.notes), trace.notes


def _trace(case: dict[str, Any], request: pytest.FixtureRequest) -> Trace:
    if "turns" in case:
        return build(case["turns"], complete=case.get("complete", True))
    path = request.getfixturevalue("tmp_path") / f"trace{case.get('suffix', '.jsonl')}"
    path.write_text(case["file"], "utf-8")
    return load_trace(path, format=case.get("from"))


def _verdicts(rules: Any, trace: Trace) -> list[Verdict]:
    evaluation = Evaluation(compile_rules(rules))
    return [v for event in trace.events for v in evaluation.step(event)] + evaluation.end(complete=trace.complete)


def _compare(want: Any, outcome: Any, turns: list[int | None], verdicts: list[Verdict]) -> None:
    """`want` is an outcome, or a mapping with `outcome` and any of turns, sessions, message, evidence, notes."""
    want = {"outcome": want} if isinstance(want, str) else want
    assert want.keys() <= _WANT_KEYS, f"unknown keys in want: {want.keys() - _WANT_KEYS}"
    assert outcome.value == want["outcome"], verdicts
    assert turns == want.get("turns", turns if outcome.value == "violated" else [])
    broken = [v for v in verdicts if v.outcome.value == want["outcome"]]
    if "sessions" in want:
        assert [v.session for v in broken] == [None if s is None else str(s) for s in want["sessions"]]
    if "exactly" in want:
        assert {v.message for v in broken} == {want["exactly"]}
    if "message" in want:
        assert any(want["message"] in v.message for v in broken), broken
    for part in want.get("evidence", []):
        assert any(part in str(e.excerpt) or part == e.name for v in broken for e in v.evidence), broken
    for part in want.get("notes", []):
        assert any(part in note for v in verdicts for note in v.notes), verdicts
