"""The sessions of a guard, in this process or in a store: one change at a time, all of it or nothing."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from bylaw.guard.decide import records
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.tree import Policies
from bylaw.guard.decide.written import dump, load
from bylaw.guard.stores.ports import GuardStore, SessionRecord, Transaction

MOST_LIVE = 100_000
"""sessions that are kept without a store; the one that began first is forgotten first"""
MOST_CACHED = 10_000
"""sessions whose state is kept decoded"""
MOST_UNWRITTEN = 10_000
"""decisions that are kept until the store can be written again"""
LOCKS = 1024


class Sessions:
    def __init__(self, policies: Policies, *, store: GuardStore, durable: bool) -> None:
        self._policies, self._store = policies, store
        self.durable = durable
        self.tells_counters = durable
        """for the record, so only where there is one"""
        self._live: dict[str, tuple[SessionRecord, SessionState]] = {}
        self._locks = tuple(threading.RLock() for _ in range(LOCKS))
        self._ended: dict[str, str] = {}
        """sessions without a store that were forgotten and stay terminated"""
        self._unwritten: deque[records.Unwritten] = deque(maxlen=MOST_UNWRITTEN)

    @contextmanager
    def change(self, key: str) -> Iterator[tuple[Transaction | None, SessionRecord, SessionState]]:
        """The session for one change. With a durable store everything is written, or nothing."""
        if not self.durable:
            with self.lock_of(key):
                yield None, *self.live(key)
            return
        with self.transaction(key) as transaction:
            record, state = self.read(transaction, key)
            yield transaction, record, state
            self.write(transaction, record, state)
        self.remember(record, state)

    def read(self, transaction: Transaction, key: str) -> tuple[SessionRecord, SessionState]:
        record = transaction.session(key)
        cached = self._live.pop(key, None)
        if cached is not None and cached[0].version == record.version and record.state:  # else it was pruned meanwhile
            return record, cached[1]
        return record, load(key, record.state, self._policies.all)

    def write(self, transaction: Transaction, record: SessionRecord, state: SessionState) -> None:
        record.state = dump(state)
        record.version += 1
        transaction.put_session(record)

    def remember(self, record: SessionRecord, state: SessionState) -> None:
        """After the end of the transaction: only what was committed may be taken up again."""
        self._live[record.session] = (record, state)
        while len(self._live) > MOST_CACHED:
            self._live.pop(next(iter(self._live)), None)

    def lock_of(self, key: str) -> threading.RLock:
        """Sessions share locks, so that none has to be kept for each, or dropped while somebody holds it."""
        return self._locks[hash(key) % LOCKS]

    def live(self, key: str) -> tuple[SessionRecord, SessionState]:
        """Without a store: the session, for whoever holds its lock."""
        return self._live.get(key) or self._begin(key)

    def forget(self, key: str) -> None:
        """Without a store: a later attempt begins a new session. One that was ended by force stays so."""
        found = self._live.get(key)
        if not self.durable and found is not None and found[0].terminated is None:
            del self._live[key]

    def transaction(self, key: str) -> AbstractContextManager[Transaction]:
        """With what could not be written before."""
        return self._with_late(key) if self._unwritten else self._store.transaction(key)

    @contextmanager
    def _with_late(self, key: str) -> Iterator[Transaction]:
        late: list[records.Unwritten] = []
        with suppress(IndexError):  # another thread may take some of them
            while True:
                late.append(self._unwritten.popleft())
        try:
            with self._store.transaction(key) as transaction:
                yield transaction
                for one in late:
                    records.write_late(transaction, one)
        except BaseException:
            self._unwritten.extendleft(reversed(late))
            raise

    @contextmanager
    def reviewing(self, transaction: Transaction | None, key: str) -> Iterator[Transaction]:
        """Reviews are kept by the store also where nothing else is."""
        if transaction is not None:
            yield transaction
            return
        with self._store.transaction(key) as own:
            yield own

    def write_later(self, decided: records.Unwritten) -> None:
        """With the next transaction."""
        self._unwritten.append(decided)

    def _begin(self, key: str) -> tuple[SessionRecord, SessionState]:
        while len(self._live) >= MOST_LIVE:  # a process that never ends its sessions must not fill its memory
            oldest = next(iter(self._live))
            record, _ = self._live.pop(oldest)
            if record.terminated is not None:
                self._ended[oldest] = record.terminated
        pair = self._live[key] = (SessionRecord(key, terminated=self._ended.get(key)), SessionState(key))
        return pair
