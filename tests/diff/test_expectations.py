"""Intended changes: read from a rule file and from `--expect`, shown with their reason, never gating."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.diff.expectations import Expectation, as_expectations, parse_expectation
from bylaw.diff.judge import checked_score, load_judge
from bylaw.diff.report.wording import headline
from bylaw.lint.report import read_files
from tests.support.build import trace
from tests.support.command import run_bylaw

DEMO = Path(bylaw.__file__).parent / "demo" / "files"


def dropped(**options: Any) -> Any:
    before = [{"session": f"s{i}", "calls": ["confirm", "pay"], "latency": 100.0} for i in range(20)]
    after = [{"session": f"s{i}", "calls": ["pay"], "latency": 300.0} for i in range(20)]
    return bylaw.diff(trace(before, name="b"), trace(after, name="c"), **options)


def test_only_what_is_expected_stops_gating() -> None:
    assert dropped().exit_code == 1
    tool, axis = "tool confirm gone: the form asks now", "axis latency: a larger model"
    assert dropped(expect=[tool]).exit_code == 1
    report = dropped(expect=[tool, {"axis": "latency", "reason": "a larger model"}, "rule r: gone"])
    assert report.exit_code == 0
    assert [one.expected for one in report.findings if one.tool == "confirm"] == ["the form asks now"]
    assert report.unused_expectations == ("rule r (there is no such rule)",)
    assert dropped(expect=["tool confirm more: wrong", axis]).exit_code == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tool confirm gone: why", Expectation("tool", "confirm", "why", "gone")),
        ("tool confirm: why: so", Expectation("tool", "confirm", "why: so")),
        ("axis latency: why", Expectation("axis", "latency", "why")),
        ("rule no-pay: why", Expectation("rule", "no-pay", "why")),
    ],
)
def test_the_text_of_an_expectation(text: str, wanted: Expectation) -> None:
    assert parse_expectation(text) == wanted


@pytest.mark.parametrize("text", ["", "tool", "tool confirm", "latency: why", "rule r:", "rule r: "])
def test_a_text_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected `tool NAME"):
        parse_expectation(text)


def test_a_name_that_there_is_not_is_reported_with_a_near_one() -> None:
    with pytest.raises(ValueError, match="unknown axis `latncy`; did you mean `latency`"):
        parse_expectation("axis latncy: why")
    rules = [{"id": "pay-once", "kind": "max_calls", "params": {"tool": "pay", "n": 1}, "scope": "session"}]
    report = dropped(rules=rules, expect=["tool confrim gone: why", "rule pay_once: why", "tool other: why"])
    assert report.exit_code == 1
    assert report.unused_expectations == (
        "tool confrim gone (neither side calls it; did you mean confirm?)",
        "rule pay_once (there is no such rule; did you mean pay-once?)",
        "tool other (neither side calls it)",
    )


def test_lint_tells_a_rule_that_there_is_not(tmp_path: Path) -> None:
    path = tmp_path / "bylaw.yaml"
    rule = "rules:\n  - {id: pay-once, kind: max_calls, params: {tool: pay, n: 1}, scope: session}\n"
    path.write_text(f"{rule}expected:\n  - {{rule: pay-one, reason: why}}\n", "utf-8")
    [warning] = [one for one in read_files([path]).diagnostics if one.code == "unknown-rule"]
    assert (warning.is_error, warning.help) == (False, "did you mean `pay-once`?")


def test_a_mapping_with_two_kinds_is_refused() -> None:
    with pytest.raises(ValueError, match="one of tool, axis, rule"):
        as_expectations([{"tool": "a", "axis": "latency", "reason": "why"}])


def test_the_section_of_a_rule_file(tmp_path: Path) -> None:
    rules = (DEMO / "bylaw.yaml").read_text("utf-8") + (
        "\nexpected:\n"
        "  - {rule: confirm-before-refund, reason: the form asks}\n"
        "  - {tool: confirm_refund_amount, change: less, reason: the form asks}\n"
        "  - {axis: trajectory, reason: the form asks}\n"
        "  - {axis: cost, reason: a larger model}\n"
    )
    path = tmp_path / "bylaw.yaml"
    path.write_text(rules, "utf-8")
    assert [one for one in read_files([path]).diagnostics if one.is_error] == []
    report = bylaw.diff(DEMO / "v1.jsonl", DEMO / "v2.jsonl", path, deterministic=True)
    assert report.exit_code == 0
    assert report.unused_expectations == ("axis cost",)
    assert [rate.expected for rate in report.policy.rates] == ["the form asks"]
    done = run_bylaw(["diff", DEMO / "v1.jsonl", DEMO / "v2.jsonl", "--policy", path, "--deterministic"])
    assert done.returncode == 0
    assert "expected: the form asks" in done.stdout


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{axis: speed, reason: why}", "unknown axis `speed`"),
        ("{tool: a, change: fewer, reason: why}", "unknown change `fewer`"),
        ("{tool: a}", "needs the key `reason`"),
        ("{reason: why}", "needs the key `tool`, `axis` or `rule`"),
        ("{rule: a, change: more, reason: why}", "`change` goes with `tool`"),
        ("{tools: a, reason: why}", "unknown key `tools`"),
        ("a", "takes a mapping"),
    ],
)
def test_mistakes_in_the_section_are_located(entry: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bylaw.yaml"
    path.write_text(f"rules: [{{id: r, kind: no_call, params: {{tool: x}}}}]\nexpected:\n  - {entry}\n", "utf-8")
    found = [one for one in read_files([path]).diagnostics if one.is_error]
    assert any(message in one.message for one in found)
    assert all(one.span is not None and one.span.line == 3 for one in found)


def test_expect_on_the_command_line() -> None:
    sides = ["diff", str(DEMO / "v1.jsonl"), str(DEMO / "v2.jsonl")]
    done = run_bylaw([*sides, "--expect", "axis latency"])
    assert done.returncode == 2
    assert "axis NAME: REASON" in " ".join(done.stderr.split())
    done = run_bylaw([*sides, "--expect", "axis latency: a larger model"])
    assert "Expected and not seen: axis latency." in done.stdout


@pytest.mark.parametrize("body", ["raise SystemExit(0)", "return 5", "return float('fine')", "raise TimeoutError"])
def test_a_judge_that_fails_is_no_pass(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"judge_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"def score(response):\n    {body}\n\ndef none(response): ...\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = trace([{"session": f"s{i}", "calls": ["pay"]} for i in range(4)])
    report = bylaw.diff(before, before, judge=f"{name}:score")
    assert (report.exit_code, "failed at turn 0" in (report.judge_failure or "")) == (4, True)
    assert headline(report).startswith("NOT JUDGED")
    assert dropped(judge=f"{name}:score").exit_code == 1
    report = bylaw.diff(before, before, judge=f"{name}:none")
    assert (report.exit_code, report.notes) == (0, ("warning: the judge scored no response",))


@pytest.mark.parametrize("where", ["import", "call"])
def test_a_judge_that_takes_too_long_is_no_pass(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = "import threading\n\nthreading.Event().wait(60)\n"
    body = wait if where == "import" else f"def score(response):\n    {wait.replace(chr(10) * 2, '; ')}"
    (tmp_path / f"slow_{where}.py").write_text(body, "utf-8")
    monkeypatch.chdir(tmp_path)
    options = ["--judge", f"slow_{where}:score", "--judge-timeout", "0.2"]
    done = run_bylaw(["diff", DEMO / "v1.jsonl", DEMO / "v1.jsonl", *options])
    said = " ".join((done.stdout + done.stderr).split())
    if where == "import":
        assert (done.returncode, "it was not imported within 0.2 seconds" in said) == (2, True)
    else:
        assert (done.returncode, "slow_call:score gave no score for turn 0 within 0.2 seconds" in said) == (4, True)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"judge_timeout=.*expected a number of seconds above 0"):
        bylaw.diff([], [], judge="math:sqrt", judge_timeout=seconds)


def test_a_judge_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_judge.py").write_text("def score(response):\n    return 0.5\n\nNOTHING = 3\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    done = run_bylaw(["diff", DEMO / "v1.jsonl", DEMO / "v2.jsonl", "--judge", "my_judge:score", "--format", "json"])
    assert '"axis": "judge",\n      "baseline": 0.5' in done.stdout
    assert load_judge("my_judge:score") is not None
    for address in ("my_judge", "my_judge:NOTHING", "my_judge:none", "nowhere:score"):
        with pytest.raises(ValueError):
            load_judge(address)


@pytest.mark.parametrize("score", [2, -0.1, float("nan"), "1"])
def test_a_score_outside_0_to_1_is_refused(score: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        checked_score(score)
