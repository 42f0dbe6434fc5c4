"""Runs a rule example: rules, a trace and what is wanted, in one YAML block.

| key              | holds                                                                                             |
|------------------|---------------------------------------------------------------------------------------------------|
| `rules`          | as in a rule file                                                                                 |
| `files`          | name → text, beside the rule file                                                                 |
| `turns`          | a trace in the short form of tests/support/build.py; `complete: false` beside it                  |
| `file`           | instead: the text of a trace file, read as `from`, under a name that ends in `suffix`             |
| `want`           | of every rule its outcome, or `outcome` with `turns`, `sessions`, `message`, `evidence`, `notes`  |
| `sessions`       | of the turns, in order                                                                            |
| `trace_notes`    | what the reader remarked                                                                          |
| `report`         | any of `exit_code`, `findings`, `outcomes`                                                        |
| `refused`        | instead of a trace: code and help of each error in the rules                                      |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bylaw.check.api import check
from bylaw.model.events import Trace
from bylaw.model.verdict import CheckReport, Outcome
from bylaw.rules import parse_rules
from bylaw.traces import load_trace
from tests.support.build import trace as build
from tests.support.judge import Answers, every_way, fold, fold_with_peeks, fold_with_snapshots
from tests.support.yaml_files import load_yaml

Way = Callable[..., Answers]

_KEYS = {
    *("rules", "files", "turns", "complete", "file", "from", "suffix"),
    *("want", "sessions", "trace_notes", "report", "refused"),
}
_WANT_KEYS = {"outcome", "turns", "sessions", "message", "evidence", "notes"}
_REPORT_KEYS = {"exit_code", "findings", "outcomes"}


def run(text: str, folder: Path) -> None:
    example = load_yaml(text)
    assert example.keys() <= _KEYS, f"unknown keys: {example.keys() - _KEYS}"
    for name, content in example.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    ruleset = parse_rules(rules_text(text), file="rules.yaml", base=folder)
    errors = [{"code": d.code, "help": d.help} for d in ruleset.diagnostics if d.is_error]
    assert errors == example.get("refused", []), ruleset.diagnostics
    if errors:
        return
    trace = _trace(example, folder)
    report = check([trace], ruleset.rules)
    _compare_verdicts(example["want"], trace, report)
    _compare_trace(example, trace)
    _compare_report(example.get("report", {}), report)


def rules_text(text: str) -> str:
    """The `rules:` part as it is written, so that the rule file's own reader sees it and not YAML's reading of it."""
    lines = text.splitlines(keepends=True)
    start = lines.index("rules:\n")
    end = next((i for i in range(start + 1, len(lines)) if lines[i][:1] not in (" ", "\n", "#")), len(lines))
    return "".join(lines[start:end])


def _trace(example: dict[str, Any], folder: Path) -> Trace:
    if "file" not in example:
        return build(example["turns"], complete=example.get("complete", True))
    path = folder / f"trace{example.get('suffix', '.jsonl')}"
    path.write_text(example["file"], "utf-8")
    return load_trace(path, format=example.get("from"))


def _compare_verdicts(wants: dict[str, Any], trace: Trace, report: CheckReport) -> None:
    wanted = {rule: want if isinstance(want, dict) else {"outcome": want} for rule, want in wants.items()}
    # the slow twin judges every rule or breaks; only the engine itself turns a breakage into an outcome
    ways: list[Way] = [fold, fold_with_peeks, fold_with_snapshots] if report.outcomes.error else [every_way]
    for way in ways:
        answers = way(report.rules, trace.events, trace.complete)
        assert wanted.keys() == answers.keys(), "an example says what it wants of every rule"
        for rule, want in wanted.items():
            _compare_answer(want, *answers[rule])
    for rule, want in wanted.items():
        _compare_details(want, rule, report)


def _compare_answer(want: dict[str, Any], outcome: Outcome, turns: list[int | None]) -> None:
    assert want.keys() <= _WANT_KEYS, f"unknown keys in want: {want.keys() - _WANT_KEYS}"
    assert (outcome.value == "violated") == ("turns" in want), f"say at which turns: {outcome} at {turns}"
    assert (outcome.value, turns) == (want["outcome"], want.get("turns", []))


def _compare_details(want: dict[str, Any], rule: str, report: CheckReport) -> None:
    verdicts = [finding.verdict for finding in report.findings if finding.verdict.rule.id == rule]
    deciding = [verdict for verdict in verdicts if verdict.outcome.value == want["outcome"]]
    if "sessions" in want:
        assert [verdict.session for verdict in deciding] == [str(session) for session in want["sessions"]]
    if "message" in want:
        assert want["message"] in [verdict.message for verdict in deciding]
    for part in want.get("evidence", []):
        assert part in [event.excerpt for verdict in deciding for event in verdict.evidence]
    assert want.get("notes", []) == list(report.notes.get(rule, ()))


def _compare_trace(example: dict[str, Any], trace: Trace) -> None:
    if "sessions" in example:
        assert [str(s) for s in example["sessions"]] == [turn.session for turn in trace.turns]
    assert list(trace.notes) == example.get("trace_notes", list(trace.notes))


def _compare_report(want: dict[str, Any], report: CheckReport) -> None:
    assert want.keys() <= _REPORT_KEYS, f"unknown keys in report: {want.keys() - _REPORT_KEYS}"
    outcomes = {name: getattr(report.outcomes, name) for name in report.outcomes.__struct_fields__}
    got = {
        "exit_code": report.exit_code,
        "findings": report.finding_count,
        "outcomes": {name: number for name, number in outcomes.items() if number},
    }
    assert {key: got[key] for key in want} == want
