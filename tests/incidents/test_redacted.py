"""Secrets are not in the log. What rules made of them is known all the same, or said not to be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.guard.decide.redaction import rules_on_event
from bylaw.guard.incidents.event_rows import Rules
from bylaw.guard.incidents.follower import replay
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.guard.stores.records import Detection, EventRow, Following
from bylaw.model.events import Message, Origin, Request, Response, ToolCall, Usage
from tests.guard.support import attempt, guard, policies
from tests.incidents.support import World, all_of, append, summary

LIVE, TEST = "sk-live_0123456789abcdefghij", "sk-test_0123456789abcdefghij"
NO_LIVE = {"id": "no-live", "when": {"arg_regex": {"path": "key", "pattern": "^sk-live"}}, "then": "block"}
OFTEN = {
    "id": "often",
    "when": {
        "arg_regex": {"path": "key", "pattern": "^sk-test"},
        "call_count_in_window_gt": {"tool": "pay", "value": 2, "windowSeconds": 60},
    },
    "then": "pause",
}
SAME = {
    "id": "same",
    "kind": "temporal",
    "params": {"formula": "G (tool(pay, args.key = $k) -> O tool(verify, args.key = $k))"},
    "then": "block",
}
SAID = {"id": "said", "kind": "forbidden_text", "params": {"text": "sk-live"}, "then": "block"}
SENT = {
    "id": "sent",
    "kind": "temporal",
    "params": {"formula": 'G !result(pay, result.status = "sent")'},
    "then": "block",
}


def both(*rules: Any) -> dict[str, Any]:
    return {
        "rules": [r for r in rules if "kind" in r],
        "guard": {"mode": "hitl", "rules": [r for r in rules if "kind" not in r]},
    }


def found(world: World) -> dict[str, list[str]]:
    """Rule → the calls that broke it."""
    by_rule: dict[str, list[str]] = {}
    for one in all_of(world.store, Detection):
        by_rule.setdefault(one.rule, []).append(str(one.call_id))
    return by_rule


def pay(world: World, key: str, call_id: str, tool: str = "pay") -> Any:
    decision = world.decide(tool, args={"key": key}, call_id=call_id)
    assert key not in str([row.data for row in world.store.events(limit=10_000)])
    return decision


def test_what_predicates_said_is_used() -> None:
    world = World([NO_LIVE])
    assert not pay(world, LIVE, "a").allowed
    assert pay(world, TEST, "b").allowed
    step = world.follow()
    assert (found(world), step.unjudged) == ({"no-live": ["a"]}, {})


def test_also_of_rules_that_only_the_follow_up_acts_on() -> None:
    world = World([OFTEN])
    for call_id in "abcd":
        assert pay(world, TEST, call_id).allowed
    assert pay(world, LIVE, "e").allowed
    step = world.follow()
    assert (found(world), step.unjudged) == ({"often": ["c", "d"]}, {})


def test_a_rule_that_has_changed_was_not_asked() -> None:
    """The same id, another pattern: what the first one said is not taken for what this one says."""
    world = World([NO_LIVE, OFTEN])
    for key, call_id in ((LIVE, "a"), (TEST, "b"), ("short", "c")):
        world.decide("pay", args={"key": key}, call_id=call_id)
    changed = {**NO_LIVE, "when": {"arg_regex": {"path": "key", "pattern": "^s(k-test|hort)"}}}
    step = world.follow([changed, OFTEN])
    assert found(world) == {"no-live": ["c"]}
    assert step.unjudged == {"no-live": 2}
    assert [one.unjudged for one in world.store.followed(Following)] == [{"no-live": 2}]
    replayed = replay(policies([changed, OFTEN], "hitl"), world.store, scratch=MemoryStore())
    assert replayed.unjudged == {"no-live": 2}


def test_a_new_rule_that_asks_the_same_is_answered() -> None:
    world = World([NO_LIVE])
    pay(world, LIVE, "a")
    pay(world, TEST, "b")
    not_live = {**NO_LIVE, "id": "not-live", "when": {"not": NO_LIVE["when"]}}
    there = {"id": "there", "when": {"arg_present": {"path": "key"}}, "then": "block"}
    gone = {"id": "gone", "when": {"any_of": [NO_LIVE["when"], {"arg_missing": "key"}]}, "then": "block"}
    step = world.follow([not_live, there, gone])
    assert (found(world), step.unjudged) == ({"not-live": ["b"], "there": ["a", "b"], "gone": ["a"]}, {})


def test_what_does_not_depend_on_the_secret_is_judged() -> None:
    world = World([])
    world.decide("pay", args={"key": LIVE, "amount": 900}, call_id="a")
    world.decide("pay", args={"key": LIVE, "amount": 1}, call_id="b")
    over = {"arg_gt": {"path": "amount", "value": 500}}
    either = {"id": "either", "when": {"any_of": [over, NO_LIVE["when"]]}, "then": "block"}
    each = {"id": "each", "when": {"all_of": [over, NO_LIVE["when"]]}, "then": "block"}
    step = world.follow([either, each])
    assert found(world) == {"either": ["a"]}
    assert step.unjudged == {"either": 1, "each": 1}


@pytest.mark.parametrize("quiet", [{"mode": "shadow"}, {"then": "allow"}])
def test_rules_that_raise_nothing_are_not_missed(quiet: dict[str, Any]) -> None:
    world = World([])
    pay(world, LIVE, "a")
    assert world.follow([{**NO_LIVE, **quiet}]).unjudged == {}


def test_of_behaviour_rules_the_guards_word_is_taken() -> None:
    world = World(both(SAME))
    assert pay(world, TEST, "a", "verify").allowed
    assert not pay(world, LIVE, "b").allowed  # both are `[redacted: api key]` in the log
    assert pay(world, TEST, "c").allowed
    step = world.follow()
    assert (found(world), step.unjudged) == ({"same": ["b"]}, {})


def test_without_the_guards_word_behaviour_rules_are_not_judged() -> None:
    world = World([])
    pay(world, TEST, "a", "verify")
    pay(world, LIVE, "b")
    world.guard.end_session("s")
    world.decide("pay", args={"key": "short"}, call_id="c")
    step = world.follow(both(SAME))
    assert found(world) == {"same": ["c"]}  # a new session: what it remembers is known again
    assert step.unjudged == {"same": 3}  # verify, pay, and the end


def test_redacted_results_and_responses_are_judged() -> None:
    rules = both(SAID, SENT)
    world, other = World(rules), World([])
    for one in (world, other):
        first, second = (one.decide("pay", call_id=call_id) for call_id in "ab")
        one.guard.record(first, {"status": "sent"})
        one.guard.observe(Response(origin=Origin("s"), at=one.clock.now + 1, text=f"it is {LIVE}", content=[]))
        one.guard.record(second, {"status": LIVE}, ts=one.clock.now + 2)
    assert world.follow().unjudged == {}
    assert set(found(world)) == {"sent", "said"}
    step = other.follow(rules)
    assert found(other) == {"sent": ["a"]}
    assert step.unjudged == {"said": 1, "sent": 1}


TOKENS = {"id": "tokens", "kind": "max_total_tokens", "params": {"limit": 100}, "then": "block"}
USER = {"id": "user", "kind": "temporal", "params": {"formula": 'G !(user("delete"))'}, "then": "block"}
WHEN_ASKED = {
    "id": "asked",
    "kind": "no_call",
    "params": {"tool": "pay"},
    "when": {"path": "model", "op": "==", "value": "small"},
    "then": "block",
}


def test_what_is_not_written_of_requests_and_responses() -> None:
    rules = both(TOKENS, USER, WHEN_ASKED)
    world, other = World(rules), World([])
    for one in (world, other):
        asked = Request(origin=Origin("s"), held_messages=[{"role": "user", "content": "delete it"}])
        usage = Usage(input_tokens=90, output_tokens=90)
        said = {"text": "fine", "content": [], "usage": usage, "request": asked, "model": "small"}
        one.guard.observe(Response(origin=Origin("s"), at=one.clock.now + 1, **said))
        one.decide("pay", call_id="a", later=2.0)
    assert world.follow().unjudged == {}
    assert set(found(world)) == {"tokens", "user", "asked"}
    step = other.follow(rules)
    assert found(other) == {}
    assert step.unjudged == {"tokens": 1, "user": 1, "asked": 2}


WHEN_LONG = {
    **USER,
    "id": "long",
    "when": {"path": "response.usage.output_tokens", "op": ">", "value": 50},
}


def test_a_rule_on_messages_with_a_condition_that_is_not_written() -> None:
    """What the user has said is written, and how many tokens the answer has is not."""
    rules = both(WHEN_LONG)
    world, other = World(rules), World([])
    for one in (world, other):
        one.guard.observe(Message(origin=Origin("s"), at=one.clock.now + 1, role="user", content="delete it"))
        usage = Usage(input_tokens=90, output_tokens=90)
        one.guard.observe(Response(origin=Origin("s"), at=one.clock.now + 2, text="fine", content=[], usage=usage))
    assert world.follow().unjudged == {}
    assert set(found(world)) == {"long"}
    assert other.follow(rules).unjudged == {"long": 1}


def test_an_observed_event_that_is_not_written() -> None:
    rules = both({"id": "made", "kind": "temporal", "params": {"at_most": 1, "of": "pay"}, "then": "block"})
    world, other = World(rules), World([])
    for one in (world, other):
        for call_id in "ab":
            one.guard.observe(ToolCall(origin=Origin("s"), at=one.clock.now, name="pay", call_id=call_id))
        one.decide("pay", call_id="c")
    assert world.follow().unjudged == {}
    assert [count for _, _, count in world.open()] == [2]  # as the guard has found
    assert other.follow(rules).unjudged == {"made": 3}
    assert other.open() == []


STOPS = {"id": "stops", "kind": "required_stop_reason", "params": {"allowed": ["end_turn"]}, "then": "block"}
CONSTANT = {"id": "constant", "kind": "temporal", "params": {"formula": 'G (text("x") -> true)'}, "then": "block"}


@pytest.mark.parametrize("rule", [SAID, STOPS, CONSTANT, TOKENS, WHEN_ASKED], ids=lambda rule: str(rule["id"]))
def test_a_recomputation_and_the_follow_up_agree_on_what_is_written(rule: Any) -> None:
    rules = Rules(policies(both(rule), "hitl"))
    (policy,) = rules.policies.all
    said = Response(origin=Origin("s"), text="fine", stop_reason="end_turn")
    lost = [rule["id"]] if rule in (TOKENS, WHEN_ASKED) else []
    assert rules_on_event(policy, said, redacted=False) == set(lost)
    assert rules.lost_by(said, redacted=False) == {f"{policy.hash}/{id}" for id in lost}


def test_a_secret_in_a_call_that_a_fault_let_through() -> None:
    world = World([NO_LIVE], on_store_unavailable="allow")
    real, world.store.transaction = world.store.transaction, _out_of_reach  # type: ignore[method-assign]
    assert world.decide("pay", args={"key": LIVE}).allowed
    assert world.decide("pay", args={"key": TEST}).allowed
    world.store.transaction = real  # type: ignore[method-assign]
    world.decide("send")
    step = world.follow()
    assert ([one[::2] for one in world.open()], step.unjudged) == ([("no-live", 1)], {})
    other = {**NO_LIVE, "when": {"arg_regex": {"path": "key", "pattern": "live"}}}
    assert replay(policies([other], "hitl"), world.store, scratch=MemoryStore()).unjudged == {"no-live": 2}


OVER = {"arg_gt": {"path": "amount", "value": 5}}
PAID_OFTEN = {"call_count_in_window_gt": {"tool": "pay", "value": 2, "windowSeconds": 60}}
IN_PART = [
    {"id": "r", "when": {"all_of": [OVER, PAID_OFTEN]}, "then": "pause"},
    {
        "id": "r",
        "when": {"any_of": [{"all_of": [OVER, PAID_OFTEN]}, {"arg_gt": {"path": "amount", "value": 500}}]},
        "then": "block",
    },
]


def without_its_id(rule: Any, **says: Any) -> World:
    """Five calls of which the last three break the rule, in rows that do not have all of the attempt."""
    world = World([rule])
    for call_id in "abcde":
        assert world.decide("pay", args={"amount": 10}, call_id=call_id).allowed
    rows = list(world.store.events())
    world.store = MemoryStore()
    append(
        world.store, [EventRow(row.session, row.kind, row.at, {**row.data, "unwritten": True, **says}) for row in rows]
    )
    return world


@pytest.mark.parametrize(("rule", "unclear"), list(zip(IN_PART, (3, 5), strict=True)))
def test_the_silence_of_a_guard_that_asked_a_rule_only_in_part_says_nothing(rule: Any, unclear: int) -> None:
    world = without_its_id(rule)
    step = world.follow()
    assert (found(world), step.unjudged) == ({}, {"r": unclear})


def test_the_silence_of_a_guard_that_asked_all_of_a_rule_is_taken() -> None:
    world = without_its_id(
        {"id": "r", "when": {"all_of": [{"arg_gt": {"path": "amount", "value": 20}}]}, "then": "block"}
    )
    step = world.follow()
    assert (found(world), step.unjudged) == ({}, {})


@pytest.mark.parametrize("rule", IN_PART)
def test_arguments_that_stand_in_the_row_are_judged_whatever_else_does_not(rule: Any) -> None:
    world = without_its_id(rule, arguments_written=True)
    step = world.follow()
    assert (found(world), step.unjudged) == ({"r": ["c", "d", "e"]}, {})


@pytest.mark.parametrize("fields", [{"call_id": LIVE}, {"call_id": "a", "run": "password=run1234"}])
@pytest.mark.parametrize("rule", IN_PART)
def test_nobody_hides_by_the_choice_of_an_id(rule: Any, fields: dict[str, Any]) -> None:
    world = World([rule])
    for number in range(5):
        given = {**fields, "call_id": f"{fields['call_id']}{number}"}
        assert world.decide("pay", args={"amount": 10}, **given).allowed
    step = world.follow()
    assert len(all_of(world.store, Detection)) + step.unjudged.get("r", 0) >= 3


def _out_of_reach(session: str) -> Any:
    raise StoreUnavailable("gone")


def test_a_late_event_does_not_count_what_was_unjudged_twice() -> None:
    world = World([])
    for number in range(4):
        pay(world, LIVE, f"c{number}")
    rows = list(world.store.events())
    store = MemoryStore()
    world.store = store
    steps = []
    for row in (rows[3], rows[0], rows[2], rows[1]):
        append(store, [row])
        steps.append(world.follow([NO_LIVE]).unjudged)
    assert steps == [{"no-live": 1}] * 4
    assert [one.unjudged for one in store.followed(Following)] == [{"no-live": 4}]


def test_rows_that_only_look_redacted_are_reported() -> None:
    world = World([NO_LIVE])
    decision = {"action": "allow", "matched": [], "call_id": "c"}
    for number, gone in enumerate((5, {}, {"arguments": "key"}, {"arguments": [["key"]], "truths": [1]})):
        data = {"attempt": {"tool": "pay", "arguments": {"key": "x"}}, "decision": decision, "redacted": gone}
        append(world.store, [EventRow("s", "decision", float(number), data)])
    huge = {"attempt": {"tool": "pay", "ts": 10**400}, "decision": decision}
    append(world.store, [EventRow("s", "decision", 9.0, huge)])
    replayed = replay(policies([NO_LIVE]), world.store, scratch=MemoryStore())
    assert (replayed.events, replayed.unreadable, replayed.unjudged) == (5, 4, {})


# -- random rules ---------------------------------------------------------------------------------------------

PATHS = st.sampled_from(["key", "auth.password", "list.*", "list.0", "list.-1", "amount"])
VALUES = st.sampled_from([LIVE, TEST, "short", 5, 900, None])
LEAF = st.one_of(
    st.builds(lambda p, v: {"arg_eq": {"path": p, "value": v}}, PATHS, VALUES),
    st.builds(lambda p, v: {"arg_in": {"path": p, "values": [v, "x"]}}, PATHS, VALUES),
    st.builds(
        lambda p, v: {"arg_regex": {"path": p, "pattern": v}}, PATHS, st.sampled_from(["live", "^sk", "redacted"])
    ),
    st.builds(lambda p: {"arg_missing": p}, PATHS),
    st.builds(lambda p: {"arg_gt": {"path": p, "value": 100}}, PATHS),
    st.just({"call_count_in_session_gt": {"value": 2}}),
    st.just({"call_count_in_window_gt": {"tool": "pay", "value": 1, "windowSeconds": 60}}),
    st.just({"tool_name_in": ["pay"]}),
)
WHEN = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.builds(lambda of: {"all_of": of}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda of: {"any_of": of}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda of: {"not": of}, inner),
    ),
    max_leaves=5,
)
RULE = st.builds(lambda when, inline: {"when": when, "then": "block", "inline": inline}, WHEN, st.booleans())
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "key": VALUES,
        "auth": st.sampled_from([{"password": "hunter2 is it"}, {"password": LIVE}, {}, LIVE]),
        "list": st.lists(VALUES, max_size=3),
        "amount": VALUES,
    },
)
CALLS = st.lists(st.tuples(st.sampled_from(["pay", "send"]), ARGUMENTS), min_size=1, max_size=8)


@given(rules=st.lists(RULE, min_size=1, max_size=4), calls=CALLS, batch=st.integers(1, 4))
def test_with_secrets_or_without_the_same_is_found(rules: list[Any], calls: list[Any], batch: int) -> None:
    """Against a log that has the secrets in it: what the follow-up would find if it saw everything."""
    rules = [{"id": f"r{number}", **rule} for number, rule in enumerate(rules)]
    world = World({"guard": {"rules": rules}})
    decisions = [
        world.decide(tool, args=arguments, call_id=f"c{number}") for number, (tool, arguments) in enumerate(calls)
    ]
    log = str([row.data for row in world.store.events()])
    assert LIVE not in log and TEST not in log
    step = world.follow(batch=batch)
    assert step.unjudged == {}
    seen = MemoryStore()
    append(seen, [_with(row, arguments) for row, (_, arguments) in zip(world.store.events(), calls, strict=False)])
    scratch = MemoryStore()
    replay(policies(world.rules, "hitl"), seen, scratch=scratch)
    assert _breaches(world.store) == _breaches(scratch)
    stopped = {(one.rule, one.call_id) for one in all_of(world.store, Detection) if one.stopped}
    assert stopped == {(rule, d.call_id) for d in decisions for rule in d.matched}
    again = MemoryStore()
    replay(policies(world.rules, "hitl"), world.store, scratch=again)
    assert summary(again) == summary(world.store)


@given(rules=st.lists(RULE, max_size=3), others=st.lists(RULE, min_size=1, max_size=3), calls=CALLS)
def test_other_rules_find_nothing_that_is_not_so(rules: list[Any], others: list[Any], calls: list[Any]) -> None:
    """Whatever the guard went by: a breach is one, and each that is missed was said to be unjudged."""
    rules, others = ([{"id": f"r{n}", **rule} for n, rule in enumerate(given)] for given in (rules, others))
    world = World({"guard": {"rules": rules}})
    for number, (tool, arguments) in enumerate(calls):
        world.decide(tool, args=arguments, call_id=f"c{number}")
    hidden, full = MemoryStore(), MemoryStore()
    replayed = replay(policies(others, "hitl"), world.store, scratch=hidden)
    seen = MemoryStore()
    append(seen, [_with(row, arguments) for row, (_, arguments) in zip(world.store.events(), calls, strict=False)])
    assert replay(policies(others, "hitl"), seen, scratch=full).unjudged == {}
    got, real = ({(one.rule, one.call_id) for one in all_of(store, Detection)} for store in (hidden, full))
    assert got <= real
    missed = Counter(rule for rule, _ in real - got)
    assert all(count <= replayed.unjudged.get(rule, 0) for rule, count in missed.items())


def _with(row: EventRow, arguments: Any) -> EventRow:
    data = {key: value for key, value in row.data.items() if key not in ("redacted", "asked")}
    return EventRow(row.session, row.kind, row.at, {**data, "attempt": {**data["attempt"], "arguments": arguments}})


def _breaches(store: Any) -> set[tuple[Any, ...]]:
    return {(one.rule, one.call_id, one.stopped, one.certain, one.message) for one in all_of(store, Detection)}


def test_a_reopened_store_is_judged_alike(tmp_path: Any) -> None:
    """What a row says does not depend on who reads it: a store that is opened again gives the same."""
    path = tmp_path / "guard.db"
    store = SqliteStore(path)
    live = guard(both(NO_LIVE, SAME, OFTEN), store=store, mode="hitl")
    for number, (tool, key) in enumerate([("verify", TEST), ("pay", TEST), ("pay", LIVE), ("pay", TEST)]):
        live.decide(attempt({"tool": tool, "session": "s", "args": {"key": key}, "call_id": f"c{number}"}))
    store.close()
    reopened = SqliteStore(path)
    replayed = replay(policies(both(NO_LIVE, SAME, OFTEN)), reopened, scratch=SqliteStore(tmp_path / "scratch.db"))
    assert {(one.rule, one.count) for one in replayed.incidents} == {("no-live", 1), ("same", 1), ("often", 1)}
    assert replayed.unjudged == {}
    reopened.close()
