"""Both stores against plain dicts and lists, over random transactions, some undone, prunings and reopenings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from bylaw.guard.stores import MemoryStore, SqliteStore, verify_chain
from bylaw.guard.stores.ports import GuardStore, Transaction
from bylaw.guard.stores.records import EventRow, ReviewRecord, SessionRecord
from tests.stores.support import Clock, review

KEYS = st.sampled_from(["", "a", "b\0", "é", "\ud800"])
NAMES = st.sampled_from(["x", "y", "z"])
TIMES = st.integers(0, 12).map(float)
DATA = st.dictionaries(NAMES, st.none() | st.integers(-3, 3) | st.text(max_size=3) | st.floats(-2, 2), max_size=2)
STATUSES = st.sampled_from(["pending", "approved", "rejected", "expired", "used"])

WRITES = st.one_of(
    st.tuples(st.just("session"), KEYS, st.binary(max_size=4), st.none() | st.just("ended")),
    st.tuples(st.just("event"), KEYS, TIMES, DATA),
    st.tuples(st.just("audit"), TIMES, DATA),
    st.tuples(st.just("review"), NAMES, KEYS, STATUSES, st.integers(0, 2), TIMES, st.none() | TIMES),
    st.tuples(st.just("switch"), NAMES, st.none() | st.text(max_size=2)),
)


class _Undo(Exception):
    pass


class Model:
    """What a store holds, in the plainest form, copied whole before each transaction."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionRecord] = {}
        self.touched: dict[str, float] = {}
        self.floor = 0
        self.events: list[EventRow] = []
        self.last_event = 0
        self.audit: list[tuple[int, float, dict[str, Any]]] = []
        self.reviews: dict[str, ReviewRecord] = {}
        self.switches: dict[str, str] = {}

    def copied(self) -> Model:
        other = Model()
        other.__dict__ = {
            name: value.copy() if isinstance(value, dict | list) else value for name, value in vars(self).items()
        }
        return other

    def session(self, key: str) -> SessionRecord:
        return self.sessions.get(key) or SessionRecord(key, self.floor)

    def found(self, session: str, action_hash: str) -> ReviewRecord | None:
        is_open = [r for r in self.reviews.values() if _is_open(r)]
        return next((r for r in reversed(is_open) if (r.session, r.action_hash) == (session, action_hash)), None)

    def prune(self, before: float, now: float) -> dict[str, int]:
        return {
            "events": self._prune_events(before),
            "reviews": self._prune_reviews(before),
            "sessions": self._prune_sessions(before),
            "followed": 0,
            "audit": self._prune_audit(before, now),
        }

    def _prune_events(self, before: float) -> int:
        old = [row for row in self.events if row.at < before]
        self.events = [row for row in self.events if row.at >= before]
        return len(old)

    def _prune_reviews(self, before: float) -> int:
        old = [r for r in self.reviews.values() if max(r.created_at, r.decided_at or 0.0) < before]
        old = [r for r in old if not _is_open(r) or (r.expires_at is not None and r.expires_at < before)]
        for record in old:
            del self.reviews[record.id]
        return len(old)

    def _prune_sessions(self, before: float) -> int:
        asking = {r.session for r in self.reviews.values() if _is_open(r)}
        old = [s for k, s in self.sessions.items() if self.touched[k] < before and k not in asking]
        old = [s for s in old if s.terminated is None or s.state]
        for record in old:
            if record.terminated is not None:
                self.sessions[record.session] = replace(record, state=b"", version=record.version + 1)
            else:
                del self.sessions[record.session], self.touched[record.session]
                self.floor = max(self.floor, record.version)
        return len(old)

    def _prune_audit(self, before: float, now: float) -> int:
        kept = next((i for i, row in enumerate(self.audit) if row[1] >= before), len(self.audit))
        old = [row for row in self.audit[:kept] if row[2] != {"kind": "anchor"}]
        if old:
            last, voucher = old[-1], (self.audit[-1][0] + 1, now, {"kind": "prune"})
            self.audit = [(last[0], last[1], {"kind": "anchor"}), *self.audit[kept:], voucher]
        return len(old)


def _is_open(record: ReviewRecord) -> bool:
    return record.status == "pending" or (record.status == "approved" and record.uses_left > 0)


