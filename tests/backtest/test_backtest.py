"""What rules would have done to recorded traffic: decisions, flips, and above all what the recording lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import bylaw
from bylaw.errors import InputError
from bylaw.guard.backtest.backtest import Backtest, OpenSessions
from bylaw.guard.backtest.replay import Replay, trial_guard
from bylaw.guard.backtest.report import BacktestReport, headline
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.stores import MemoryStore
from bylaw.model.events import Event, Origin, ToolCall, Trace
from bylaw.rules import load_guard
from tests.backtest.support import NO_RESULT, Session, interleaved, trace

VERIFIED: dict[str, Any] = {
    "id": "verified",
    "kind": "temporal",
    "params": {"formula": "G (tool(refund, args.order = $o) -> O result(verify, args.order = $o, result = true))"},
    "scope": "session",
    "then": "block",
}
LARGE: dict[str, Any] = {
    "id": "large",
    "when": {"tool_name_in": ["refund"], "arg_gt": {"path": "amount", "value": 500}},
    "then": "pause",
}


def run(rules: list[dict[str, Any]], *sessions: Session, **more: Any) -> BacktestReport:
    return bylaw.backtest(rules, trace(*sessions), **more)


def acted(report: BacktestReport) -> dict[str, int]:
    return {action: count for action, count in report.actions.items() if count}


def test_decisions_by_action_and_by_rule() -> None:
    good = Session("good").call("verify", {"order": 1}, True).call("refund", {"order": 1, "amount": 5})
    bad = Session("bad").call("verify", {"order": 1}, False).call("refund", {"order": 1, "amount": 900})
    dear = Session("dear").call("verify", {"order": 2}, True).call("refund", {"order": 2, "amount": 900})
    report = run([VERIFIED, LARGE], good, bad, dear)
    assert acted(report) == {"allow": 4, "block": 1, "pause": 1}
    verified, large = report.rules["verified"], report.rules["large"]
    assert (verified.matched, verified.decided, verified.sessions) == (1, 1, 1)
    assert (large.matched, large.decided, large.sessions) == (2, 1, 2), "the strictest decides, all are counted"
    assert [example.session for example in large.examples] == ["bad", "dear"]
    assert report.coverage == 1 and report.exit_code == 0 and report.stopped_sessions == 2


def test_what_was_recorded_happened_whatever_the_rules_say() -> None:
    """A call that would have been stopped still counts as made for those after it."""
    rule = {"id": "r", "kind": "temporal", "params": {"never": "b", "unless": "a"}, "scope": "session", "then": "block"}
    stop = {"id": "stop", "when": {"tool_name_in": ["a"]}, "then": "terminate_session"}
    report = run([rule, stop], Session("1").call("a").call("b").call("b"))
    assert acted(report) == {"terminate_session": 1, "allow": 2}
    assert report.after_a_stop == 2


def test_results_and_ends_break_rules_that_stop_no_call() -> None:
    rules = [
        {"id": "secret", "kind": "forbidden_text", "params": {"text": "secret"}, "then": "block"},
        {"id": "told", "kind": "temporal", "params": {"after": "pay", "require": "tell"}, "then": "block"},
    ]
    report = run(rules, Session("1", text="a secret").call("pay"), Session("2").call("pay").call("tell"))
    assert {rule: tally.afterwards for rule, tally in report.rules.items()} == {"secret": 1, "told": 1}
    assert report.stops == 0


# -- coverage ---------------------------------------------------------------------------------------------------------


def test_unreadable_arguments_are_no_verdict() -> None:
    report = run([LARGE], Session("1").call("refund", None, raw_arguments="{amount: 9"))
    assert acted(report) == {"unclear": 1}
    assert report.lacking == {"arguments": 1} and report.coverage == 0
    assert report.rules["large"].matched == 0 and report.rules["large"].lacking == 1


def test_no_results_are_no_verdict() -> None:
    lost = Session("1").call("verify", {"order": 1}, NO_RESULT).call("refund", {"order": 1})
    report = run([VERIFIED], lost)
    assert acted(report) == {"allow": 1, "unclear": 1}
    assert report.lacking == {"results": 1}


def test_a_first_call_lacks_no_result_and_a_parallel_one_none_yet() -> None:
    first = Session("1").call("refund", {"order": 1})
    together = Session("2").call("verify", {"order": 1}, NO_RESULT).call("refund", {"order": 1}, parallel=True)
    report = run([VERIFIED], first, together)
    assert acted(report) == {"block": 2, "allow": 1} and report.coverage == 1


def test_results_that_do_not_say_whether_the_call_failed() -> None:
    formula = "G (tool(pay) -> !O result(login, error = true))"
    rule = {"id": "r", "kind": "temporal", "params": {"formula": formula}, "scope": "session", "then": "block"}
    report = run([rule], Session("1").call("look").call("pay"), Session("2").call("login").call("pay"))
    assert acted(report) == {"allow": 3, "unclear": 1} and report.lacking == {"errors": 1}


def test_windows_need_times() -> None:
    rule = {
        "id": "burst",
        "inline": True,
        "when": {"call_count_in_window_gt": {"tool": "send", "value": 1, "windowSeconds": 60}},
        "then": "block",
    }
    timed = run([rule], Session("1").call("send").call("send"))
    untimed = run([rule], Session("1", timed=False).call("send").call("send"))
    assert acted(timed) == {"allow": 1, "block": 1}
    assert acted(untimed) == {"unclear": 2} and untimed.lacking == {"times": 2}


def test_results_and_calls_of_one_turn_are_replayed_in_their_order() -> None:
    rule = {
        "id": "wait",
        "kind": "temporal",
        "params": {"before": "pay", "require": {"result": "look"}},
        "then": "block",
    }
    one_by_one = Session("1").call("look").call("pay", parallel=True)
    at_once = Session("2").call("pay").call("look", parallel=True)
    assert acted(run([rule], one_by_one, at_once)) == {"allow": 3, "block": 1}
    for beside in ("look", "*"):
        unknown = run([rule], Session("1").call("look").call("pay", parallel=True, unordered=(beside,)))
        assert acted(unknown) == {"allow": 1, "unclear": 1} and unknown.lacking == {"order": 1}


def test_rules_about_what_the_user_said_need_messages() -> None:
    formula = 'G (tool(pay) -> O user("please"))'
    rule = {"id": "asked", "kind": "temporal", "params": {"formula": formula}, "scope": "session", "then": "block"}
    report = run([rule], Session("1").call("pay"))
    assert report.lacking == {"messages": 1} and acted(report) == {"unclear": 1}


def test_rules_of_agents_need_their_names() -> None:
    rules = {
        "guard": [
            {"agent": "a", "rules": [{"id": "r", "when": {"tool_name_in": ["pay"]}, "then": "block"}]},
            {"agent": "b", "rules": [{"id": "r", "when": {"tool_name_in": ["tell"]}, "then": "block"}]},
        ]
    }
    traffic = trace(Session("1", agent="a").call("pay").call("tell"), Session("2").call("pay"))
    report = bylaw.backtest(rules, traffic)
    assert acted(report) == {"block": 1, "allow": 1, "unclear": 1}
    assert report.lacking == {"agents": 1}
    assert report.rules["a/r"].decided == 1 and report.rules["b/r"].matched == 0


def test_a_lack_that_could_not_have_changed_the_decision_leaves_it() -> None:
    """`large` only pauses; `never` blocks, and has all it needs."""
    never = {"id": "never", "when": {"tool_name_in": ["refund"]}, "then": "block"}
    report = run([LARGE, never], Session("1").call("refund", None, raw_arguments="{"))
    assert acted(report) == {"block": 1} and report.coverage == 0


def test_nothing_judged_is_not_a_pass() -> None:
    assert run([LARGE]).exit_code == 3
    assert run([LARGE], Session("1").call("other")).exit_code == 3
    assert run([LARGE], Session("1").call("refund", {"amount": 1})).exit_code == 0


def test_the_headline_counts_what_the_report_shows() -> None:
    paused, small = Session("1").call("refund", {"amount": 900}), Session("2").call("refund", {"amount": 1})
    never = {"id": "never", "when": {"tool_name_in": ["refund"]}, "then": "block"}
    assert headline(run([LARGE], paused, small)) == "1 of 2 calls stopped or paused"
    assert headline(run([LARGE], paused, small, fail_on="blocks")) == "FAILED: 1 of 2 calls stopped or paused"
    assert headline(run([never], paused, small)) == "2 of 2 calls stopped"
    flipped = run([never], paused, small, against=[LARGE], fail_on="flips")
    assert headline(flipped) == "FAILED: 2 of 2 decisions flipped"
    empty = [trace(Session(name).user("hello")) for name in "34"]
    partly = bylaw.backtest([LARGE], [trace(paused), *empty])
    assert headline(partly).startswith("NOTHING JUDGED in 2 of 3 traces: no turn in ")
    assert headline(partly).endswith(" and 1 more trace")
    assert headline(run([LARGE], Session("1").call("other"))) == "NOTHING JUDGED: no rule applies to any call"


def test_a_trace_without_a_turn_among_others_is_not_a_pass() -> None:
    judged, empty = trace(Session("1").call("refund", {"amount": 900})), trace(Session("2").user("hello"))
    report = bylaw.backtest([LARGE], [judged, empty])
    assert (report.exit_code, report.empty, report.stops) == (3, [empty.name], 1)
    assert bylaw.backtest([LARGE], [judged, empty], fail_on="blocks").exit_code == 1
    only_calls = Trace(name="calls", events=tuple(event for event in judged if isinstance(event, ToolCall)))
    assert bylaw.backtest([LARGE], [judged, only_calls]).exit_code == 0


# -- flips and gates --------------------------------------------------------------------------------------------------


def test_flips_against_other_rules() -> None:
    small = {**LARGE, "when": {"tool_name_in": ["refund"], "arg_gt": {"path": "amount", "value": 50}}, "then": "block"}
    session = Session("1").call("refund", {"amount": 40}).call("refund", {"amount": 60}).call("refund", {"amount": 600})
    report = run([small], session, against=[LARGE], fail_on="flips")
    assert {flip: tally.count for flip, tally in report.flips.items()} == {"allow → block": 1, "pause → block": 1}
    assert report.flips["allow → block"].examples[0].call == "refund(amount=60)"
    assert report.exit_code == 1
    assert run([LARGE], session, against=[LARGE], fail_on="flips").exit_code == 0
    assert run([LARGE], session, fail_on="blocks").exit_code == 1
    assert run([LARGE], Session("1").call("refund", {"amount": 1}), fail_on="blocks").exit_code == 0


def test_shadow_rules_are_counted_apart() -> None:
    report = run([{**LARGE, "mode": "shadow"}, VERIFIED], Session("1").call("refund", {"order": 1, "amount": 600}))
    assert acted(report) == {"block": 1}
    assert report.rules["large"].changed == 0, "the call is blocked already"
    alone = run([{**LARGE, "mode": "shadow"}], Session("1").call("refund", {"amount": 600}))
    assert acted(alone) == {"allow": 1} and alone.shadow_actions["pause"] == 1
    assert alone.rules["large"].changed == 1 and alone.has_shadow


def test_an_allowlist_refuses_before_any_rule() -> None:
    report = bylaw.backtest(
        {"guard": {"tools": ["a"], "rules": [LARGE], "mode": "hitl"}}, trace(Session("1").call("b"))
    )
    assert acted(report) == {"block": 1}
    assert report.rules["allowlist"].decided == report.rules["allowlist"].sessions == 1


# -- traffic of any shape ---------------------------------------------------------------------------------------------


def test_interleaved_sessions_are_judged_apart() -> None:
    one = Session("1").call("verify", {"order": 1}, True).call("refund", {"order": 1})
    two = Session("2").call("look").call("refund", {"order": 1})
    assert acted(bylaw.backtest([VERIFIED], interleaved(one, two))) == {"allow": 3, "block": 1}


def test_a_session_of_the_next_trace_begins_anew() -> None:
    first = trace(Session("1").call("verify", {"order": 1}, True), name="first")
    second = trace(Session("1").call("refund", {"order": 1}), name="second")
    report = bylaw.backtest([VERIFIED], [first, second])
    assert acted(report) == {"allow": 1, "block": 1}
    assert [summary.sessions for summary in report.traces] == [1, 1]


def test_a_session_that_was_idle_too_long_counts_as_over() -> None:
    seen: list[tuple[str, bool]] = []
    kept = OpenSessions[str](lambda name: name, lambda name, _, complete: seen.append((name, complete)), most=2)
    for name in ("a", "b", "a", "c", "b"):
        kept.of(name)
    assert seen == [("b", True), ("a", True)] and kept.resumed == 1
    kept.end_all(complete=False)
    assert seen[2:] == [("c", False), ("b", False)]


def test_a_session_without_a_name_is_taken_up_again_like_any_other() -> None:
    kept = OpenSessions[str](lambda name: name, lambda *ended: None, most=1)
    for name in ("a", "b", "", "c"):
        kept.of(name)
    assert kept.resumed == 0, "it is met for the first time"
    kept.of("")
    assert kept.resumed == 1


def test_no_session_is_kept_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    end = BaseGuard.end_session

    def noting(guard: BaseGuard, session: str, *, complete: bool = True) -> Any:
        ended.append(session)
        return end(guard, session, complete=complete)

    monkeypatch.setattr(BaseGuard, "end_session", noting)
    sessions = [Session(f"{n}").call("refund", {"amount": n}) for n in range(20)]
    run([LARGE], *sessions)
    bylaw.backtest([LARGE], interleaved(*sessions))
    assert ended == [str(n) for n in range(20)] * 2


def test_a_trace_that_breaks_off_leaves_nothing_behind() -> None:
    whole = trace(Session("1").call("verify", {"order": 1}, True))

    def broken() -> Iterator[Event]:
        yield from whole.events[:-1]
        raise InputError([])

    class Source(Trace, frozen=True):
        def __iter__(self) -> Iterator[Event]:
            return broken()

    job = Backtest(trial_guard(load_guard([VERIFIED]).policies))
    with pytest.raises(InputError):
        job.add(Source(name="broken"))
    job.add(trace(Session("1").call("refund", {"order": 1})))
    assert acted(job.report()) == {"allow": 1, "block": 1}


def test_the_guard_knows_recorded_runs_and_ancestors() -> None:
    rules = {
        "guard": [
            {"agent": "boss", "rules": [{"id": "no-pay", "when": {"tool_name_in": ["pay"]}, "then": "block"}]},
            {"agent": "helper", "rules": [{"id": "other", "when": {"tool_name_in": ["x"]}, "then": "block"}]},
        ]
    }
    boss, helper = Origin("s", run="1", agent="boss"), Origin("s", run="2", parent_run="1", agent="helper")
    calls = (
        ToolCall(origin=boss, turn=0, name="look", call_id="1", arguments={}),
        ToolCall(origin=helper, turn=1, name="pay", call_id="2", arguments={}),
    )
    report = bylaw.backtest(rules, Trace(name="t", events=calls))
    assert report.rules["boss/no-pay"].decided == 1


def test_secrets_do_not_reach_the_report() -> None:
    rule = {"id": "r", "when": {"tool_name_in": ["login"]}, "then": "block"}
    report = run([rule], Session("1").call("login", {"password": "hunter2-hunter2"}))
    assert "hunter2" not in repr(report)


def test_a_guard_that_acts_cannot_replay() -> None:
    with pytest.raises(AssertionError):
        Replay(BaseGuard(load_guard([LARGE]).policies, store=MemoryStore()))
