"""Windows over all sessions of an agent, or of all agents: `over: agent` and `over: all`."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import bylaw
from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.guard.incidents.follower import Correlator
from bylaw.guard.incidents.incidents import NotChanged
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.records import WideWindow
from bylaw.model.demand import Attempt
from bylaw.model.events import Event, Origin, Response, ToolCall
from bylaw.model.verdict import Outcome
from bylaw.rules import load_rules
from tests.guard.support import policies
from tests.incidents.support import World, all_of, copied, summary
from tests.twin.behaviour import reference_check


def burst(over: str, value: int = 2, **more: Any) -> dict[str, Any]:
    window = {"tool": "send", "value": value, "windowSeconds": 60, "over": over}
    return {"id": f"burst-{over}", "when": {"call_count_in_window_gt": window}, "then": "pause", **more}


def found(world: World) -> list[tuple[str, str, str, int]]:
    return [(one.rule, one.over, one.session, one.count) for one in world.incidents.list()]


CALLS = [("a", "s1"), ("a", "s2"), ("b", "s3"), ("a", "s3"), ("b", "s4"), ("b", "s5")]


@pytest.mark.parametrize(
    ("over", "wanted"),
    [
        ("session", []),
        ("agent", [("burst-agent", "agent", "a", 1), ("burst-agent", "agent", "b", 1)]),
        ("all", [("burst-all", "all", "", 4)]),
    ],
)
def test_a_window_counts_as_far_as_it_reaches(over: str, wanted: list[Any]) -> None:
    world = World([burst(over)])
    assert all(world.decide("send", session, agent=agent).allowed for agent, session in CALLS)
    world.follow()
    assert found(world) == wanted


def test_calls_outside_the_window_do_not_count() -> None:
    world = World([burst("all")])
    for number in range(6):
        world.decide("send", f"s{number}", later=31.0)
    world.follow()
    assert found(world) == []


def test_the_rest_of_the_rule_is_judged_too() -> None:
    rule = burst("all")
    rule["when"]["arg_eq"] = {"path": "to", "value": "x"}
    world = World([rule])
    for number, to in enumerate("yyyyxyx"):
        world.decide("send", f"s{number}", args={"to": to})
    world.follow()
    assert found(world) == [("burst-all", "all", "", 2)]


def test_a_pause_that_comes_too_late_is_an_alert() -> None:
    world = World([burst("all", 0)])
    world.decide("send")
    world.follow()
    (alert,) = world.incidents.alerts()
    assert (alert.kind, alert.status) == ("anomaly_alert", "pending")


@pytest.mark.parametrize("batch", [1, 2, 3, 500])
def test_the_size_of_batches_makes_no_difference(batch: int) -> None:
    world = World([burst("agent"), burst("all")])
    for agent, session in CALLS * 3:
        world.decide("send", session, agent=agent)
    whole, parts = copied(world.store.events(limit=1000)), copied(world.store.events(limit=1000))
    rules = policies(world.rules, "hitl")
    Correlator(rules, whole, clock=world.clock).catch_up()
    while Correlator(rules, parts, batch=batch, behind=1, clock=world.clock).step().events:
        pass  # another process continues after each batch
    assert summary(parts) == summary(whole)
    assert summary(whole)["incidents"]


def test_a_late_event_withdraws_nothing_that_was_counted_over_all_sessions() -> None:
    world = World([burst("all", 1)])
    for session in ("s1", "s2"):
        world.decide("send", session, ts=world.clock.now + 100)
    world.follow()
    world.decide("send", "s2", ts=world.clock.now)  # before the last event of its session
    world.follow()
    assert found(world) == [("burst-all", "all", "", 2)]
    assert world.incidents.list(status="solved") == []


def test_a_rule_of_one_agent_over_all_judges_the_calls_of_others_too() -> None:
    rules = {
        "guard": [
            {"agent": "a", "mode": "hitl", "rules": [burst("all")]},
            {"agent": "b", "mode": "hitl", "rules": [{"id": "x", "when": {"tool_name_in": ["x"]}, "then": "block"}]},
        ]
    }
    world = World(rules, mode=None)
    for agent in ("b", "b", "a", "b"):
        world.decide("send", f"s-{agent}", agent=agent)
    world.follow()
    assert found(world) == [("burst-all", "all", "", 2)]
    (incident,) = world.incidents.list()
    detections = world.incidents.detections(incident)
    assert [(one.rule, one.agent, one.call_session) for one in detections] == [
        ("burst-all", "a", "s-a"),
        ("burst-all", "b", "s-b"),
    ]


def test_rules_of_two_agents_with_one_id_are_distinguished() -> None:
    rules = {
        "guard": [{"agent": one, "mode": "hitl", "rules": [burst("all", value)]} for one, value in (("a", 1), ("b", 2))]
    }
    world = World(rules, mode=None)
    for number in range(3):
        world.decide("send", f"s{number}", agent="ab"[number % 2])
    world.follow()
    assert found(world) == [("a/burst-all", "all", "", 2), ("b/burst-all", "all", "", 1)]


OTHER = {"id": "x", "when": {"tool_name_in": ["x"]}, "then": "block"}


@pytest.mark.parametrize("over", ["agent", "all"])
@pytest.mark.parametrize("edit", [{"reason": "too many"}, {"then": "block"}, {"shadow": False}])
def test_an_edit_of_another_rule_or_of_the_action_keeps_the_window(over: str, edit: dict[str, Any]) -> None:
    store = MemoryStore()
    before = World([burst(over)], store=store)
    for number in range(2):
        before.decide("send", f"s{number}", agent="a")
    before.follow()
    after = World([{**burst(over), **edit}, OTHER, burst("all", 50, id="another")], store=store)
    after.decide("send", "s3", agent="a", later=9.0)
    after.follow()
    assert [(rule, count) for rule, _, _, count in found(after)] == [(f"burst-{over}", 1)]


def test_a_window_of_another_length_begins_afresh() -> None:
    store = MemoryStore()
    before = World([burst("all")], store=store)
    for number in range(2):
        before.decide("send", f"s{number}")
    before.follow()
    longer = {"tool": "send", "value": 2, "windowSeconds": 120, "over": "all"}
    after = World([{**burst("all"), "when": {"call_count_in_window_gt": longer}}], store=store)
    after.decide("send", "s3")
    after.follow()
    assert found(after) == []


def test_another_limit_continues_the_window() -> None:
    store = MemoryStore()
    before = World([burst("all")], store=store)
    before.decide("send", "s1")
    before.follow()
    after = World([burst("all", 1)], store=store)
    after.decide("send", "s3")
    after.follow()
    assert found(after) == [("burst-all", "all", "", 1)]


def test_a_call_from_the_future_counts_when_it_was_written() -> None:
    world = World([burst("all")])
    for number in range(2):
        world.decide("send", f"s{number}", ts=world.clock.now + 10**9)
    assert world.follow().ahead == 2
    world.decide("send", "s3", later=61.0)  # the two are no longer recent
    world.decide("send", "s4")
    world.follow()
    assert found(world) == []
    world.decide("send", "s5")
    world.follow()
    assert found(world) == [("burst-all", "all", "", 1)]


def test_the_state_is_bounded_by_the_rules() -> None:
    world = World([burst("agent", 3), burst("all", 3)])
    for number in range(300):
        world.decide("send", f"s{number}", agent=f"a{number % 2}", later=0.01)
    world.follow()
    states = all_of(world.store, WideWindow)
    assert sorted(one.id for one in states) == ["agent:a0", "agent:a1", "all:"]
    assert max(len(one.state) for one in states) < 1_000


def test_replay_finds_the_same_as_following() -> None:
    world = World([burst("agent"), burst("all")])
    for agent, session in CALLS:
        world.decide("send", session, agent=agent)
    world.follow()
    guard = bylaw.Guard(world.rules, store=world.store, mode="hitl")
    replayed = [(one.rule, one.over, one.session, one.count) for one in guard.replay().incidents]
    assert sorted(replayed) == sorted(found(world))


def test_check_counts_over_the_whole_trace() -> None:
    program = compile_rules(load_rules([burst("session"), burst("agent"), burst("all")]).rules)
    evaluation = Evaluation(program)
    broken: list[str] = []
    for at, (agent, session) in enumerate(CALLS):
        origin = Origin(session, agent=agent)
        call = ToolCall(origin=origin, name="send", call_id=str(at), at=float(at), arguments={})
        broken += [verdict.rule.id for verdict in evaluation.step(call)]
    assert [broken.count(f"burst-{over}") for over in ("session", "agent", "all")] == [0, 2, 4]
    assert Evaluation.restore(program, evaluation.snapshot()).snapshot() == evaluation.snapshot()


# -- alerts -----------------------------------------------------------------------------------------------------------


def alerted() -> World:
    world = World([burst("all", 0)])
    world.decide("send")
    world.follow()
    return world


def test_an_alert_is_acknowledged_with_its_incident() -> None:
    world = alerted()
    (alert,) = world.incidents.alerts()
    done = world.incidents.acknowledge_alert(alert.id, by="ann", note="seen")
    (incident,) = world.incidents.list()
    assert (done.status, done.acknowledged_by, incident.status) == ("acknowledged", "ann", "acknowledged")
    assert [change.what for change in incident.history] == ["opened", "acknowledged"]


def test_an_alert_of_an_acknowledged_incident_can_still_be_acknowledged() -> None:
    store = MemoryStore()
    world = World([burst("all", 0)], store=store)
    world.decide("send")
    world.follow()
    (alert,) = world.incidents.alerts()
    world.incidents.acknowledge(alert.incident, by="ann")
    assert world.incidents.alerts(status="pending") == []
    with store.transaction("") as transaction:  # as if the alert had come later
        pending = transaction.followed(type(alert), alert.id)
        assert pending is not None
        transaction.put_followed(replace(pending, status="pending"))
    assert world.incidents.acknowledge_alert(alert.id, by="bob").status == "acknowledged"
    assert [row.data["what"] for row in store.events() if row.kind == "incident"][-1] == "alert acknowledged"


def test_an_alert_is_acknowledged_once_by_somebody() -> None:
    world = alerted()
    (alert,) = world.incidents.alerts()
    with pytest.raises(NotChanged, match="needs a name"):
        world.incidents.acknowledge_alert(alert.id, by="")
    with pytest.raises(NotChanged, match="there is no alert"):
        world.incidents.acknowledge_alert("alert-0", by="ann")
    world.incidents.acknowledge_alert(alert.id, by="ann")
    with pytest.raises(NotChanged, match="acknowledged already"):
        world.incidents.acknowledge_alert(alert.id, by="ann")


def test_a_late_event_is_counted_at_its_own_time() -> None:
    rule = {"id": "r", "when": {"call_count_in_window_gt": {"value": 2, "windowSeconds": 300, "over": "all"}}}
    (loaded,) = bylaw.load_rules([{**rule, "then": "pause"}])
    assert isinstance(loaded.demand, Attempt)
    for times, wanted in (([0, 1000, 1], 0), ([0, 1000, 1, 2], 1), ([1000, 1001, 1002, 1], 1), ([5, 0, 9, 4], 1)):
        events = [call for number, at in enumerate(times) for call in turn(number, float(at))]
        evaluation = Evaluation(compile_rules([loaded]))
        broken = [verdict for event in events for verdict in evaluation.step(event)]
        assert len(broken) == wanted, times
        assert bool(wanted) == (reference_check([loaded], events)["r"][0] is Outcome.VIOLATED)


def turn(number: int, at: float) -> list[Event]:
    origin = Origin(f"s{number}")
    call = ToolCall(origin=origin, turn=number, name="send", call_id=f"c{number}", arguments={}, at=at)
    return [Response(origin=origin, turn=number, content=[], text="", stop_reason="tool_use", tool_calls=[call]), call]
