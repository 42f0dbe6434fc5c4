"""What every store must do. A store passes by a subclass that says how it is opened:

    class TestMyStore(SharedStoreConformance):
        @pytest.fixture
        def opener(self, tmp_path):
            return partial(MyStore, tmp_path / "file")

`StoreConformance` is for any store, `SharedStoreConformance` adds what holds for one that other processes open too and
that outlives them. `opener()` opens the store of this test; it takes `clock` and `busy_timeout`, and can be pickled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPMethod
from itertools import takewhile
from typing import Any

import pytest
from msgspec.structs import replace

from bylaw.guard.stores import audit_rows, verify_chain
from bylaw.guard.stores.ports import MAX_DEPTH, GuardStore, StoreConflict, StoreUnavailable
from bylaw.guard.stores.records import (
    Alert,
    AuditHead,
    Change,
    Delivery,
    Detection,
    EventRow,
    Following,
    FollowRecord,
    Incident,
    Notification,
    Position,
    SessionRecord,
)
from bylaw.model.rule import Severity
from tests.stores.support import Clock, count_up, in_processes, note, open_and_count_up, own_rows, read, review, write

ODD_KEYS = ["", "\0", "a\0b", "a", "A", "é", "e\u0301", "\ud800", "🦊", "'; DROP TABLE events", "x" * 10_000, "%", " "]
ODD_DATA: list[Any] = [
    {},
    {"a": None, "b": True, "c": -0.0, "d": 1.5, "e": 1e20, "f": 1e-9, "g": 2**60, "h": "\0"},
    {"é": "\ud800", "🦊": "\uffff", "\uffff": "🦊"},
    {"whole": 45.0, "inside": [{"whole": 1e3}], "big": 10**30, "": ""},
    {"z": 1, "a": {"z": 1, "a": 2}, "text": '"\\\u2028\x7f\x1f/'},
    {"action": HTTPMethod.GET},
]


DELIVERY = Delivery(at=1.0, seconds=0.5, answer=500, problem="answered 500")


def _told(key: str, **given: Any) -> Notification:
    return Notification(id=key, event="x", body={}, created_at=1.0, **given)


def _old_links(store: GuardStore, before: float) -> int:
    """The links at the start of the chain that are older; an anchor is none."""
    return sum(1 for row in takewhile(lambda row: row.at < before, store.audit()) if row.previous)


class _Undo(Exception):
    pass


class StoreConformance:
    @pytest.fixture
    def opener(self) -> Callable[..., GuardStore]:
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def store(self, opener: Callable[..., GuardStore], clock: Clock) -> Iterator[GuardStore]:
        store = opener(clock=clock)
        yield store
        store.close()

    # sessions

    def test_a_session_nobody_wrote_is_new(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            assert transaction.session("s") == SessionRecord("s")

    def test_a_session_is_as_it_was_written(self, store: GuardStore) -> None:
        write(store, "s", b"\0\xff")
        assert write(store, "s", b"two", terminated="why\0é\ud800") == 2
        with store.transaction("s") as transaction:
            assert transaction.session("s") == SessionRecord("s", 2, b"two", "why\0é\ud800")
            assert transaction.session("t") == SessionRecord("t")

    def test_a_transaction_sees_its_own_writes(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            record = SessionRecord("s", 1, b"one")
            transaction.put_session(record)
            assert transaction.session("s") == record
            record.state = b"changed after it was put"
            assert transaction.session("s").state == b"one"
            transaction.put_review(review("r"))
            assert transaction.review("r") == transaction.find_review("s", "h") == review("r", version=1)
            transaction.set_switch("*", "why")
            assert transaction.switches() == {"*": "why"}

    @pytest.mark.parametrize("version", [0, 1, 3, 7])
    def test_a_session_that_is_not_as_read_is_refused(self, store: GuardStore, version: int) -> None:
        write(store, "s")
        with pytest.raises(StoreConflict), store.transaction("s") as transaction:
            transaction.put_session(SessionRecord("s", version, b"stale"))
        assert read(store, "s") == b"state"

    def test_a_new_session_has_the_first_version(self, store: GuardStore) -> None:
        with pytest.raises(StoreConflict), store.transaction("s") as transaction:
            transaction.put_session(SessionRecord("s", 5))

    def test_odd_keys_are_apart(self, store: GuardStore) -> None:
        for key in ODD_KEYS:
            write(store, key, key.encode("utf-8", "surrogatepass"))
            note(store, key, 1.0)
        assert [read(store, key) for key in ODD_KEYS] == [key.encode("utf-8", "surrogatepass") for key in ODD_KEYS]
        assert [row.session for row in store.events()] == ODD_KEYS
        for key in ODD_KEYS:
            assert [row.session for row in store.events(session=key)] == [key]

    def test_a_big_state_is_read_back(self, store: GuardStore) -> None:
        state = bytes(range(256)) * 40_000
        write(store, "s", state)
        assert read(store, "s") == state

    # atomicity

    @pytest.mark.parametrize("error", [_Undo, KeyboardInterrupt, GeneratorExit])
    def test_an_exception_undoes_everything(self, store: GuardStore, error: type[BaseException]) -> None:
        write(store, "s", b"before")
        note(store, "s", 1.0)
        with pytest.raises(error), store.transaction("s") as transaction:
            transaction.put_session(SessionRecord("s", 2, b"after", "ended"))
            transaction.put_session(SessionRecord("new", 1))
            transaction.append_event(EventRow("s", "k", 2.0, {}))
            transaction.append_audit(2.0, {})
            transaction.put_review(review("r"))
            transaction.set_switch("*", "why")
            raise error
        with store.transaction("s") as transaction:
            assert transaction.session("s") == SessionRecord("s", 1, b"before")
            assert transaction.session("new") == SessionRecord("new")
            assert transaction.review("r") is None
            assert transaction.switches() == {}
        assert len(store.events()) == len(own_rows(store)) == 1
        assert note(store, "s", 2.0) == 2

    def test_nothing_is_visible_before_the_end(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            transaction.append_event(EventRow("s", "k", 1.0, {}))
            transaction.append_audit(1.0, {})
            transaction.put_review(review("r"))
            assert not store.events() and not store.audit() and not store.reviews()
        assert len(store.events()) == len(own_rows(store)) == len(store.reviews()) == 1

    def test_a_snapshot_stays_as_it_was(self, store: GuardStore) -> None:
        note(store, "s", 1.0, a=1)
        write(store, "s", b"old")
        with store.snapshot() as view:
            before = [view.audit_head(), view.audit(), view.events(), view.digests("sessions"), view.last_event()]
            note(store, "s", 2.0, a=2)
            write(store, "t", b"new")
            store.prune(before=1.5)
            after = [view.audit_head(), view.audit(), view.events(), view.digests("sessions"), view.last_event()]
            assert after == before
            with pytest.raises(StoreUnavailable), view.transaction("s"):
                pass
        assert store.audit_head().seq > before[0].seq  # type: ignore[attr-defined]
        assert not store.audit()[0].previous

    def test_rows_that_are_pruned_while_they_are_read_are_not_left_out(self, store: GuardStore) -> None:
        for number in range(9):
            note(store, "s", float(number), a=number)
        rows = audit_rows(store, page=2)
        next(rows)
        store.prune(before=7.0)
        with pytest.raises(StoreUnavailable, match="`prune`"):
            list(rows)
        assert verify_chain(audit_rows(store, page=2)) == []

    def test_a_transaction_cannot_be_used_after_its_end(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            pass
        for use in (
            lambda: transaction.session("s"),
            lambda: transaction.put_session(SessionRecord("s", 1)),
            lambda: transaction.append_event(EventRow("s", "k", 1.0, {})),
            lambda: transaction.append_audit(1.0, {}),
            lambda: transaction.append_to_both(EventRow("s", "k", 1.0, {})),
            lambda: transaction.put_review(review("r")),
            lambda: transaction.set_switch("*", "why"),
            transaction.switches,
        ):
            with pytest.raises(RuntimeError, match="ended"):
                use()
        assert not store.events() and not store.audit() and not store.reviews()

    def test_a_thread_has_one_transaction_at_a_time(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            with pytest.raises(RuntimeError, match="already"), store.transaction("t"):
                pass
            transaction.put_session(SessionRecord("s", 1, b"kept"))
        assert read(store, "s") == b"kept"

    # isolation

    def test_threads_do_not_lose_each_others_writes(self, store: GuardStore) -> None:
        with ThreadPoolExecutor(100) as pool:
            list(pool.map(lambda name: count_up(store, "s", 1, name=str(name)), range(100)))
        assert read(store, "s") == b"100"
        assert [row.data["count"] for row in store.events()] == list(range(1, 101))
        assert [row.seq for row in store.events()] == list(range(1, 101))
        assert verify_chain(audit_rows(store, page=7)) == []

    def test_one_chain_over_all_sessions(self, store: GuardStore) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: count_up(store, f"s{name}", 25), range(8)))
        assert [row.seq for row in store.audit()] == list(range(1, 201))
        assert verify_chain(audit_rows(store)) == []

    def test_waiting_has_an_end(self, opener: Callable[..., GuardStore]) -> None:
        store = opener(busy_timeout=0.05)
        inside, done = threading.Event(), threading.Event()

        def hold() -> None:
            with store.transaction("s"):
                inside.set()
                done.wait(300)

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait(300)
        with pytest.raises(StoreUnavailable), store.transaction("s"):
            pass
        done.set()
        holder.join()
        assert write(store, "s") == 1
        store.close()

    # events

    def test_events_are_in_order(self, store: GuardStore) -> None:
        for at in (5.0, 1.0, 3.0):  # a clock that went back changes nothing
            note(store, "s" if at > 2 else "t", at, n=at)
        assert [(row.seq, row.at) for row in store.events()] == [(1, 5.0), (2, 1.0), (3, 3.0)]
        assert [row.seq for row in store.events(session="s")] == [1, 3]
        assert [row.seq for row in store.events(after=1)] == [2, 3]
        assert [row.seq for row in store.events(after=1, session="s", limit=1)] == [3]
        assert store.events(limit=0) == store.events(after=3) == store.events(session="u") == []
        assert store.events()[0] == EventRow("s", "note", 5.0, {"n": 5.0}, 1)

    @pytest.mark.parametrize("data", ODD_DATA)
    def test_data_is_as_it_was_written(self, store: GuardStore, data: dict[str, Any]) -> None:
        note(store, "s", 0.0, **data)
        assert store.events()[0].data == store.audit()[0].data == data
        assert verify_chain(store.audit()) == []

    @pytest.mark.parametrize("data", [*ODD_DATA, {"a": 1.0, "kind": "its own"}, {"session": "its own", "z": [2**60]}])
    def test_both_logs_hold_the_same(self, store: GuardStore, data: dict[str, Any]) -> None:
        with store.transaction("s") as transaction:
            assert transaction.append_to_both(EventRow("s", "note", 1.5, data)) == 1
            assert transaction.append_to_both(EventRow("t", "note", 2.5, data)) == 2
        assert [row.data for row in store.events()] == [data, data]
        assert [row.data for row in store.audit()] == [{"kind": "note", "session": s, **data} for s in "st"]
        assert [row.at for row in store.events()] == [row.at for row in store.audit()] == [1.5, 2.5]
        assert verify_chain(store.audit()) == []

    def test_data_is_copied(self, store: GuardStore) -> None:
        data = {"list": [1]}
        with store.transaction("s") as transaction:
            transaction.append_event(EventRow("s", "k", 1.0, data))
            transaction.append_audit(1.0, data)
            data["list"].append(2)
        store.events()[0].data["list"].append(3)
        assert store.events()[0].data == store.audit()[0].data == {"list": [1]}

    @pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf")])
    def test_what_has_no_time_is_refused(self, store: GuardStore, at: float) -> None:
        with pytest.raises(ValueError, match="finite"), store.transaction("s") as transaction:
            transaction.append_event(EventRow("s", "k", at, {}))
        with pytest.raises(ValueError, match="finite"), store.transaction("s") as transaction:
            transaction.append_audit(at, {})
        with pytest.raises(ValueError, match="finite"), store.transaction("s") as transaction:
            transaction.append_to_both(EventRow("s", "k", at, {}))
        for field in ("created_at", "expires_at", "decided_at"):
            with pytest.raises(ValueError, match="finite"), store.transaction("s") as transaction:
                transaction.put_review(review("r", **{field: at}))
        assert note(store, "s", 1.0) == 1
        assert store.reviews() == []

    def test_what_has_no_json_is_refused(self, store: GuardStore) -> None:
        endless: dict[str, Any] = {}
        endless["self"] = endless
        for data in (endless, {("a", "b"): 1}, {"deep": _nested(MAX_DEPTH + 1)}):
            with pytest.raises(ValueError, match="cannot be stored"), store.transaction("s") as transaction:
                transaction.append_event(EventRow("s", "k", 1.0, data))
            with pytest.raises(ValueError, match="cannot be stored"), store.transaction("s") as transaction:
                transaction.append_audit(1.0, data)
        note(store, "s", 1.0, deep=_nested(MAX_DEPTH - 1))
        assert verify_chain(store.audit()) == []

    def test_big_data_is_read_back_and_chained(self, store: GuardStore) -> None:
        note(store, "s", 1.0, text="é" * 5_000_000)
        assert len(store.events()[0].data["text"]) == 5_000_000
        assert verify_chain(store.audit()) == []

    # audit

    def test_the_row_given_back_is_the_row_stored(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            rows = [transaction.append_audit(at, {"n": at}) for at in (1.0, 0.5, 2.25)]
        assert list(store.audit()) == rows
        assert [row.seq for row in rows] == [1, 2, 3]
        assert store.audit(after=1, limit=1) == [rows[1]]
        assert verify_chain(rows, head=rows[-1].hash) == []

    def test_the_head_is_that_of_the_last_row(self, store: GuardStore, clock: Clock) -> None:
        begun = store.audit_head()
        assert (begun.seq, begun.hash) == (0, begun.chain)
        with store.transaction("s") as transaction:
            transaction.append_audit(1.0, {})
            transaction.session("s")
            last = transaction.append_audit(2.0, {})
            assert store.audit_head() == begun, "nothing is committed yet"
        assert store.audit_head() == AuditHead(begun.chain, 2, last.hash)
        assert store.audit()[0].previous == begun.chain
        with pytest.raises(RuntimeError), store.transaction("s") as transaction:
            transaction.append_audit(3.0, {})
            raise RuntimeError
        assert store.audit_head().seq == 2
        clock.now = 10.0
        store.prune(before=5.0)
        assert verify_chain(store.audit(), head=store.audit_head()) == []

    # reviews

    def test_a_review_is_as_it_was_put(self, store: GuardStore) -> None:
        given = review(
            "r\0\ud800", session="é", agent="a", run="1", arguments={"n": [1.5, None]}, rules=("x", "y"), reason="why",
            expires_at=5.5, decided_by="eve", decided_at=4.5, note="n", edited={"tool": "t"}, asked_by="a", uses_left=3,
        )  # fmt: skip
        with store.transaction("s") as transaction:
            stored = transaction.put_review(given)
        assert stored == replace(given, version=1)
        assert store.reviews() == [stored]
        with store.transaction("s") as transaction:
            assert transaction.review(given.id) == transaction.find_review("é", "h") == stored
            assert transaction.review("other") is None

    def test_a_review_is_only_changed_as_it_was_read(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            first = transaction.put_review(review("r"))
            second = transaction.put_review(replace(first, status="approved"))
        for stale in (review("r"), first, replace(second, version=3)):
            with pytest.raises(StoreConflict), store.transaction("s") as transaction:
                transaction.put_review(stale)
        with pytest.raises(StoreConflict), store.transaction("s") as transaction:
            transaction.put_review(review("never stored", version=1))
        assert store.reviews() == [second]

    @pytest.mark.parametrize(
        ("fields", "is_found"),
        [
            ({}, True),
            ({"status": "approved"}, True),
            ({"status": "approved", "uses_left": 0}, False),
            ({"status": "rejected"}, False),
            ({"status": "expired"}, False),
            ({"status": "used"}, False),
            ({"session": "t"}, False),
            ({"action_hash": "i"}, False),
        ],
    )
    def test_an_open_review_is_found(self, store: GuardStore, fields: dict[str, Any], is_found: bool) -> None:
        with store.transaction("s") as transaction:
            stored = transaction.put_review(review("r", **fields))
            assert transaction.find_review("s", "h") == (stored if is_found else None)
        with store.transaction("s") as transaction:
            assert transaction.find_review("s", "h") == (stored if is_found else None)

    def test_the_newest_open_review_is_found(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            old, new, closed = (transaction.put_review(review(name)) for name in "abc")
            transaction.put_review(replace(closed, status="used"))
            transaction.put_review(replace(old, status="approved"))  # touched later, still the older one
        with store.transaction("s") as transaction:
            assert transaction.find_review("s", "h") == new

    def test_reviews_are_listed_oldest_first(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            stored = [transaction.put_review(review(name, session=name)) for name in "bca"]
        with store.transaction("s") as transaction:
            stored[0] = transaction.put_review(replace(stored[0], status="rejected"))
        assert store.reviews() == stored
        assert store.reviews(status="pending") == stored[1:]
        assert store.reviews(session="c") == [stored[1]]
        assert store.reviews(status="rejected", session="c") == []
        assert store.reviews(limit=2) == stored[:2]

    def test_an_approval_is_used_once(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            transaction.put_review(review("r", status="approved"))

        def use(_: int) -> bool:
            with store.transaction("s") as transaction:
                found = transaction.find_review("s", "h")
                if found is not None:
                    transaction.put_review(replace(found, status="used", uses_left=0))
                return found is not None

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(use, range(64))) == 1

    # switches

    def test_switches_are_set_and_removed(self, store: GuardStore) -> None:
        with store.transaction("") as transaction:
            transaction.set_switch("*", "fire")
            transaction.set_switch("a\0\ud800", "")
            transaction.set_switch("b", None)
        with store.transaction("") as transaction:
            assert transaction.switches() == {"*": "fire", "a\0\ud800": ""}
            transaction.set_switch("*", "flood")
            transaction.set_switch("a\0\ud800", None)
            assert transaction.switches() == {"*": "flood"}
            transaction.set_switch("a\0\ud800", "again")
        with store.transaction("") as transaction:
            assert transaction.switches() == {"*": "flood", "a\0\ud800": "again"}

    # pruning

    def test_pruning_an_empty_store(self, store: GuardStore) -> None:
        assert store.prune(before=1e9) == {"events": 0, "reviews": 0, "sessions": 0, "followed": 0, "audit": 0}
        assert not store.audit()

    def test_events_before_are_forgotten(self, store: GuardStore) -> None:
        for at in (1.0, 9.0, 2.0):
            note(store, "s", at)
        assert store.prune(before=5.0)["events"] == 2
        assert [row.seq for row in store.events()] == [2]
        assert note(store, "s", 10.0) == 4

    def test_numbers_do_not_come_again(self, store: GuardStore, clock: Clock) -> None:
        note(store, "s", 1.0)
        assert write(store, "s") == 1
        clock.now = 2000.0
        assert store.prune(before=1500.0) == {"events": 1, "reviews": 0, "sessions": 1, "followed": 0, "audit": 2}
        assert note(store, "s", 1600.0) == 2
        assert write(store, "s") == 2
        assert write(store, "another") == 2

    def test_closed_reviews_are_forgotten(self, store: GuardStore) -> None:
        kept = [review("pending"), review("approved", status="approved"), review("late", status="used", decided_at=2e3)]
        lost = [review(s, status=s) for s in ("used", "rejected", "expired")] + [review("over", expires_at=1200.0)]
        with store.transaction("s") as transaction:
            for record in (*kept, *lost):
                transaction.put_review(record)
        assert store.prune(before=1500.0)["reviews"] == len(lost)
        assert [record.id for record in store.reviews()] == [record.id for record in kept]

    def test_idle_sessions_are_forgotten(self, store: GuardStore, clock: Clock) -> None:
        for key in ("idle", "asks", "busy"):
            write(store, key)
        with store.transaction("asks") as transaction:
            transaction.put_review(review("r", session="asks"))
        clock.now = 2000.0
        write(store, "busy")
        assert store.prune(before=1500.0)["sessions"] == 1
        assert [read(store, key) for key in ("idle", "asks", "busy")] == [b"", b"state", b"state"]

    def test_a_terminated_session_stays_so(self, store: GuardStore, clock: Clock) -> None:
        version = write(store, "s", terminated="why")
        clock.now = 2000.0
        assert store.prune(before=1500.0)["sessions"] == 1
        with store.transaction("s") as transaction:
            record = transaction.session("s")
        assert (record.state, record.terminated) == (b"", "why")
        assert record.version > version
        assert store.prune(before=1500.0)["sessions"] == 0

    def test_a_clock_that_goes_back_makes_no_session_idle(self, store: GuardStore, clock: Clock) -> None:
        write(store, "s")
        clock.now = 10.0
        write(store, "s")
        assert store.prune(before=500.0)["sessions"] == 0

    def test_the_chain_stays_whole(self, store: GuardStore, clock: Clock) -> None:
        clock.now = 12.0
        for at in range(1, 11):
            note(store, "s", float(at))
        head = store.audit()[-1].hash
        assert store.prune(before=4.0)["audit"] == 3
        rows = store.audit()
        assert [row.seq for row in rows] == [3, *range(4, 11), 11, 12]
        assert [row.data["kind"] for row in rows[-2:]] == ["prune", "prune"]
        assert rows[-3].hash == head
        assert verify_chain(rows) == []
        assert store.prune(before=4.0)["audit"] == 0
        old = _old_links(store, 6.0)
        assert store.prune(before=6.0)["audit"] == old == 2
        note(store, "s", 20.0)
        assert verify_chain(audit_rows(store, page=2)) == []
        clock.now = 30.0
        old = _old_links(store, 25.0)
        assert store.prune(before=25.0)["audit"] == old
        assert store.prune(before=25.0)["audit"] == 0
        assert verify_chain(audit_rows(store)) == []

    def test_only_the_start_of_the_chain_is_forgotten(self, store: GuardStore) -> None:
        for at in (1.0, 9.0, 2.0):
            note(store, "s", at)
        assert store.prune(before=5.0)["audit"] == 1
        assert verify_chain(store.audit()) == []

    def test_pruning_beside_writers(self, store: GuardStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(count_up, store, "s", 40) for _ in range(3)]
            forgotten = [store.prune(before=float(at))["events"] for at in range(0, 120, 10)]
            for writer in writers:
                writer.result()
        assert read(store, "s") == b"120"
        assert sum(forgotten) + len(store.events()) == 120
        assert verify_chain(audit_rows(store)) == []

    # what follows a decision

    def test_a_record_of_the_follow_up_is_as_it_was_put(self, store: GuardStore) -> None:
        change = Change(at=1.5, by="ann\ud800", what="noted", note="é\0")
        records: list[FollowRecord] = [
            Position(id="p", seq=7),
            Following(id="s\ud800", session="s\ud800", state=b"\0\xff", newest=("a", "b"), last=1.0, asked={"r": "t"}),
            Detection(id="d", session="s", rule="r", event="e", seq=3, when=2.5, severity=Severity.CRITICAL),
            Incident(id="i", session="s", rule="r", history=(change,), first_seen=2.0),
            Alert(id="a", session="s", incident="i", rule="r"),
            Notification(id="n", event="x", body={"é": [1, None]}, created_at=1.0, deliveries=(DELIVERY,)),
        ]
        with store.transaction("s") as transaction:
            put = [transaction.put_followed(record) for record in records]
            assert put == [replace(record, version=1) for record in records]
            assert [transaction.followed(type(record), record.id) for record in records] == put
        assert [one for record in records for one in store.followed(type(record))] == put
        with store.transaction("s") as transaction:
            assert [transaction.followed(type(record), record.id) for record in records] == put
            assert transaction.followed(Alert, "i") is None

    def test_follow_up_records_are_found_by_what_they_are_about(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            for number, (session, status, at) in enumerate([("a", "pending", 1.0), ("b", "failed", 2.0)] * 2):
                transaction.put_followed(_told(str(number), session=session, status=status, at=at))
        assert [one.id for one in store.followed(Notification)] == ["0", "1", "2", "3"]
        assert [one.id for one in store.followed(Notification, status="pending")] == ["0", "2"]
        assert [one.id for one in store.followed(Notification, session="b")] == ["1", "3"]
        assert [one.id for one in store.followed(Notification, until=1.0)] == ["0", "2"]
        assert [one.id for one in store.followed(Notification, session="a", status="pending", after="0")] == ["2"]
        assert [one.id for one in store.followed(Notification, after="0", limit=2)] == ["1", "2"]
        assert store.followed(Notification, after="3") == []
        with pytest.raises(LookupError):
            store.followed(Notification, after="no such")
        assert store.followed(Alert) == []

    def test_a_follow_up_record_that_somebody_has_written_is_refused(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            first = transaction.put_followed(_told("n"))
            second = transaction.put_followed(first)
            assert second.version == 2
        for stale in (_told("n"), first, replace(second, version=9)):
            with pytest.raises(StoreConflict), store.transaction("s") as transaction:
                transaction.put_followed(stale)
        assert store.followed(Notification) == [second]

    def test_follow_up_records_are_undone_and_dropped(self, store: GuardStore) -> None:
        with store.transaction("s") as transaction:
            kept = transaction.put_followed(_told("kept"))
            lost = transaction.put_followed(_told("lost"))
        with pytest.raises(_Undo), store.transaction("s") as transaction:
            transaction.put_followed(_told("never"))
            transaction.drop_followed(lost)
            raise _Undo
        assert store.followed(Notification) == [kept, lost]
        with store.transaction("s") as transaction:
            transaction.drop_followed(lost)
            assert transaction.followed(Notification, "lost") is None
        assert store.followed(Notification) == [kept]
        with store.transaction("s") as transaction:
            assert transaction.put_followed(_told("lost")).version == 1

    def test_closed_follow_up_records_are_forgotten(self, store: GuardStore) -> None:
        records: list[FollowRecord] = [
            Position(id="p", at=1.0),
            Following(id="s", at=1.0),
            Incident(id="open", rule="r", at=1.0),
            Incident(id="known", rule="r", status="acknowledged", at=1.0),
            Incident(id="solved", rule="r", status="solved", at=1.0),
            Incident(id="lately", rule="r", status="solved", at=9.0),
            Alert(id="waits", incident="i", rule="r", at=1.0),
            Alert(id="done", incident="i", rule="r", status="acknowledged", at=1.0),
            _told("due", at=1.0),
            _told("told", status="delivered", at=1.0),
        ]
        with store.transaction("s") as transaction:
            for record in records:
                transaction.put_followed(record)
        assert store.prune(before=5.0)["followed"] == 4
        left = [one.id for kind in (Position, Following, Incident, Alert, Notification) for one in store.followed(kind)]
        assert left == ["p", "open", "known", "lately", "waits", "due"]

    # closing

    def test_a_closed_store_is_unavailable(self, store: GuardStore) -> None:
        write(store, "s")
        store.close()
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"), store.transaction("s"):
            pass
        for use in (store.events, store.audit, store.reviews, lambda: store.prune(before=1.0)):
            with pytest.raises(StoreUnavailable, match="closed"):
                use()


class SharedStoreConformance(StoreConformance):
    """For a store that several processes open, and that keeps what they wrote."""

    def test_opened_again_it_has_everything(self, opener: Callable[..., GuardStore]) -> None:
        store = opener()
        version = write(store, "s", b"kept", terminated="why")
        note(store, "s", 1.0, n=1)
        with store.transaction("s") as transaction:
            stored = transaction.put_review(review("r"))
            transaction.set_switch("*", "why")
        events, audit = store.events(), store.audit()
        store.close()
        store = opener()
        with store.transaction("s") as transaction:
            assert transaction.session("s") == SessionRecord("s", version, b"kept", "why")
            assert transaction.switches() == {"*": "why"}
        assert (store.events(), store.audit(), store.reviews()) == (events, audit, [stored])
        assert note(store, "s", 2.0) == 2
        assert verify_chain(store.audit()) == []
        store.close()

    def test_two_openings_see_each_other(self, opener: Callable[..., GuardStore]) -> None:
        one, two = opener(), opener()
        for turn in range(1, 6):
            count_up(one, "s", 1)
            assert read(two, "s") == b"%d" % (2 * turn - 1)
            count_up(two, "s", 1)
            assert len(one.events()) == 2 * turn
        assert verify_chain(one.audit()) == []
        one.close()
        two.close()

    def test_processes_do_not_lose_each_others_writes(self, opener: Callable[..., GuardStore]) -> None:
        """The file is not there yet: they also make it, all at once."""
        in_processes(open_and_count_up, [(opener, "s", 50, str(name)) for name in range(4)])
        store = opener()
        assert read(store, "s") == b"200"
        assert [row.data["count"] for row in store.events()] == list(range(1, 201))
        assert verify_chain(audit_rows(store)) == []
        store.close()


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value
