"""What was not checked is never green: the headline, `strict`, and a scope that decides and is not given."""

from __future__ import annotations

from typing import Any

import pytest
from click import unstyle

import bylaw
from bylaw.check.report import check_fields, headline, render_markdown, render_terminal
from bylaw.diff.report.wording import headline as diff_headline
from bylaw.model.events import Trace
from bylaw.rules import load_rules
from tests.support.build import trace

HELD = {"id": "held", "kind": "no_call", "params": {"tool": "delete"}}
IDLE = {"id": "idle", "kind": "must_call_before", "params": {"first": "a", "second": "b"}, "scope": "session"}
BLIND = {"id": "blind", "kind": "forbidden_text", "params": {"text": "password"}}
ORDER = {"id": "order", "kind": "must_call_before", "params": {"first": "look_up", "second": "book"}}
WARNED = {**HELD, "when": []}

ONE = trace([{"calls": ["look_up"]}, {"text": None}])
TWO = trace([{"session": "a", "calls": ["look_up", "book"]}, {"session": "b", "calls": ["book"]}])


def _check(rules: list[dict[str, Any]], on: Trace = ONE, **options: Any) -> Any:
    return bylaw.check(on, load_rules(rules), **options)


def test_only_a_whole_check_is_headlined_as_passed() -> None:
    whole, partly = _check([HELD]), _check([HELD, IDLE, BLIND])
    assert headline(whole) == "PASSED: no rule broken"
    assert headline(partly) == "PASSED, but 2 of 3 rules were not checked: idle, blind"
    assert (whole.exit_code, partly.exit_code) == (0, 0)
    assert unstyle(render_terminal(whole)).startswith("✓ PASSED: no rule broken")
    assert unstyle(render_terminal(partly)).startswith("! PASSED, but 2 of 3 rules were not checked: idle, blind")
    assert "✅" in render_markdown(whole)
    assert render_markdown(partly).startswith("### ⚠️ Bylaw check: PASSED, but 2 of 3 rules were not checked")
    assert check_fields(partly)["unchecked"] == ["idle", "blind"]


def test_a_rule_is_checked_if_one_of_several_traces_triggers_it() -> None:
    other = trace([{"calls": ["a", "b"]}])
    report = bylaw.check([ONE, other], load_rules([HELD, IDLE]))
    assert headline(report) == "PASSED: no rule broken"
    assert bylaw.check([ONE, other], load_rules([HELD, IDLE]), strict=True).exit_code == 0


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([HELD, IDLE], "1 of 2 rules was not checked: idle"),
        ([HELD, BLIND], "1 of 2 rules was not checked: blind"),
        ([WARNED], "1 warning"),
        ([WARNED, IDLE], "1 of 2 rules was not checked: idle; 1 warning"),
    ],
)
def test_strict(rules: list[dict[str, Any]], why: str) -> None:
    assert _check(rules).exit_code == 0
    report = _check(rules, strict=True)
    assert (report.exit_code, headline(report)) == (3, f"NOT SHOWN: {why}")


def test_strict_of_the_file_holds_unless_the_caller_says_otherwise() -> None:
    rules = load_rules({"strict": True, "rules": [HELD, IDLE]})
    assert rules.strict
    assert bylaw.check(ONE, rules).exit_code == 3
    assert bylaw.check(ONE, rules, strict=False).exit_code == 0
    assert bylaw.check(ONE, rules.rules).exit_code == 0


def test_a_broken_rule_comes_first() -> None:
    broken = {"id": "broken", "kind": "no_call", "params": {"tool": "look_up"}}
    report = _check([broken, IDLE], strict=True)
    assert (report.exit_code, headline(report)) == (1, "FAILED: 1 of 2 rules broken")


def test_strict_and_allowed_vacuity_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        _check([HELD], strict=True, allow_vacuous=True)


