"""What the follow-up finds, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from bylaw.guard.stores.records import EventRow, Position
from bylaw.model.events import Origin, Response, SessionEnd
from tests.guard.support import attempt
from tests.incidents.support import CAP, WINDOW, World, summary

BEFORE = {"id": "first", "kind": "must_call_before", "params": {"first": "verify", "second": "wire"}, "then": "block"}
CLOSING = {"id": "closing", "kind": "temporal", "params": {"after": "pay", "require": "verify"}, "then": "block"}
SAID = {"id": "said", "kind": "forbidden_text", "params": {"text": "leak"}, "then": "pause"}


def both(*rules: Any, **guard: Any) -> dict[str, Any]:
    kinds = [rule for rule in rules if "kind" in rule]
    return {"rules": kinds, "guard": {"mode": "hitl", "rules": [r for r in rules if "kind" not in r], **guard}}


def test_a_burst_raises_an_incident_and_an_alert() -> None:
    """More than 30 sends in five minutes: the window never gates, the follow-up sees it."""
    rule = {"id": "b", "when": {"tool_name_in": ["send"], "call_count_in_window_gt": _over(30, 300)}, "then": "pause"}
    world = World([rule])
    assert all(world.decide("send", later=9.0).allowed for _ in range(30))
    world.follow()
    assert world.open() == []
    assert world.decide("send", later=9.0).allowed
    world.follow()
    assert world.open() == [("b", "s", 1)]
    (alert,) = world.incidents.alerts(status="pending")
    assert (alert.kind, alert.incident) == ("anomaly_alert", world.incidents.list()[0].id)
    assert world.decide("send", later=60.0).allowed  # and nobody's call was undone
    world.follow()
    assert world.open() == [("b", "s", 1)]


def _over(value: int, seconds: int) -> dict[str, Any]:
    return {"tool": "send", "value": value, "windowSeconds": seconds}


def test_a_block_is_an_incident_that_was_stopped_and_no_alert() -> None:
    world = World([CAP])
    world.decide("pay", args={"amount": 900})
    world.decide("pay", args={"amount": 100})
    world.decide("pay", args={"amount": 901})
    world.follow()
    (incident,) = world.incidents.list()
    assert (incident.rule, incident.count, incident.stopped) == ("cap", 2, 2)
    assert world.incidents.alerts() == []
    assert [one.seq for one in world.incidents.detections(incident)] == [1, 3]


def test_a_pause_that_paused_is_a_review_and_no_incident() -> None:
    world = World([{"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"}])
    decision = world.decide("wire", call_id="c")
    world.guard.reviews.approve(decision.review, by="ann")
    call = attempt({"tool": "wire", "session": "s", "call_id": "c"})
    assert world.guard.decide(call, review=decision.review).allowed
    world.follow()
    assert world.open() == []


@pytest.mark.parametrize("given", [{"mode": "shadow"}, {"then": "allow"}])
def test_rules_that_do_not_restrict_raise_nothing(given: dict[str, Any]) -> None:
    world = World([{**CAP, **given}])
    world.decide("pay", args={"amount": 900})
    world.follow()
    assert world.open() == []


def test_a_guard_in_shadow_raises_nothing_of_its_own() -> None:
    world = World([CAP, WINDOW], shadow=True)
    for _ in range(4):
        world.decide("pay", args={"amount": 900})
        world.decide("send")
    world.follow()
    assert {rule for rule, _, _ in world.open()} == {"burst"}  # no guard ever decides that one


def test_detective_and_closing_rules() -> None:
    world = World(both(BEFORE, CLOSING, SAID))
    world.decide("pay")
    world.guard.observe(Response(origin=Origin("s"), at=world.clock.now, text="here is the leak", content=[]))
    world.follow()
    assert world.open() == [("said", "s", 1)]
    assert [one.rule for one in world.incidents.alerts()] == ["said"]
    world.guard.end_session("s")
    world.follow()
    assert world.open() == [("said", "s", 1), ("closing", "s", 1)]


def test_a_session_that_broke_off_is_not_held_to_its_end() -> None:
    world = World(both(CLOSING))
    world.decide("pay")
    world.guard.end_session("s", complete=False)
    world.follow()
    assert world.open() == []


def test_what_was_released_was_never_made() -> None:
    rule = {"id": "made", "kind": "temporal", "params": {"at_most": 1, "of": "pay"}, "then": "block"}
    world = World(both(rule))
    world.guard.release(world.decide("pay"))
    assert world.decide("pay").allowed
    world.follow()
    assert world.open() == []
    assert not world.decide("pay").allowed
    world.follow()
    assert world.open() == [("made", "s", 1)]


def test_an_observed_end_begins_the_counts_anew_as_in_the_guard() -> None:
    world = World(both({"id": "made", "kind": "temporal", "params": {"at_most": 1, "of": "pay"}, "then": "block"}))
    for _ in range(2):
        assert world.decide("pay").allowed
        world.guard.observe(SessionEnd(origin=Origin("s"), at=world.clock.now))
    world.follow()
    assert world.open() == []


def test_calls_that_a_fault_let_through_are_judged_now() -> None:
    world = World([CAP], on_store_unavailable="allow")
    real, world.store.transaction = world.store.transaction, _out_of_reach  # type: ignore[method-assign]
    assert world.decide("pay", args={"amount": 900}).allowed
    world.store.transaction = real  # type: ignore[method-assign]
    world.decide("pay", args={"amount": 1})
    world.follow()
    (incident,) = world.incidents.list()
    assert (incident.rule, incident.count, incident.stopped) == ("cap", 1, 0)


def _out_of_reach(session: str) -> Any:
    from bylaw.guard.stores.ports import StoreUnavailable

    raise StoreUnavailable("gone")


def test_calls_made_before_count_and_raise_nothing() -> None:
    world = World([CAP, WINDOW])
    for _ in range(2):
        world.guard.record_past_call(attempt({"tool": "send", "session": "s"}))
    world.guard.record_past_call(attempt({"tool": "pay", "session": "s", "args": {"amount": 900}}))
    world.decide("send")
    world.follow()
    assert world.open() == [("burst", "s", 1)]


def test_an_agents_rules_are_named_as_decisions_name_them() -> None:
    guards = [{"agent": "boss", "mode": "hitl", "rules": [CAP]}, {"agent": "clerk", "mode": "hitl", "rules": [WINDOW]}]
    world = World({"guard": guards}, mode=None)
    world.guard.start_run("s", "r1", agent="boss")
    world.guard.start_run("s", "r2", agent="clerk", parent_run="r1")
    decision = world.decide("pay", run="r2", args={"amount": 900})
    world.follow()
    assert [rule for rule, _, _ in world.open()] == list(decision.matched) == ["boss/cap"]
    assert world.incidents.list()[0].run == "r2"


def test_repeats_count_up_until_somebody_solves_it() -> None:
    world = World([CAP])
    for _ in range(3):
        world.decide("pay", args={"amount": 900})
        world.follow()
    (first,) = world.incidents.list()
    assert (first.count, first.last_seen - first.first_seen) == (3, 2.0)
    world.incidents.solve(first.id, by="ann")
    world.decide("pay", args={"amount": 900})
    world.follow()
    assert [(one.number, one.status, one.count) for one in world.incidents.list()] == [
        (1, "solved", 3),
        (2, "unresolved", 1),
    ]


def test_changed_rules_hold_from_then_on() -> None:
    world = World([CAP])
    for _ in range(3):
        world.decide("send")
    world.follow()
    new = [CAP, WINDOW]
    world.follow(new)
    assert world.open() == []
    world.decide("send")
    world.follow(new)
    assert world.open() == [("burst", "s", 1)]  # the fourth: what came before is remembered, not raised


def test_two_correlators_on_one_store_count_once() -> None:
    from bylaw.guard.incidents.follower import Correlator
    from tests.guard.support import policies

    world = World([CAP])
    one, two = (Correlator(policies([CAP]), world.store, batch=2, clock=world.clock) for _ in range(2))
    for number in range(12):
        world.decide("pay", args={"amount": 900}, session=f"s{number % 3}")
        (one if number % 2 else two).step()
    one.catch_up()
    two.catch_up()
    assert sorted(count for _, _, count in world.open()) == [4, 4, 4]


def test_rows_that_no_guard_has_written_are_reported_and_passed_over() -> None:
    world = World([CAP])
    with world.store.transaction("s") as transaction:
        for kind in ("decision", "result", "run", "release", "review", "observation", "session", "else"):
            for data in (
                {},
                {"attempt": 5, "decision": []},
                {"what": "opened"},
                {"kind": "response", "said": {"tool_calls": [1]}},
            ):
                transaction.append_event(EventRow("s", kind, 1.0, dict(data)))
    world.decide("pay", args={"amount": 900})
    unreadable: list[str] = []
    from bylaw.guard.incidents.follower import Correlator
    from tests.guard.support import policies

    Correlator(policies([CAP]), world.store).catch_up(each=lambda step: unreadable.extend(step.unreadable))
    assert world.open() == [("cap", "s", 1)]
    assert len(unreadable) > 5


def test_a_correlator_that_was_down_catches_up() -> None:
    world = World([CAP])
    world.decide("pay", args={"amount": 900})
    world.follow()
    for _ in range(5):
        world.decide("pay", args={"amount": 900})
    assert world.follow(batch=2).detections == 5
    assert world.follow().events == 0
    (position,) = world.store.followed(Position)
    assert position.seq == world.store.events(limit=1000)[-1].seq
    assert summary(world.store)["incidents"][0][3] == 6
