"""What people do with incidents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.incidents.follower import replay
from bylaw.guard.incidents.incidents import NotChanged
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import followed_pages
from bylaw.guard.stores.records import Incident
from tests.guard.support import policies
from tests.incidents.support import CAP, WINDOW, World


@pytest.fixture
def world() -> World:
    world = World([CAP, WINDOW])
    world.decide("pay", args={"amount": 900})
    world.follow()
    return world


def one(world: World) -> Incident:
    return world.incidents.list()[0]


def test_each_change_says_who_and_when(world: World) -> None:
    key = one(world).id
    world.clock.now = 2_000_000_000.0
    world.incidents.acknowledge(key, by="ann", note="looking")
    world.incidents.assign(key, "bob", by="ann")
    world.incidents.note(key, "it was a test with sk-live_0123456789abcdefghij", by="bob")
    solved = world.incidents.solve(key, by="bob")
    assert (solved.status, solved.assignee) == ("solved", "bob")
    assert [(c.what, c.by, c.note) for c in solved.history[1:]] == [
        ("acknowledged", "ann", "looking"),
        ("assigned", "ann", "to bob"),
        ("noted", "bob", "it was a test with [redacted: api key]"),
        ("solved", "bob", None),
    ]
    audited = [row.data for row in world.store.audit() if row.data["kind"] == "incident"]
    assert [(row["what"], row["by"]) for row in audited] == [
        ("opened", "follow-up"),
        *((c.what, c.by) for c in solved.history[1:]),
    ]


def test_what_cannot_be_changed(world: World) -> None:
    key = one(world).id
    for change in (
        lambda: world.incidents.solve("incident-none", by="ann"),
        lambda: world.incidents.solve(key, by=""),
        lambda: world.incidents.assign(key, "", by="ann"),
        lambda: world.incidents.note(key, "", by="ann"),
        lambda: world.incidents.note(key, "x" * 5000, by="ann"),
    ):
        with pytest.raises(NotChanged):
            change()
    world.incidents.solve(key, by="ann")
    for again in (world.incidents.solve, world.incidents.acknowledge):
        with pytest.raises(NotChanged, match="solved already"):
            again(key, by="ann")


def test_acknowledging_takes_note_of_the_alert() -> None:
    world = World([WINDOW])
    for _ in range(3):
        world.decide("send")
    world.follow()
    world.incidents.acknowledge(one(world).id, by="ann")
    (alert,) = world.incidents.alerts()
    assert (alert.status, alert.acknowledged_by) == ("acknowledged", "ann")
    assert world.incidents.alerts(status="pending") == []


def test_a_replay_writes_only_on_request_and_only_what_is_missing(world: World) -> None:
    before = world.store.events(limit=1000)
    for _ in range(3):
        world.decide("send")
    rules = policies([CAP, WINDOW])
    found = replay(rules, world.store, scratch=MemoryStore())
    assert [incident.rule for incident in found.incidents] == ["cap", "burst"]
    assert [incident.rule for incident in world.incidents.list()] == ["cap"]
    assert len(world.store.events(limit=1000)) == len(before) + 3
    assert replay(rules, world.store, scratch=MemoryStore(), write=True).written == 1
    assert replay(rules, world.store, scratch=MemoryStore(), write=True).written == 0
    world.follow()  # finds it written already
    assert world.open() == [("cap", "s", 1), ("burst", "s", 1)]


def test_since_leaves_out_what_is_older(world: World) -> None:
    world.clock.now += 1000
    for _ in range(3):
        world.decide("send")
    found = replay(policies([CAP, WINDOW]), world.store, scratch=MemoryStore(), since=world.clock.now - 10)
    assert [incident.rule for incident in found.incidents] == ["burst"]


def test_pruning_keeps_what_is_open(world: World) -> None:
    world.clock.now += 1000
    world.store.prune(before=world.clock.now)
    assert one(world).status == "unresolved"
    world.incidents.solve(one(world).id, by="ann")
    world.clock.now += 1000
    assert world.store.prune(before=world.clock.now)["followed"] >= 1
    assert world.incidents.list() == []
    world.decide("pay", args={"amount": 900})
    world.follow()  # goes on from where it was, with a session that begins anew
    assert world.open() == [("cap", "s", 1)]


def test_a_replay_gives_incidents_one_by_one_in_the_order_they_were_found() -> None:
    """By the time of their events, whichever sessions share a batch."""
    world = World([CAP])
    for number in (3, 1, 2, 1, 3):
        world.decide("pay", f"s{number}", args={"amount": 900})
    taken: list[Incident] = []
    found = replay(policies([CAP]), world.store, scratch=MemoryStore(), each=taken.append, clock=world.clock)
    assert [one.session for one in taken] == ["s3", "s1", "s2"]
    assert (found.count, found.incidents) == (3, [])
    assert replay(policies([CAP]), world.store, scratch=MemoryStore(), clock=world.clock).incidents == taken


def test_what_is_read_page_by_page_is_read_once() -> None:
    world = World([CAP])
    for number in range(5):
        world.decide("pay", f"s{number}", args={"amount": 900})
    world.follow()
    pages = list(followed_pages(world.store, Incident, size=2))
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [one.session for page in pages for one in page] == [f"s{number}" for number in range(5)]


@pytest.mark.parametrize("dropped", [[4], [0, 4], [3, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("opened", [MemoryStore, SqliteStore])
def test_paging_goes_on_where_records_were_dropped_meanwhile(tmp_path: Path, opened: Any, dropped: list[int]) -> None:
    store = MemoryStore() if opened is MemoryStore else SqliteStore(tmp_path / "guard.db")
    ids = [str(number) for number in range(15)]
    with store.transaction("") as transaction:
        for id in ids:
            transaction.put_followed(Incident(id=id, rule="r"))
    seen: list[str] = []
    for page in followed_pages(store, Incident, size=5):
        seen += [one.id for one in page]
        with store.transaction("") as transaction:
            for place in dropped:
                transaction.drop_followed(page[place])
    assert seen == ids
