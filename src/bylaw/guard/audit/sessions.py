"""Sessions and reviews while an audit is recomputed. Sessions that are not used for a while move to a temporary file,
so that memory does not grow with the audit."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from bylaw.guard.decide.chain import Policies
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.records import REDACT
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.decide.sessions import Sessions
from bylaw.guard.model import Attempt
from bylaw.guard.reviews import action_hash
from bylaw.guard.stores import MemoryStore
from bylaw.guard.stores.ports import Transaction
from bylaw.guard.stores.records import EventRow, ReviewRecord, SessionRecord
from bylaw.model.canonical import prepared

MARKER = "[redacted"
"""how values begin that were redacted"""
MOST_SESSIONS = 10_000
"""sessions in memory"""
MOST_REVIEWS = 100_000
"""reviews that are open at once; the oldest is dropped"""


class AuditSession(Struct):
    record: SessionRecord
    state: SessionState
    policy: str = ""
    """hash of the guard that changed it last"""
    lost: str | None = None
    """why nothing more can be recomputed in it"""
    unfollowed: set[str] = field(default_factory=set)
    """rules whose state is unknown, as `policy hash/id`"""
    stored: bytes | None = None
    """its state as it was written to the file, if no guard has loaded it since"""


class _StoredState(Struct):
    state: bytes
    terminated: str | None
    lost: str | None
    unfollowed: set[str]


class AuditSessions:
    def __init__(self, rules_before: Callable[[str], Collection[str] | None]) -> None:
        self.rules_before = rules_before
        """the hash of rules → the hashes of each of them, if a guard would have found them in its store"""
        self._sessions: dict[str, AuditSession] = {}
        """in the order of last use"""
        self._file = sqlite3.connect("", isolation_level=None)  # a temporary file
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE sessions (session PRIMARY KEY, data) WITHOUT ROWID")

    def is_known(self, key: str) -> bool:
        return key in self._sessions or self._fetch(key) is not None

    def begin(self, key: str) -> AuditSession:
        """The session begins, or begins again; a terminated one stays terminated."""
        before = self.get(key)
        new = AuditSession(SessionRecord(key, terminated=before.record.terminated), SessionState(key))
        self._sessions[key] = new
        return new

    def get(self, key: str) -> AuditSession:
        session = self._sessions.pop(key, None) or self._fetch(key)
        if session is None:
            session = AuditSession(SessionRecord(key), SessionState(key))
        self._sessions[key] = session
        if len(self._sessions) > MOST_SESSIONS:
            self._store(next(iter(self._sessions)))
        return session

    def for_guard(self, key: str, policy: str, policies: Sequence[CompiledPolicy]) -> AuditSession:
        """The session as this guard would load it; states of other policies are stored, and not read."""
        session = self.get(key)
        if session.policy != policy:
            # not from `state`, which leaves out policies that have seen calls and remember nothing
            data, session.stored = session.stored, None
            if data is None and session.policy:
                data = dump(session.state)
            if data is not None:
                session.state = load(key, data, policies)
            session.policy = policy
        return session

    def _store(self, key: str) -> None:
        session = self._sessions.pop(key)
        state = dump(session.state) if session.stored is None else session.stored
        stored = _StoredState(state, session.record.terminated, session.lost, session.unfollowed)
        values = (key.encode("utf-8", "surrogatepass"), msgspec.msgpack.encode(stored))
        self._file.execute("REPLACE INTO sessions VALUES (?, ?)", values)

    def _fetch(self, key: str) -> AuditSession | None:
        name = key.encode("utf-8", "surrogatepass")
        row = self._file.execute("SELECT data FROM sessions WHERE session = ?", (name,)).fetchone()
        if row is None:
            return None
        stored = msgspec.msgpack.decode(row[0], type=prepared(_StoredState))
        record = SessionRecord(key, terminated=stored.terminated)
        return AuditSession(
            record, load(key, stored.state, ()), lost=stored.lost, unfollowed=stored.unfollowed, stored=stored.state
        )


class ReplayedSessions(Sessions):
    """The sessions of a guard that recomputes recorded decisions."""

    def __init__(self, policies: Policies, policy: str, sessions: AuditSessions, reviews: RecordedReviews) -> None:
        super().__init__(policies, store=MemoryStore(), durable=False)
        self.shows_counters = True
        self._policy, self._sessions, self._reviews = policy, sessions, reviews
        self._lock = threading.RLock()

    def lock_of(self, key: str) -> Any:
        return self._lock

    def live(self, key: str) -> tuple[SessionRecord, SessionState]:
        session = self._sessions.for_guard(key, self._policy, self._policies.all)
        return session.record, session.state

    def rules_before(self, transaction: Transaction, policy: str) -> Collection[str] | None:
        return self._sessions.rules_before(policy)

    def note_review(self, key: str) -> None:
        """Does nothing: the rows say when a review expires."""

    def forget(self, key: str) -> None:
        """Does nothing: a guard with a store remembers runs and denials after the end, too."""

    @contextmanager
    def review_transaction(self, transaction: Transaction | None, key: str) -> Iterator[Transaction]:
        yield cast(Transaction, self._reviews)


class RecordedReviews:
    """The reviews in the rows, with the methods of a transaction that `guard.reviews` needs."""

    def __init__(self) -> None:
        self._reviews: dict[str, ReviewRecord] = {}
        self._redacted: set[str] = set()
        """those of calls with redacted values"""
        self._opened: ReviewRecord | None = None
        """the last one that a recomputed decision has opened"""

    def read(self, data: Mapping[str, Any]) -> None:
        """A row about a review. That a review was spent is recomputed, not read."""
        id, what = data["review"], data["what"]
        known = self._reviews.get(id)
        if what == "opened":
            self._reviews[id] = ReviewRecord(
                id=id, session=data["session"], tool=data["tool"], action_hash="", policy="", created_at=0.0
            )
            if len(self._reviews) > MOST_REVIEWS:
                del self._reviews[next(iter(self._reviews))]
        elif known is not None and what == "approved":
            edited, digest = data["edited"], None
            if edited is not None:
                digest = action_hash(edited["tool"], edited["arguments"], known.agent, known.bound_to)
            people = tuple(data.get("approved_by") or (data["by"],))
            self._reviews[id] = replace(
                known,
                status="approved",
                uses_left=data["uses"],
                edited=edited,
                edited_hash=digest,
                approved_by=people,
            )
        elif what in ("rejected", "expired"):
            self._reviews.pop(id, None)

    def set_action(self, id: str, opened: str | None, *, is_redacted: bool = False) -> None:
        """The paused call that the review is about: that of the review which was opened when its pause was recomputed,
        under another id."""
        known, same = self._reviews.get(id), self._opened
        if known is not None and not known.action_hash and same is not None and same.id == opened:
            taken = ("action_hash", "agent", "arguments", "policy", "bound_to", "needs", "above")
            self._reviews[id] = replace(known, **{name: getattr(same, name) for name in taken})
            if is_redacted:
                self._redacted.add(id)

    def hides_a_difference(self, id: str, attempt: Attempt, *, is_redacted: bool) -> bool:
        """Whether this attempt may differ from the approved call in redacted values alone."""
        known = self._reviews.get(id)
        if known is None or known.status != "approved":
            return False
        approved = {"tool": known.tool, "arguments": known.arguments} if known.edited is None else known.edited
        is_redacted |= id in self._redacted if known.edited is None else MARKER in json.dumps(known.edited)
        same = REDACT(attempt.arguments or {}) == REDACT(approved["arguments"] or {})
        return is_redacted and same and approved["tool"] == attempt.tool

    @contextmanager
    def without(self, id: str) -> Iterator[None]:
        """Hide the approval of a review inside this block."""
        known = self._reviews.pop(id)
        try:
            yield
        finally:
            self._reviews[id] = known

    def review(self, review_id: str) -> ReviewRecord | None:
        return self._reviews.get(review_id)

    def find_review(self, session: str, action_hash: str) -> ReviewRecord | None:
        return None  # the rows name the review

    def put_review(self, record: ReviewRecord) -> ReviewRecord:
        if record.id in self._reviews:
            self._reviews[record.id] = record
            if record.status == "used":
                del self._reviews[record.id]
        else:
            self._opened = record
        return record

    def append_to_both(self, row: EventRow) -> int:
        return 0