def test_a_scope_that_decides_and_is_not_given() -> None:
    report = _check([HELD, ORDER], TWO, allow_vacuous=True)
    wanted = "NOT SHOWN: scope not given, and sessions disagree with the trace: order"
    assert (report.exit_code, headline(report), report.scope_doubts) == (3, wanted, ["order"])
    assert _check([HELD, {**ORDER, "scope": "trace"}], TWO).exit_code == 0
    assert _check([HELD, {**ORDER, "scope": "session"}], TWO).exit_code == 1


def test_a_comparison_is_not_shown_either() -> None:
    report = bylaw.diff(TWO, TWO, load_rules([HELD, ORDER]))
    wanted = "NOT SHOWN: scope not given, and sessions disagree with the trace: order"
    assert (report.exit_code, diff_headline(report)) == (3, wanted)
    assert bylaw.diff(TWO, TWO, load_rules([HELD, {**ORDER, "scope": "trace"}])).exit_code == 0


def test_a_rule_that_each_session_keeps_says_so() -> None:
    once = {"id": "once", "kind": "must_call_once", "params": {"tool": "book"}}
    report = _check([once], TWO)
    assert report.exit_code == 1
    assert report.notes["once"] == (
        "scope not given: kept in each session taken alone; write `scope: session` if that is what it means",
    )


CUT = trace([{"calls": ["look_up"]}], complete=False, name="cut.jsonl")
EMPTY = trace([], name="empty.jsonl")


def _headlines(traces: list[Trace], rules: list[dict[str, Any]]) -> list[str]:
    reports = [bylaw.check(traces, load_rules(rules), strict=strict) for strict in (False, True)]
    return [headline(report) for report in reports]


def test_the_headline_says_in_how_many_traces_a_rule_was_not_checked() -> None:
    passed, strict = _headlines([trace([{"text": "hi"}], name="whole.jsonl"), CUT], [HELD, IDLE])
    why = "1 of 2 rules was not checked in any trace: idle; 1 of 2 rules was not checked in 1 of 2 traces: held"
    assert (passed, strict) == (f"PASSED, but {why}", f"NOT SHOWN: {why}")


def test_the_headline_states_the_largest_number_of_traces_in_which_a_rule_was_not_checked() -> None:
    other = trace([{"text": "hi", "calls": ["a", "b"]}])
    passed, _ = _headlines([ONE, other, CUT], [HELD, BLIND])
    assert passed == "PASSED, but 2 of 2 rules were not checked in up to 2 of 3 traces: held, blind"


def test_the_outcomes_of_several_traces_are_counted_as_the_worst_of_each_rule() -> None:
    report = bylaw.check([trace([{"text": "hi"}], name="whole.jsonl"), CUT], load_rules([HELD, IDLE]))
    shown = unstyle(render_terminal(report))
    assert "    in 1 of 2 traces: the recording stopped early\n" in shown
    assert "rules by worst outcome: 0 ok · 0 violated · 0 vacuous · 2 inconclusive · 0 error\n" in shown
    alone = unstyle(render_terminal(_check([HELD, BLIND])))
    assert "rules: 1 ok · 0 violated · 0 vacuous · 1 inconclusive" in alone
    assert "traces:" not in alone


def test_a_trace_without_turns_beside_one_that_was_checked() -> None:
    report = bylaw.check([ONE, EMPTY], load_rules([HELD]))
    assert (report.exit_code, headline(report)) == (3, "NOTHING CHECKED in 1 of 2 traces: no turn in `empty.jsonl`")
    allowed = bylaw.check([ONE, EMPTY], load_rules([HELD]), allow_vacuous=True)
    assert (allowed.exit_code, headline(allowed)) == (0, "PASSED, but nothing was checked in 1 of 2 traces, as allowed")
    alone = bylaw.check([EMPTY, trace([], name="other.jsonl")], load_rules([HELD]))
    assert headline(alone) == "NOTHING CHECKED: no turn in `empty.jsonl` and 1 more trace"


def test_nothing_checked_for_several_reasons() -> None:
    report = _check([IDLE, BLIND])
    why = "1 of 2 rules never triggered, 1 could not be decided"
    assert (report.exit_code, headline(report)) == (3, f"NOTHING CHECKED: {why}")