class _Machine(RuleBasedStateMachine):
    store: GuardStore

    @initialize()
    def start(self) -> None:
        self.clock, self.model = Clock(now=5.0), Model()
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    @rule(writes=st.lists(WRITES, max_size=5), undone=st.booleans())
    def transact(self, writes: list[tuple[Any, ...]], undone: bool) -> None:
        model = self.model.copied()
        try:
            with self.store.transaction("s") as transaction:
                for kind, *given in writes:
                    getattr(self, f"write_{kind}")(transaction, model, *given)
                self.compare(transaction, model)
                if undone:
                    raise _Undo
            self.model = model
        except _Undo:
            pass

    @rule(seconds=st.integers(-1, 3))
    def time_passes(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule(before=TIMES)
    def prune(self, before: float) -> None:
        pruned, wanted = self.store.prune(before=before), self.model.prune(before, self.clock.now)
        more = pruned.pop("audit") - wanted.pop("audit")
        assert pruned == wanted
        assert more == 0 or (more > 0 and self.clock.now < before)  # rows that this pruning has written itself

    def write_session(
        self, transaction: Transaction, model: Model, key: str, state: bytes, terminated: str | None
    ) -> None:
        record = transaction.session(key)
        assert record == model.session(key)
        record.state, record.terminated, record.version = state, terminated, record.version + 1
        transaction.put_session(record)
        model.sessions[key] = replace(record)
        model.touched[key] = max(model.touched.get(key, self.clock.now), self.clock.now)

    def write_event(self, transaction: Transaction, model: Model, key: str, at: float, data: dict[str, Any]) -> None:
        model.last_event += 1
        row = EventRow(key, "k", at, data)
        assert transaction.append_event(row) == model.last_event
        model.events.append(replace(row, seq=model.last_event))

    def write_audit(self, transaction: Transaction, model: Model, at: float, data: dict[str, Any]) -> None:
        row = transaction.append_audit(at, data)
        last = model.audit[-1][0] if model.audit else 0
        assert (row.seq, row.previous == self.store.audit_head().chain) == (last + 1, last == 0)
        model.audit.append((last + 1, at, data))

    def write_review(
        self, transaction: Transaction, model: Model, name: str, session: str, status: Any, *rest: Any
    ) -> None:
        uses, created, expires = rest
        known = model.reviews.get(name)
        assert transaction.review(name) == known
        fields = {"session": session, "status": status, "uses_left": uses, "created_at": created, "expires_at": expires}
        stored = transaction.put_review(review(name, version=known.version if known else 0, **fields))
        model.reviews[name] = stored

    def write_switch(self, transaction: Transaction, model: Model, agent: str, why: str | None) -> None:
        transaction.set_switch(agent, why)
        model.switches.pop(agent, None)
        if why is not None:
            model.switches[agent] = why

    def compare(self, transaction: Transaction, model: Model) -> None:
        for key in ("", "a", "b\0", "é", "\ud800"):
            assert transaction.session(key) == model.session(key)
            assert transaction.find_review(key, "h") == model.found(key, "h")
        assert transaction.switches() == model.switches

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "store"):
            return
        with self.store.transaction("s") as transaction:
            self.compare(transaction, self.model)
        assert list(self.store.events()) == self.model.events
        assert list(self.store.events(session="a")) == [row for row in self.model.events if row.session == "a"]
        assert list(self.store.reviews()) == list(self.model.reviews.values())
        self.audit_agrees()

    def audit_agrees(self) -> None:
        assert verify_chain(self.store.audit()) == []
        rows = [(row.seq, row.at, row.data) for row in self.store.audit()]
        assert [row[1:] for row in rows if _is_own(row[2])] == [row[1:] for row in self.model.audit if _is_own(row[2])]
        self.model.audit = rows  # with those that the store adds of its own: they are numbered and pruned too


def _is_own(data: Any) -> bool:
    """Not a row that says what was pruned, or that vouches for other tables."""
    return data.get("kind") not in ("anchor", "prune", "stored")


class MemoryMachine(_Machine):
    def open(self) -> None:
        self.store = MemoryStore(clock=self.clock)


class SqliteMachine(_Machine):
    def open(self) -> None:
        if not hasattr(self, "folder"):
            self.folder = tempfile.TemporaryDirectory()
        self.store = SqliteStore(Path(self.folder.name) / "store.db", clock=self.clock)

    @precondition(lambda self: hasattr(self, "store"))
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


_FEWER = settings.default.max_examples // 4  # each is many transactions on a file
TestMemoryModel = MemoryMachine.TestCase
TestMemoryModel.settings = settings(max_examples=_FEWER, stateful_step_count=20)
TestSqliteModel = SqliteMachine.TestCase
TestSqliteModel.settings = settings(max_examples=_FEWER, stateful_step_count=20)
