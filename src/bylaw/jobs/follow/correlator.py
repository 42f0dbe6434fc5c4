"""The event log in batches, each followed exactly once.

INVARIANT: what a batch comes to and the position after it are written in one transaction, which is given up where the
position is not the one that the batch began at. So whatever kills a correlator, and however many run on one store,
each row counts once.

The rules are asked before that transaction begins: it only writes, so that no decision waits for it long.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.jobs.follow.fold import following
from bylaw.jobs.follow.notices import about_review, enqueue
from bylaw.jobs.follow.raising import Raised, Raising
from bylaw.jobs.follow.recorded import FOLDED
from bylaw.jobs.follow.sessions import Followed, Sessions, written
from bylaw.model.guarding import GuardPolicy
from bylaw.model.incidents import Detection, Incident, Position
from bylaw.model.stores import EventRow, GuardStore, StoreConflict, Transaction

BATCH = 500
NAME = "follow"


class Step(Struct):
    """What one batch came to."""

    events: int = 0
    opened: list[Incident] = []
    withdrawn: list[Incident] = []
    detections: int = 0
    again: int = 0
    """sessions that were folded anew, since an event came late"""
    unreadable: list[str] = []


class Correlator:
    """`source` is the log, `target` keeps what comes of it: usually the same store."""

    def __init__(
        self,
        policies: Sequence[GuardPolicy],
        store: GuardStore,
        *,
        target: GuardStore | None = None,
        notify: bool = False,
        batch: int = BATCH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._target = store, target or store
        self._notify, self._batch, self._clock = notify, batch, clock
        compiled = following(policies)
        joined = "\n".join(policy.hash for policy in compiled.all)
        self._policy = "sha256:" + hashlib.sha256(joined.encode()).hexdigest()
        self._sessions = Sessions(compiled, self._policy, source=store, target=self._target)
        self._at: Position | None = None

    def step(self) -> Step:
        """Follow the next batch; `events` is 0 where nothing is left."""
        at = self._at or self._position()
        rows = self._source.events(after=at.seq, limit=self._batch)
        if not rows:
            self._at = at
            return Step()
        followed = self._follow(rows, before=at.seq)
        try:
            step = self._write(at, rows, followed)
        except StoreConflict:  # somebody else follows this store as well, and was faster
            self._at = None
            self._sessions.forget()
            return Step(events=len(rows))
        except BaseException:
            self._at = None
            raise
        return step

    def catch_up(self, *, each: Callable[[Step], object] | None = None) -> Step:
        """Every batch there is."""
        total = Step()
        while (step := self.step()).events:
            if each is not None:
                each(step)
            total.events += step.events
            total.detections += step.detections
            total.again += step.again
        return total

    def _position(self) -> Position:
        found = self._target.followed(Position, limit=1)
        return found[0] if found else Position(id=NAME)

    def _follow(self, rows: Sequence[EventRow], *, before: int) -> list[Followed]:
        by_session: dict[str, list[EventRow]] = {}
        for row in rows:
            if row.kind in FOLDED:
                by_session.setdefault(row.session, []).append(row)
        return [self._sessions.follow(key, own, FOLDED, before) for key, own in by_session.items()]

    def _write(self, at: Position, rows: Sequence[EventRow], followed: Sequence[Followed]) -> Step:
        now, records = self._clock(), []
        dumped = [written(one, now) for one in followed]
        standing = [self._standing(one) for one in followed]
        with self._target.transaction("") as transaction:
            raising = Raising(transaction, now=now, notify=self._notify)
            moved = transaction.put_followed(replace(at, seq=rows[-1].seq, at=now))
            for one, record, left in zip(followed, dumped, standing, strict=True):
                records.append(transaction.put_followed(record))
                if one.removed:
                    raising.withdraw(one.removed, left)
                for detected in one.added:
                    raising.add(detected)
            if self._notify:
                _tell_of_reviews(transaction, rows, now)
        self._at = moved
        for one, record in zip(followed, records, strict=True):
            self._sessions.remember(one, record)
        return _step(rows, followed, raising.raised)

    def _standing(self, followed: Followed) -> list[Detection]:
        """Those that were found before and still are: only wanted where others are taken back."""
        if not followed.removed:
            return []
        gone = {one.id for one in followed.removed}
        known = self._target.followed(Detection, session=followed.record.session, limit=_ALL)
        return [one for one in known if one.id not in gone]


_ALL = 1_000_000


def _tell_of_reviews(transaction: Transaction, rows: Sequence[EventRow], now: float) -> None:
    for row in rows:
        if row.kind == "review" and row.data.get("what") == "opened":
            review = transaction.review(str(row.data.get("review")))
            if review is not None and review.status == "pending":
                enqueue(transaction, about_review(review, "review.opened", now))


def _step(rows: Sequence[EventRow], followed: Sequence[Followed], raised: Raised) -> Step:
    return Step(
        events=len(rows),
        opened=raised.opened,
        withdrawn=raised.withdrawn,
        detections=raised.detections,
        again=sum(one.again for one in followed),
        unreadable=[problem for one in followed for problem in one.unreadable],
    )
