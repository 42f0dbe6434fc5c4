"""Late, duplicated and out-of-order rows, batches of any size, restarts: always what one ordered fold finds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.guard.incidents import sessions
from bylaw.guard.incidents.event_rows import add_time
from bylaw.guard.incidents.follower import Correlator, replay
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.records import EventRow, Following
from bylaw.model.events import Message, Origin, Response
from tests.guard.support import attempt, policies
from tests.incidents.support import CAP, WINDOW, World, append, copied, incident_fields, summary

RULES: Any = {
    "rules": [
        {"id": "made", "kind": "temporal", "params": {"at_most": 2, "of": "pay"}, "then": "block"},
        {"id": "first", "kind": "must_call_before", "params": {"first": "verify", "second": "wire"}, "then": "pause"},
        {"id": "closing", "kind": "temporal", "params": {"after": "pay", "require": "verify"}, "then": "block"},
        {"id": "no_leak", "kind": "forbidden_text", "params": {"text": "leak"}, "then": "block"},
    ],
    "guard": {
        "mode": "hitl",
        "rules": [
            WINDOW,
            CAP,
            {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"},
            {"id": "often", "when": {"call_count_in_run_gt": {"value": 3}}, "then": "block", "mode": "shadow"},
            {"id": "many", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 3}}, "then": "block"},
        ],
    },
}
LIVE: Any = {"guard": {"mode": "hitl", "rules": [CAP, RULES["guard"]["rules"][2]]}}
"""what the guard itself goes by: so little that every rule gets broken"""
SESSIONS = st.sampled_from(["a", "b"])
DECIDE = st.tuples(st.just("decide"), SESSIONS, st.sampled_from(["send", "pay", "wire", "verify"]), st.integers(0, 2))
STEPS = st.one_of(
    *(DECIDE, DECIDE, DECIDE, DECIDE, DECIDE),
    st.tuples(st.just("record"), SESSIONS, st.integers(0, 5), st.booleans()),
    st.tuples(st.just("release"), SESSIONS, st.integers(0, 5), st.just(0)),
    st.tuples(st.just("resume"), SESSIONS, st.integers(0, 5), st.just(0)),
    st.tuples(st.just("say"), SESSIONS, st.sampled_from(["fine", "a leak"]), st.just(0)),
    st.tuples(st.just("hear"), SESSIONS, st.just("hello"), st.just(0)),
    st.tuples(st.just("end"), SESSIONS, st.booleans(), st.just(0)),
    st.tuples(st.just("run"), SESSIONS, st.just("r"), st.just(0)),
)


class Drive:
    """A live run: each step a moment later than the one before, each row at a moment of its own."""

    def __init__(self) -> None:
        self.world = World(LIVE)
        self.decisions: dict[str, list[Any]] = {"a": [], "b": []}
        self.attempts: dict[str, Any] = {}
        self.number = 0
        clock = self.world.clock
        self.world.guard._clock = self.world.guard._decider._clock = self._tick  # type: ignore[assignment]
        self.world.guard.reviews._clock = self._tick  # type: ignore[assignment]
        self._now = clock

    def _tick(self) -> float:
        self._now.now += 0.5
        return self._now.now

    def step(self, what: str, session: str, one: Any, other: Any) -> None:
        getattr(self, f"_{what}")(session, one, other)

    def _decide(self, session: str, tool: str, size: int) -> None:
        self.number += 1
        fields = {"tool": tool, "session": session, "args": {"amount": 400 * size}, "call_id": f"call-{self.number}"}
        asked = attempt(fields, run="r" if size else None)
        decision = self.world.guard.decide(asked)
        self.decisions[session].append(decision)
        self.attempts[decision.call_id] = asked

    def _chosen(self, session: str, index: int) -> Any:
        known = self.decisions[session]
        return known[index % len(known)] if known else None

    def _record(self, session: str, index: int, is_error: bool) -> None:
        if (decision := self._chosen(session, index)) is not None:
            self.world.guard.record(decision, "done", is_error=is_error)

    def _release(self, session: str, index: int, _: Any) -> None:
        if (decision := self._chosen(session, index)) is not None:
            self.world.guard.release(decision)

    def _resume(self, session: str, index: int, _: Any) -> None:
        decision = self._chosen(session, index)
        if decision is None or decision.review is None:
            return
        try:
            self.world.guard.reviews.approve(decision.review, by="ann")
        except ValueError:
            return
        self.world.guard.decide(self.attempts[decision.call_id], review=decision.review)

    def _say(self, session: str, text: str, _: Any) -> None:
        origin = Origin(session)
        self.world.guard.observe(Response(origin=origin, at=self._tick(), text=text, content=[]))

    def _hear(self, session: str, text: str, _: Any) -> None:
        self.world.guard.observe(Message(origin=Origin(session), at=self._tick(), role="user", content=text))

    def _end(self, session: str, complete: bool, _: Any) -> None:
        self.world.guard.end_session(session, complete=complete)

    def _run(self, session: str, run: str, _: Any) -> None:
        self.world.guard.start_run(session, run)


def live(steps: list[tuple[Any, ...]]) -> list[EventRow]:
    drive = Drive()
    for step in steps:
        drive.step(*step)
    return list(drive.world.store.events(limit=100_000))


def follow(store: MemoryStore, *, batch: int = 500) -> None:
    Correlator(policies(RULES), store, batch=batch, clock=lambda: 0.0).catch_up()


@given(steps=st.lists(STEPS, min_size=4, max_size=25), data=st.data())
def test_any_arrival_gives_what_the_ordered_one_gives(steps: list[tuple[Any, ...]], data: st.DataObject) -> None:
    rows = [row for _, _, row in sorted(map(add_time, live(steps)))]
    ordered = copied(rows)
    follow(ordered)
    again = data.draw(st.lists(st.sampled_from(rows), max_size=4)) if rows else []
    arriving = [*rows, *again]
    data.draw(st.randoms(use_true_random=False)).shuffle(arriving)
    store, at = MemoryStore(), 0
    while at < len(arriving):
        size = data.draw(st.integers(1, 7))
        append(store, arriving[at : at + size])
        at += size
        if data.draw(st.booleans()):
            follow(store, batch=data.draw(st.integers(1, 5)))
    follow(store)
    assert summary(store) == summary(ordered)


@given(
    steps=st.lists(STEPS, min_size=4, max_size=25),
    cuts=st.sets(st.integers(0, 25)),
    batch=st.integers(1, 9),
    idle=st.integers(0, 5),
    room=st.sampled_from([0, 20_000, 1 << 20]),
)
def test_a_replay_gives_what_was_followed_live(
    steps: list[tuple[Any, ...]], cuts: set[int], batch: int, idle: int, room: int
) -> None:
    """Also where sessions are written and read again in between, for want of room."""
    drive = Drive()
    for number, step in enumerate(steps):
        drive.step(*step)
        if number in cuts:
            drive.world.follow(RULES, batch=batch)
    drive.world.follow(RULES, batch=batch)
    scratch = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "MOST_IDLE", idle)
        patch.setattr(sessions, "CACHE_BYTES", room)
        replayed = replay(policies(RULES), drive.world.store, scratch=scratch, batch=batch)
    assert summary(scratch) == summary(drive.world.store)
    assert sorted(map(incident_fields, replayed.incidents)) == summary(scratch)["incidents"]


def test_the_cache_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_IDLE", 100)
    rows = [_call(f"s{number // 5}", float(number), "pay", "allow") for number in range(1_000)]
    cached: list[int] = []
    correlator = Correlator(policies(RULES), copied(rows), target=MemoryStore(), write_each=False, batch=50, behind=1)
    correlator.catch_up(each=lambda step: cached.append(len(correlator._cache._cached)))
    assert max(cached) == cached[-1] == 30  # of the latest batch, and of what came up to 100 events before it
    monkeypatch.setattr(sessions, "CACHE_BYTES", 200_000)
    monkeypatch.setattr(sessions, "MOST_IDLE", 1_000_000)
    live, sizes = Correlator(policies(RULES), copied(rows), batch=50), list[int]()
    live.catch_up(each=lambda step: sizes.append(live._cache._size))
    assert 100_000 < max(sizes) <= 200_000


def test_a_late_event_withdraws_what_it_disproves() -> None:
    rows = [
        _call("a", 1.0, "verify", "allow"),
        _call("a", 2.0, "wire", "allow"),
    ]
    store = copied([rows[1]])
    follow(store)
    assert {one[1] for one in summary(store)["incidents"]} == {"ask", "first"}
    append(store, [rows[0]])
    follow(store)
    assert [one[1] for one in summary(store)["incidents"]] == ["ask"]
    ordered = copied(rows)
    follow(ordered)
    assert summary(store) == summary(ordered)


def test_what_cannot_be_put_right_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_call("a", float(at), "verify", "allow") for at in range(1, 6)]
    store = copied(rows[1:])
    follow(store)
    monkeypatch.setattr(sessions, "MOST_REFOLDED", 3)
    append(store, rows[:1])
    follow(store)
    assert [one.inexact for one in store.followed(Following)] == [True]


def test_a_pruned_session_is_not_folded_anew() -> None:
    """What is left of the log would show fewer calls than there were."""
    store = copied([_call("a", float(at), "pay", "allow") for at in range(1, 4)])
    follow(store)
    before = summary(store)
    store._tables.events = store._tables.events[2:]
    append(store, [_call("a", 0.5, "send", "allow")])
    follow(store)
    assert summary(store) == before
    assert [one.inexact for one in store.followed(Following)] == [True]


def _call(session: str, at: float, tool: str, action: str) -> EventRow:
    decision = {"action": action, "decided_by": None, "matched": [], "reason": "", "review": None, "policy": "p"}
    data = {"attempt": {"tool": tool, "ts": at}, "decision": {**decision, "call_id": f"{tool}-{at}"}}
    return EventRow(session, "decision", at, data)


BIG: Any = {"args": {"a": "x" * 100_000}, "keys": {"x" * 100_000: 1}}


@pytest.mark.parametrize("arguments", BIG.values(), ids=BIG)
def test_a_session_that_grows_by_few_large_events_makes_room(arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far fewer than it had before: it is not only measured again when their number has doubled."""
    monkeypatch.setattr(sessions, "CACHE_BYTES", 2 << 20)
    rules = {"rules": RULES["rules"], "guard": {"mode": "hitl", "rules": []}}
    world, scratch = World(rules), MemoryStore()
    given: Any = {"target": scratch, "write_each": False, "clock": world.clock}
    correlator = Correlator(policies(rules, "hitl"), world.store, **given)
    for number in range(100):
        world.decide("look", args={"n": 1}, call_id=f"small{number}")
    correlator.catch_up()
    assert not scratch.followed(Following)
    for number in range(50):
        world.decide("look", args=arguments, call_id=f"large{number}")
    correlator.catch_up()
    assert len(scratch.followed(Following)) == 1


class _Compared(str):
    times = 0

    def __eq__(self, other: object) -> bool:
        _Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_events_of_one_moment_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "digest", lambda row: _Compared(row.seq))
    rows = [(1.0, number, EventRow("s", "run", 1.0, {}, number)) for number in range(500)]
    fresh = sessions._FreshRows(Following(id="s"))
    assert len(list(fresh.only([*rows, *rows]))) == 500
    assert list(map(str, fresh.newest())) == [str(number) for number in range(500 - sessions.MOST_NEWEST, 500)]
    assert _Compared.times < 5_000
