"""The event log in batches, each followed exactly once.

INVARIANT: what a batch comes to and the position after it are written in one transaction, which is given up where the
position is not the one that the batch began at. So whatever kills a correlator, and however many run on one store,
each row counts once.

The rules are asked before that transaction begins: it only writes, so that no decision waits for it long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents.memory import Memory
from bylaw.guard.incidents.model import Incident, Position
from bylaw.guard.incidents.notices import about_review, enqueue
from bylaw.guard.incidents.raising import Raised, Raising
from bylaw.guard.incidents.recorded import FOLDED, Placed, placed
from bylaw.guard.incidents.sessions import Followed, Sessions
from bylaw.guard.incidents.unwritten import Rules
from bylaw.guard.stores.ports import EventRow, GuardStore, StoreConflict, Transaction
from bylaw.model.guarding import GuardPolicy

BATCH = 500
BEHIND = 4
"""what is remembered of a session is then written less often"""
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
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged, since what it looks at is not written down; fewer than none where that
    was said too often before"""


class Correlator:
    """`source` is the log, `target` keeps what comes of it: usually the same store."""

    def __init__(
        self,
        policies: Sequence[GuardPolicy],
        store: GuardStore,
        *,
        target: GuardStore | None = None,
        write_each: bool = True,
        notify: bool = False,
        batch: int = BATCH,
        behind: int = BEHIND,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`write_each`: whether what is remembered of a session is written with each batch, so that another correlator
        can go on from there. `behind`: how many times as many events a batch has while more are waiting."""
        self._source, self._target = store, target or store
        self._notify, self._clock = notify, clock
        self._batch, self._behind = batch, batch * behind
        rules = Rules(policies)
        self._memory = Memory(rules, self._target, write_each=write_each)
        self._sessions = Sessions(rules, self._memory, source=store, target=self._target)
        self._at: Position | None = None
        self._is_behind = False

    def step(self) -> Step:
        """Follow the next batch; `events` is 0 where nothing is left."""
        at = self._at or self._position()
        limit = self._behind if self._is_behind else self._batch
        rows = self._source.events(after=at.seq, limit=limit)
        self._is_behind = len(rows) == limit
        if not rows:
            self._at = at
            return Step()
        try:
            return self._write(at, rows, self._follow(rows, before=at.seq))
        except StoreConflict:  # somebody else follows this store as well, and was faster
            self._start_over()
            return Step(events=len(rows))
        except BaseException:
            self._start_over()
            raise

    def catch_up(self, *, each: Callable[[Step], object] | None = None) -> Step:
        """Every batch there is."""
        total = Step()
        while (step := self.step()).events:
            if each is not None:
                each(step)
            total.events += step.events
            total.detections += step.detections
            total.again += step.again
            total.unjudged = added(total.unjudged, step.unjudged)
        return total

    def _start_over(self) -> None:
        """What was taken up was changed, and never written."""
        self._at = None
        self._memory.forget()

    def _position(self) -> Position:
        found = self._target.followed(Position, session="", limit=1)
        return found[0] if found else Position(id=NAME)

    def _follow(self, rows: Sequence[EventRow], *, before: int) -> list[Followed]:
        by_session: dict[str, list[Placed]] = {}
        for row in rows:
            if row.kind in FOLDED:
                by_session.setdefault(row.session, []).append(placed(row))
        return [self._sessions.follow(key, own, before) for key, own in by_session.items()]

    def _write(self, at: Position, rows: Sequence[EventRow], followed: Sequence[Followed]) -> Step:
        now = self._clock()
        remembered = self._memory.to_write(followed, len(rows), now)
        added = sorted((one for each in followed for one in each.added), key=lambda one: (one.when, one.seq))
        with self._target.transaction("") as transaction:
            raising = Raising(transaction, now=now, notify=self._notify)
            moved = transaction.put_followed(replace(at, seq=rows[-1].seq, at=now))
            records = [transaction.put_followed(record) for record in remembered]
            for one in followed:
                if one.removed:
                    raising.withdraw(one.removed, one.standing)
            for detected in added:
                raising.add(detected)
            raising.finish()
            if self._notify:
                _tell_of_reviews(transaction, rows, now)
        self._at = moved
        self._memory.written(followed, records)
        return _step(rows, followed, raising.raised)


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    if not other:
        return one
    summed = {key: one.get(key, 0) + other.get(key, 0) for key in one | other}
    return {key: count for key, count in summed.items() if count}


def _tell_of_reviews(transaction: Transaction, rows: Sequence[EventRow], now: float) -> None:
    for row in rows:
        if row.kind == "review" and row.data.get("what") == "opened":
            review = transaction.review(str(row.data.get("review")))
            if review is not None and review.status == "pending":
                enqueue(transaction, about_review(review, "review.opened", now))


def _step(rows: Sequence[EventRow], followed: Sequence[Followed], raised: Raised) -> Step:
    unjudged: dict[str, int] = {}
    for one in followed:
        unjudged = added(unjudged, one.unjudged)
    return Step(
        events=len(rows),
        opened=raised.opened,
        withdrawn=raised.withdrawn,
        detections=raised.detections,
        again=sum(one.again for one in followed),
        unreadable=[problem for one in followed for problem in one.unreadable],
        unjudged=unjudged,
    )
