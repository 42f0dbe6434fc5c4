"""Inputs that other differs get wrong: gates that fail open, and false alarms. Each must come out right here."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from msgspec.structs import replace

from bylaw.diff.api import compare_versions
from bylaw.diff.model import AxisRow, Change, DiffReport
from bylaw.model.verdict import Outcome
from bylaw.rules import load_rules
from bylaw.traces.comparison.recording import Side, read_side
from tests.support.build import trace

Turns = list[dict[str, Any]]


def compare(
    baseline: Turns, candidate: Turns, rules: Any = (), fail_on: str = "severe", *, deterministic: bool = True
) -> DiffReport:
    """Most cases here are one session of an agent that does the same every time: each difference is a change."""
    loaded = load_rules(rules).rules if rules else ()
    left, right = trace(baseline, name="baseline"), trace(candidate, name="candidate")
    return compare_versions([left], [right], loaded, fail_on=Change(fail_on), deterministic=deterministic)


def axis(report: DiffReport, name: str) -> AxisRow:
    return next(row for row in report.axes if row.axis == name)


def turns(count: int, **changes: Any) -> Turns:
    return [
        {
            "text": f"order {i} is on its way",
            "calls": [{"name": "lookup", "args": {"id": i}}],
            "stop": "tool_use",
            **changes,
        }
        for i in range(count)
    ]


CRITICAL = [{"id": "r", "kind": "forbidden_text", "params": {"text": "SSN"}, "severity": "critical"}]


@pytest.mark.parametrize("fail_on", ["minor", "moderate", "severe"])
def test_a_critical_regression_trips_every_level(fail_on: str) -> None:
    report = compare([{"text": "fine"}], [{"text": "your SSN"}], CRITICAL, fail_on)
    assert report.exit_code == 1
    assert [change.rule for change in report.policy.regressions] == ["r"]


def test_an_empty_candidate_is_not_a_pass() -> None:
    """Nothing was compared, whatever the level: exit 3, and the empty trace is named."""
    for baseline, candidate in ((turns(3), []), ([], turns(3)), ([], [])):
        for level in ("none", "minor", "severe"):
            report = compare(baseline, candidate, fail_on=level)
            assert report.exit_code == 3
            assert any(issue.what == "empty" for issue in report.sessions)


def test_dropped_turns_are_seen() -> None:
    report = compare(
        [{"text": f"step {i} of the plan"} for i in range(10)], [{"text": "step 0 of the plan"}], fail_on="minor"
    )
    assert report.exit_code == 1
    assert axis(report, "semantic").severity is Change.MINOR  # words alone never gate
    assert report.divergence_count == 9


def test_a_minority_of_turns_is_not_hidden_by_a_median() -> None:
    candidate = [turn if i % 5 < 3 else {**turn, "calls": ["delete_all"]} for i, turn in enumerate(turns(10))]
    report = compare(turns(10), candidate)
    assert report.exit_code == 1
    assert axis(report, "trajectory").candidate == pytest.approx(0.4)
    assert axis(report, "trajectory").severity is Change.SEVERE


def test_a_changed_final_answer_after_tool_turns_shows() -> None:
    tools: Turns = [{"calls": [f"tool_{i}"]} for i in range(6)]
    report = compare([*tools, {"text": "approved, we pay $99"}], [*tools, {"text": "denied for want of proof"}])
    assert ("answer", Change.SEVERE) in [(one.axis, one.severity) for one in report.findings]
    assert report.divergences[0].turn == 6


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"text": '{"a": 1}'}, {"text": '"a"'}),
        ({"calls": [{"name": "a", "args": {"x": 1}}]}, {"calls": [{"name": "b", "args": {"x": 1}}]}),
    ],
)
def test_conformance_sees_bare_strings_and_swapped_tools(before: Any, after: Any) -> None:
    assert axis(compare([before] * 4, [after] * 4), "conformance").severity is Change.SEVERE


@pytest.mark.parametrize("text", ["I can’t help with that", "I cannot provide medical advice"])
def test_refusals_in_any_apostrophe(text: str) -> None:
    assert axis(compare([{"text": "sure, here it is"}] * 6, [{"text": text}] * 6), "safety").candidate == 1.0


def test_a_zero_baseline_has_a_scale() -> None:
    report = compare([{"text": "a", "tokens": [1, 0]}] * 6, [{"text": "a", "tokens": [1, 4_000]}] * 6)
    assert axis(report, "verbosity").severity is Change.SEVERE


def test_faster_is_never_severe() -> None:
    report = compare(
        [{"text": "a", "latency": 1_000 + i} for i in range(8)], [{"text": "a", "latency": 400 + i} for i in range(8)]
    )
    assert axis(report, "latency").severity is Change.NONE
    assert "improved" in axis(report, "latency").flags
    assert report.exit_code == 0


def test_fewer_refusals_are_an_improvement() -> None:
    report = compare(
        [{"text": "I cannot help with that"}] * 6, [{"text": "I cannot help with that"}] * 3 + [{"text": "done"}] * 3
    )
    assert axis(report, "safety").severity is Change.NONE


def test_an_unknown_model_is_unknown_not_free() -> None:
    known = {"text": "a", "tokens": [1_000, 1_000], "model": "gpt-4o"}
    report = compare([known] * 6, [{**known, "model": "somebody/unheard-of"}] * 6)
    assert axis(report, "cost").baseline is None
    assert axis(report, "cost").severity is Change.NONE
    assert "recorded_on_one_side" in axis(report, "cost").flags


def test_one_inserted_greeting_moves_little() -> None:
    report = compare(turns(20), [{"text": "hello!"}, *turns(20)])
    assert axis(report, "trajectory").severity is Change.NONE
    assert report.worst.rank <= Change.MODERATE.rank
    assert report.exit_code == 0
    assert report.divergence_count == 1


def test_ordinary_sentences_are_no_refusals() -> None:
    text = "I won't bother you again. You were not able to log in because the link had expired."
    assert axis(compare([{"text": "ok"}] * 5, [{"text": text}] * 5), "safety").candidate == 0.0


def test_the_same_input_gives_the_same_bytes() -> None:
    from bylaw.diff.report.json import render_diff

    pair = (
        [{"text": f"a {i}", "latency": 100 + i * 7 % 5} for i in range(8)],
        [{"text": f"a {i}", "latency": 104 + i} for i in range(8)],
    )
    assert len({render_diff(compare(*pair)) for _ in range(5)}) == 1


REFUND = [{"id": "r", "kind": "no_call", "params": {"tool": "refund"}}]


def test_a_shifted_turn_is_no_regression_and_no_fix() -> None:
    bad: Turns = [{"text": "looking", "calls": ["look"]}, {"text": "refunding", "calls": ["refund"]}]
    report = compare(bad, [{"text": "hello there"}, *bad], REFUND)
    assert not report.policy.regressions
    assert not report.policy.fixes


def test_one_bad_call_becoming_five_is_a_regression() -> None:
    report = compare([{"calls": ["refund"]}], [{"calls": ["refund"] * 5}], REFUND)
    assert len(report.policy.regressions) == 4


def test_one_bad_session_becoming_five_is_a_regression() -> None:
    rules = [{"id": "r", "kind": "must_call_once", "params": {"tool": "a"}, "scope": "session"}]
    baseline = [{"session": f"s{i}", "calls": ["a"] if i else []} for i in range(6)]
    candidate = [{"session": f"s{i}", "calls": [] if i < 5 else ["a"]} for i in range(6)]
    assert len(compare(baseline, candidate, rules).policy.regressions) == 4


def test_tokens_over_the_limit_on_both_sides_is_one_violation() -> None:
    rules = [{"id": "r", "kind": "max_total_tokens", "params": {"n": 10}}]
    report = compare([{"text": "a", "tokens": [0, 100]}], [{"text": "a", "tokens": [0, 99]}], rules)
    assert not report.policy.regressions
    assert not report.policy.fixes


def test_a_fixed_rule_is_listed_and_never_gates() -> None:
    report = compare(
        [{"text": "a", "calls": ["refund"]}] * 9 + [{"text": "b"}],
        [{"text": "a", "calls": ["refund"]}] * 8 + [{"text": "a"}, {"text": "b"}],
        REFUND,
    )
    assert [change.rule for change in report.policy.fixes] == ["r"]
    assert not report.policy.regressions


def test_all_three_kinds_are_reachable() -> None:
    kinds: dict[str, tuple[Any, Any]] = {
        "style": ({"text": "your parcel is on its way"}, {"text": "the parcel was sent to you"}),
        "decision": ({"text": "approved, $99"}, {"text": "denied, $9"}),
        "structural": ({"text": "ok", "calls": ["a"]}, {"text": "ok", "calls": ["b"]}),
    }
    for kind, (before, after) in kinds.items():
        assert compare([before], [after]).divergences[0].kind == kind


def test_reorders_inside_a_turn_and_changed_second_calls_count() -> None:
    assert (
        compare([{"calls": ["backup", "migrate"]}], [{"calls": ["migrate", "backup"]}]).divergences[0].kind
        == "structural"
    )
    pay = [{"name": "pay", "args": {"amount": 1}}, {"name": "pay", "args": {"amount": 2}}]
    other = [pay[0], {"name": "pay", "args": {"amount": 3}}]
    report = compare([{"calls": pay}], [{"calls": other}])
    assert report.divergences[0].kind == "decision"
    assert "2 → 3" in report.divergences[0].what


def test_missing_and_extra_sessions_are_findings() -> None:
    baseline = [
        {"session": name, "text": name, "request": {"messages": [{"role": "user", "content": name}]}} for name in "abc"
    ]
    report = compare(baseline, baseline[:2])
    assert [issue.what for issue in report.sessions] == ["missing"]
    assert report.exit_code == 1
    assert [issue.what for issue in compare(baseline[:2], baseline).sessions] == ["extra"]


def test_a_rule_that_cannot_be_evaluated_fails_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_with_errors(sources: Any, program: Any, unread: Any = None) -> Side:
        side = read_side(sources, program)
        side.verdicts = [(name, replace(verdict, outcome=Outcome.ERROR)) for name, verdict in side.verdicts]
        return side

    monkeypatch.setattr(sys.modules["bylaw.diff.api"], "read_side", read_with_errors)
    report = compare([{"calls": ["refund"]}], [{"calls": ["refund"]}], REFUND)
    assert [change.rule for change in report.policy.errors] == ["r", "r"]
    assert not report.policy.regressions
    assert report.exit_code == 1


def greeted(name: str, call: str) -> dict[str, Any]:
    return {"session": name, "calls": [call], "request": {"messages": [{"role": "user", "content": "Hi"}]}}


DELETE = [{"id": "r", "kind": "no_call", "params": {"tool": "delete"}, "scope": "session"}]


def test_sessions_with_matching_ids_are_never_pooled_by_their_greeting() -> None:
    baseline = [greeted(f"ticket-{i}", "look" if i else "delete") for i in range(20)]
    report = compare(baseline, [greeted(f"ticket-{i}", "delete") for i in range(20)], DELETE)
    assert report.groups == 20
    assert len(report.policy.regressions) == 19
    assert report.exit_code == 1


def test_trials_pooled_by_task_count_as_often_as_they_are_run() -> None:
    baseline = [greeted(f"b-{i}", "look" if i else "delete") for i in range(10)]
    report = compare(baseline, [greeted(f"c-{i}", "delete") for i in range(10)], DELETE)
    assert len(report.policy.regressions) == 9


def test_one_task_with_repeats_can_fail() -> None:
    baseline = [greeted(f"b-{i}", "look") for i in range(10)]
    report = compare(baseline, [greeted(f"c-{i}", "delete") for i in range(10)], deterministic=False)
    assert axis(report, "trajectory").severity is Change.SEVERE
    assert axis(report, "trajectory").n == 10


def test_numeric_ids_of_the_users_own_are_trusted() -> None:
    baseline = [{"session": str(1041 + i), "text": f"answer {i}", "calls": [f"tool_{i}"]} for i in range(3)]
    assert compare(baseline, baseline[::-1]).worst is Change.NONE


def test_a_greeting_before_three_turns_is_no_lost_meaning() -> None:
    report = compare(turns(3), [{"text": "Hello, welcome!"}, *turns(3)], deterministic=False)
    assert axis(report, "semantic").severity is Change.MINOR
    assert report.exit_code == 0


def test_a_bound_that_is_crossed_elsewhere_is_the_same_violation() -> None:
    rules = [{"id": "r", "kind": "max_total_tokens", "params": {"n": 100}}]
    before, after = (
        [{"text": f"turn {i}", "tokens": [0, t]} for i, t in enumerate(side)] for side in ((60, 60, 0), (60, 30, 30))
    )
    report = compare(before, after, rules)
    assert not report.policy.regressions
    assert not report.policy.fixes


def test_a_violation_that_was_not_checked_again_is_not_fixed() -> None:
    said = {"text": "your SSN"}
    assert not compare([said], [{"text": None, "calls": ["a"]}], CRITICAL).policy.fixes


def test_an_absurd_latency_is_not_recorded() -> None:
    report = compare([{"text": "a", "latency": 1e308}] * 3, [{"text": "a", "latency": 1e308}] * 3)
    assert axis(report, "latency").baseline is None
