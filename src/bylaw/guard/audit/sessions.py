"""Sessions as they are made again from the rows. Those that were not met for a while go to a file of their own, which
nobody else sees and which is gone afterwards, so that memory does not grow with the audit."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from bylaw.guard.audit.book import Book
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.decide.tree import Policies
from bylaw.guard.decide.written import dump, load
from bylaw.guard.stores.ports import GuardStore, SessionRecord, Transaction

MOST_HELD = 10_000


class Held(Struct):
    """One session under way."""

    record: SessionRecord
    state: SessionState
    policy: str = ""
    """of the guard that moved it last"""
    lost: str | None = None
    """why nothing more can be said of it"""
    unfollowed: set[str] = field(default_factory=set)
    """rules whose memory is not known, as `policy hash/id`"""


class _Shelved(Struct):
    state: bytes
    terminated: str | None
    lost: str | None
    unfollowed: set[str]


class Shelf:
    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._file = sqlite3.connect("", isolation_level=None)  # a temporary file
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE shelf (session PRIMARY KEY, data) WITHOUT ROWID")

    def known(self, key: str) -> bool:
        return key in self._held or self._fetch(key) is not None

    def begin(self, key: str) -> Held:
        """The session begins, or begins again; one that was terminated stays so."""
        before = self.get(key)
        held = self._held[key] = Held(SessionRecord(key, terminated=before.record.terminated), SessionState(key))
        return held

    def get(self, key: str) -> Held:
        held = self._held.pop(key, None) or self._fetch(key)
        if held is None:
            held = Held(SessionRecord(key), SessionState(key))
        self._held[key] = held  # the one met last is last
        if len(self._held) > MOST_HELD:
            self._shelve(next(iter(self._held)))
        return held

    def for_guard(self, key: str, policy: str, policies: Sequence[CompiledPolicy]) -> Held:
        """As a guard finds it: what others of its policies remember is kept, and not read."""
        held = self.get(key)
        if held.policy != policy:
            if held.policy or held.state.others:
                held.state = load(key, dump(held.state), policies)
            held.policy = policy
        return held

    def _shelve(self, key: str) -> None:
        held = self._held.pop(key)
        shelved = _Shelved(dump(held.state), held.record.terminated, held.lost, held.unfollowed)
        values = (key.encode("utf-8", "surrogatepass"), msgspec.msgpack.encode(shelved))
        self._file.execute("REPLACE INTO shelf VALUES (?, ?)", values)

    def _fetch(self, key: str) -> Held | None:
        name = key.encode("utf-8", "surrogatepass")
        row = self._file.execute("SELECT data FROM shelf WHERE session = ?", (name,)).fetchone()
        if row is None:
            return None
        saved = msgspec.msgpack.decode(row[0], type=_Shelved)
        record = SessionRecord(key, terminated=saved.terminated)
        return Held(record, load(key, saved.state, ()), lost=saved.lost, unfollowed=saved.unfollowed)


class Replayed(Sessions):
    """Where a guard finds its sessions when it goes through what was recorded."""

    def __init__(self, policies: Policies, policy: str, shelf: Shelf, book: Book, store: GuardStore) -> None:
        super().__init__(policies, store=store, durable=False)
        self.tells_counters = True
        self._policy, self._shelf, self._book = policy, shelf, book
        self._lock = threading.RLock()

    def lock_of(self, key: str) -> Any:
        return self._lock

    def live(self, key: str) -> tuple[SessionRecord, SessionState]:
        held = self._shelf.for_guard(key, self._policy, self._policies.all)
        return held.record, held.state

    def forget(self, key: str) -> None:
        """A live guard with a store keeps what is not of a rule, too."""

    @contextmanager
    def reviewing(self, transaction: Transaction | None, key: str) -> Iterator[Transaction]:
        yield cast(Transaction, self._book)
