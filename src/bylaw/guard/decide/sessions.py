"""The sessions of a guard, in memory or in a store. Each change is atomic, and changes of one session do not
overlap."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from bylaw.guard.decide.chain import Policies
from bylaw.guard.decide.policy import stored_rule_hashes
from bylaw.guard.decide.records import REDACT, write_dropped, write_late_decision
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.policies import joined_hash
from bylaw.guard.stores import forks
from bylaw.guard.stores.ports import GuardStore, SessionUnreadable, StoreUnavailable, Transaction
from bylaw.guard.stores.records import EventRow, SessionRecord
from bylaw.text.redaction.redactor import Redaction, Redactor

MOST_LIVE = 100_000
"""sessions without a store; beyond that the one that was unused for longest is forgotten, and no call of it may run"""
MOST_FORGOTTEN = 1_000_000
"""forgotten sessions that are recognised; beyond that no new session may begin"""
MOST_CACHED = 10_000
"""sessions whose state is cached in decoded form"""
MOST_LATE = 10_000
"""decisions that wait until the store can be written again; beyond that the oldest are dropped, and counted"""
MOST_RULES = 64
"""reloads without a store after which an approval is still valid"""
LOCKS = 1024
_AS_IS = Redactor(Redaction(classes=()))
"""for states that stay in memory"""
_FORGOTTEN = f"the guard: it has no store, and remembers the latest {MOST_LIVE:,} sessions only"
_TOO_MANY = "too many sessions for a guard without a store: end them with `end_session`, or use a store"


_log = logging.getLogger("bylaw")
T = TypeVar("T")
_Change: TypeAlias = Callable[[Transaction | None, SessionRecord, SessionState], T]


class _UnusableLock:
    """In place of the lock of sessions that another thread was changing when this process was forked."""

    def __enter__(self) -> None:
        raise StoreUnavailable("the session was being changed when this process was forked")

    def __exit__(self, *_: object) -> None: ...

    def acquire(self, *_: object, **__: object) -> bool:
        return False


class Sessions:
    fork_rank = 1

    def __init__(self, policies: Policies, *, store: GuardStore, durable: bool, redact: Redactor = REDACT) -> None:
        self.redact = redact
        """redacts written values"""
        self._policies, self._store = policies, store
        self.durable = durable
        self.shows_counters = durable
        """whether decisions name counter values; they are for the record only"""
        self._live: dict[str, tuple[SessionRecord, SessionState]] = {}
        self.checked: Container[str] = self._live
        """sessions whose names need not be checked again"""
        self._earlier: dict[str, tuple[SessionRecord, SessionState]] = {}
        """without a store: sessions that were last used under other rules"""
        self._rules_before: dict[str, Collection[str]] = {}
        """without a store: the hash of earlier rules → the hashes of each of them"""
        self._locks = [threading.RLock() for _ in range(0 if durable else LOCKS)]
        self._held_by_fork: list[int] = []
        self._beginning, self._applying, self._dropping = (threading.Lock() for _ in range(3))
        """held while sessions without a store begin or are forgotten, while late changes are written, and while the
        oldest of them are dropped"""
        self._asked: set[str] = set()
        """without a store: sessions in which a review was opened"""
        self._terminated: dict[str, str] = {}
        """forgotten sessions without a store that stay terminated"""
        self._forgotten: set[int] = set()
        """hashes of forgotten sessions without a store whose counters are lost; they end"""
        self._late: deque[EventRow] = deque()
        self._late_changes: deque[tuple[str, _Change[Any]]] = deque()
        """sessions, and their events while the store could not be written"""
        self._dropped: Counter[str] = Counter()
        """how many of these were dropped, since too many waited; the audit does not say so yet"""
        self.announcement: Callable[[Transaction], None] | None = None
        """rows that the next transaction writes first"""
        forks.add(self)

    @contextmanager
    def change(self, key: str) -> Iterator[tuple[Transaction | None, SessionRecord, SessionState]]:
        """The session, for one change. With a durable store everything is written, or nothing."""
        if not self.durable:
            with self.lock_of(key):
                yield None, *self.live(key)
            return
        with self.transaction(key) as transaction:
            record, state = self.read(transaction, key)
            yield transaction, record, state
            self.write(transaction, record, state)
        self.cache(record, state)

    def change_now_or_later(self, key: str, change: _Change[T], *, later: T) -> T:
        """Change the session. If the store cannot be written, that waits for the next transaction, and `later` is
        returned: what has happened must not get lost."""
        try:
            with self.change(key) as session:
                return change(*session)
        except StoreUnavailable as problem:
            if not self.durable or isinstance(problem, SessionUnreadable):
                raise
            _log.warning("what happened in the session `%s` waits until the store can be written: %s", key, problem)
            self._late_changes.append((key, change))
            self._drop_oldest()
            return later

    def _apply_late(self) -> None:
        """In the order in which they happened, each in a transaction of its own session."""
        late = self._late_changes
        with self._applying:  # nothing else is decided before they are written
            while late:
                first = key, change = late[0]
                try:
                    with self._store.transaction(key) as transaction:
                        record, state = self.read(transaction, key)
                        change(transaction, record, state)
                        self.write(transaction, record, state)
                    self.cache(record, state)
                except Exception as problem:
                    if isinstance(problem, StoreUnavailable) and not isinstance(problem, SessionUnreadable):
                        raise
                    # one that can never be written must not make every later transaction fail
                    _log.error("what happened in the session `%s` could not be written: %s", key, problem)
                if late[0] is first:  # else it was dropped, since too many wait
                    late.popleft()

    def read(self, transaction: Transaction, key: str) -> tuple[SessionRecord, SessionState]:
        record = transaction.session(key)
        cached = self._live.pop(key, None)
        policies = self._policies
        if (
            cached is not None
            and cached[0].version == record.version
            and record.state  # else pruned meanwhile
            and cached[1].loaded_for is policies  # else the rules were replaced
        ):
            return record, cached[1]
        state = load(key, record.state, policies.all)
        state.loaded_for = policies
        return record, state

    def write(self, transaction: Transaction, record: SessionRecord, state: SessionState) -> None:
        state.redact = self.redact
        record.state = dump(state)
        record.version += 1
        transaction.put_session(record)

    def cache(self, record: SessionRecord, state: SessionState) -> None:
        """To be called after the commit: only committed states may be used again."""
        self._live[record.session] = (record, state)
        while len(self._live) > MOST_CACHED:
            with suppress(RuntimeError, StopIteration):  # other threads change it too
                self._live.pop(next(iter(self._live)), None)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else of this process is inside a session meanwhile. A store has one transaction at a time; without
        one, all locks are held."""
        with ExitStack() as held:
            if self.durable:
                held.enter_context(self._store.transaction(""))
            else:
                for lock in self._locks:
                    held.enter_context(lock)
            yield

    def use_policies(self, policies: Policies) -> None:
        """Continue the sessions with other rules. States are carried over when their session is next used."""
        before, self._policies = self._policies, policies
        if not self.durable:
            self._earlier |= self._live
            hash = joined_hash([policy.hash for policy in before.all])
            self._rules_before[hash] = {one for policy in before.all for one in policy.rule_hashes.values()}
            if len(self._rules_before) > MOST_RULES:
                del self._rules_before[next(iter(self._rules_before))]
        self.checked = self._live = {}

    def rules_before(self, transaction: Transaction, policy: str) -> Collection[str] | None:
        """The hashes of the rules that were in force, by the hash of all of them; None if they are not known."""
        if not self.durable:
            return self._rules_before.get(policy)
        content = transaction.rules(policy)
        return None if content is None else stored_rule_hashes(content, policy)

    def _carried_over(self, key: str) -> tuple[SessionRecord, SessionState] | None:
        """Without a store: the session as the rules before have left it."""
        found = self._earlier.get(key)
        if found is None:
            return None
        record, state = found
        state.redact = _AS_IS
        carried = load(key, dump(state), self._policies.all)
        carried.touched = state.touched
        del self._earlier[key]
        return record, carried

    def lock_of(self, key: str) -> threading.RLock:
        """Sessions share a fixed number of locks, so that none has to be created or dropped for each."""
        return self._locks[hash(key) % LOCKS]

    def live(self, key: str) -> tuple[SessionRecord, SessionState]:
        """Without a store: the session. The caller holds its lock."""
        found = self._live.get(key) or self._begin(key)
        found[1].touched = True
        return found

    def forget(self, key: str) -> None:
        """Without a store: the next attempt starts a new session, unless this one was terminated."""
        found = self._live.get(key)
        if not self.durable and found is not None and (found[0].terminated in (None, _FORGOTTEN)):
            with self._beginning:
                del self._live[key]
                self._forgotten.discard(hash(key))

    def transaction(self, key: str) -> AbstractContextManager[Transaction]:
        """A transaction that also writes late decisions, after the events since then."""
        if self._late_changes:
            self._apply_late()
        if self._late or self.announcement is not None or self._dropped:
            return self._transaction_with_late(key)
        return self._store.transaction(key)

    @contextmanager
    def _transaction_with_late(self, key: str) -> Iterator[Transaction]:
        announce, self.announcement = self.announcement, None
        with self._dropping:
            dropped, self._dropped = self._dropped, Counter()
        late: list[EventRow] = []
        with suppress(IndexError):  # another thread may take some of them
            while True:
                late.append(self._late.popleft())
        try:
            with self._store.transaction(key) as transaction:
                if announce is not None:
                    announce(transaction)
                yield transaction
                if dropped:
                    write_dropped(transaction, dropped)
                for decision in late:
                    write_late_decision(transaction, decision)
        except BaseException:
            with self._dropping:
                self._dropped += dropped
            self._late.extendleft(reversed(late))
            self._drop_oldest()
            self.announcement = announce or self.announcement
            raise

    @contextmanager
    def review_transaction(self, transaction: Transaction | None, key: str) -> Iterator[Transaction]:
        """The transaction that is passed, or a new one: reviews are stored even if sessions are not."""
        if transaction is not None:
            yield transaction
            return
        with self._store.transaction(key) as own:
            yield own

    def note_review(self, key: str) -> None:
        """A review was opened in this session."""
        if not self.durable:
            self._asked.add(key)

    def may_have_reviews(self, key: str) -> bool:
        """Whether a review was opened in the session; a store finds that out at no cost. Asked when it ends."""
        if self.durable:
            return True
        asked = key in self._asked
        self._asked.discard(key)
        return asked

    def write_waiting(self) -> None:
        """Write what waits for the store. What cannot be written is lost, and an error says so."""
        try:
            if self._late or self._late_changes or self._dropped:
                with self.transaction(""):
                    pass
        except Exception as problem:
            lost = f"{len(self._late)} decisions and {len(self._late_changes)} results or other changes"
            _log.error("the guard ends while the store cannot be written: %s are lost (%s)", lost, problem)
            self._late.clear()
            self._late_changes.clear()

    def write_later(self, decision: EventRow) -> None:
        """Write it with the next transaction."""
        self._late.append(decision)
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Bounds the memory of a process whose store cannot be written for long."""
        with self._dropping:
            for name, late in (("decisions", self._late), ("changes", self._late_changes)):
                while len(late) > MOST_LATE:
                    late.popleft()
                    if not self._dropped:
                        _log.error("the store could not be written for too long: what waits for it is being dropped")
                    self._dropped[name] += 1

    def before_fork(self) -> None:
        """No session is being changed during a fork, and what waits to be written is written if possible."""
        if self._late or self._late_changes:  # otherwise both processes would write it, or none if the parent ends
            with suppress(Exception), self.transaction(""):
                pass
        if not self.durable:
            until = time.monotonic() + forks.PATIENCE
            self._held_by_fork = [
                i for i, lock in enumerate(self._locks) if lock.acquire(timeout=max(0.0, until - time.monotonic()))
            ]

    def after_fork(self, *, in_child: bool) -> None:
        held, self._held_by_fork = self._held_by_fork, []
        if not in_child:
            for i in held:
                self._locks[i].release()
            return
        self._late.clear()
        self._late_changes.clear()
        self._dropped = Counter()
        self._beginning, self._applying, self._dropping = (threading.Lock() for _ in range(3))
        if not self.durable:
            self._locks = [_UnusableLock()] * LOCKS  # type: ignore[list-item]
            for i in held:
                self._locks[i] = threading.RLock()

    def _begin(self, key: str) -> tuple[SessionRecord, SessionState]:
        with self._beginning:
            found = self._live.get(key)
            if found is not None:  # it was only out of its place while another thread looked for one to forget
                return found
            carried = self._carried_over(key) if self._earlier else None
            # bounds the memory of a process that never ends its sessions
            if carried is None and len(self._live) + len(self._earlier) >= MOST_LIVE:
                self._forget_one()
            terminated = self._terminated.get(key) or (_FORGOTTEN if hash(key) in self._forgotten else None)
            pair = self._live[key] = carried or (SessionRecord(key, terminated=terminated), SessionState(key))
            return pair

    def _forget_one(self) -> None:
        """The oldest session that was not used since the last search, and is not in use: a change of it would get
        lost. Those that were last used under other rules come first."""
        for sessions in (self._earlier, self._live):
            for _ in range(2 * len(sessions)):
                oldest = next(iter(sessions))
                pair = sessions.pop(oldest)
                lock = self.lock_of(oldest)
                if not pair[1].touched and lock.acquire(blocking=False):
                    try:
                        self._keep_what_matters(oldest, *pair)
                    except StoreUnavailable:
                        sessions[oldest] = pair
                        raise
                    finally:
                        lock.release()
                    return
                pair[1].touched = False
                sessions[oldest] = pair  # at the end of the queue
        raise StoreUnavailable(_TOO_MANY)

    def _keep_what_matters(self, key: str, record: SessionRecord, state: SessionState) -> None:
        """A session whose state is dropped must not allow its calls again, so it ends if the state matters."""
        if record.terminated not in (None, _FORGOTTEN):
            self._terminated[key] = record.terminated
        elif record.terminated is None and not state.is_blank:
            if len(self._forgotten) + len(self._terminated) >= MOST_FORGOTTEN:
                raise StoreUnavailable(_TOO_MANY)
            self._forgotten.add(hash(key))
