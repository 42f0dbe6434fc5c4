"""Rows as they arrive, late and twice → what one fold over them in order finds, exactly.

The order is that of time, then of the log. The rows of a batch are sorted, and copies left out. A row that happened
before the last one that was folded changes what came after it, so the session is folded anew from the log, and what it
finds takes the place of what was found before. Two things cannot be put right: a row that comes after part of its
session was pruned, and one of a session of more than MOST_AGAIN events. These are folded where they arrive, and the
session is marked as inexact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.jobs.follow.detections import detection
from bylaw.jobs.follow.fold import Fold, Found
from bylaw.jobs.follow.recorded import Unreadable, digest, time_of
from bylaw.jobs.guard.session import SessionState
from bylaw.jobs.guard.tree import Policies
from bylaw.jobs.guard.written import dump, load
from bylaw.model.incidents import Detection, Following
from bylaw.model.stores import EventRow, GuardStore

MOST_CACHED = 2_000
"""sessions whose state is kept decoded"""
MOST_AGAIN = 50_000
"""events of a session that are folded anew for one that came late"""
MOST_NEWEST = 64
"""events of one moment that are told apart without a look into the log"""
PAGE = 1_000


class Followed(Struct, kw_only=True):
    """What a batch comes to in one session."""

    record: Following
    state: SessionState
    added: list[Detection]
    removed: list[Detection] = []
    again: bool = False
    """whether it was folded anew"""
    unreadable: list[str] = []


class Sessions:
    def __init__(self, policies: Policies, policy: str, *, source: GuardStore, target: GuardStore) -> None:
        self._policies, self._policy = policies, policy
        self._source, self._target = source, target
        self._live: dict[str, tuple[Following, SessionState]] = {}

    def follow(self, key: str, rows: Sequence[EventRow], kinds: frozenset[str], before: int) -> Followed:
        """`before`: the number of the last event before this batch."""
        record, state = self._known(key)
        rows = sorted(rows, key=_place)
        if record is None:
            record = Following(id=key, session=key, policy=self._policy)
        elif record.policy != self._policy:
            changed = replace(record, policy=self._policy, since=before)
            return self._again(changed, rows, kinds) or self._onward(changed, SessionState(key), rows)
        elif record.last is not None:
            first = time_of(rows[0])
            if first < record.last or (first == record.last and len(record.newest) >= MOST_NEWEST):
                again = self._again(record, rows, kinds)
                if again is not None:
                    return again
                record = replace(record, inexact=True)
        return self._onward(record, state or SessionState(key), rows)

    def remember(self, followed: Followed, record: Following) -> None:
        """After the commit: only what was written may be taken up again."""
        self._live[record.id] = (record, followed.state)
        while len(self._live) > MOST_CACHED:
            self._live.pop(next(iter(self._live)))

    def forget(self) -> None:
        self._live.clear()

    def _known(self, key: str) -> tuple[Following | None, SessionState | None]:
        """Taken out of the cache until it is committed: the fold changes it in place."""
        cached = self._live.pop(key, None)
        if cached is not None:
            return cached
        stored = self._target.followed(Following, session=key, limit=1)
        if not stored:
            return None, None
        same = stored[0].policy == self._policy
        return stored[0], load(key, stored[0].state, self._policies.all) if same else None

    def _onward(self, record: Following, state: SessionState, rows: Sequence[EventRow]) -> Followed:
        fold, unreadable = Fold(self._policies, state, record.asked), list[str]()
        fresh = _Fresh(record)
        found = _found(fold, fresh.only(rows), unreadable)
        added = {one.id: one for one in map(detection, found) if one.seq > record.since}
        record = replace(fresh.after(record), folded=record.folded + len(rows), asked=fold.asked)
        return Followed(record=record, state=state, added=list(added.values()), unreadable=unreadable)

    def _again(self, record: Following, rows: Sequence[EventRow], kinds: frozenset[str]) -> Followed | None:
        """None where the log does not hold the whole session any more, or too much of it."""
        through = max(row.seq for row in rows)
        if record.folded + len(rows) > MOST_AGAIN:
            return None
        everything = [row for row in _log(self._source, record.id, through) if row.kind in kinds]
        if len(everything) < record.folded + len(rows):
            return None
        blank = replace(record, last=None, newest=(), folded=0, asked={})
        followed = self._onward(blank, SessionState(record.id), sorted(everything, key=_place))
        old = {one.id: one for one in _detections(self._target, record.id) if one.seq > record.since}
        new = {one.id: one for one in followed.added}
        followed.added = [one for key, one in new.items() if key not in old]
        followed.removed = [one for key, one in old.items() if key not in new]
        followed.again = True
        return followed


class _Fresh:
    """Rows in order, without copies: those of one moment are told apart by their digests."""

    def __init__(self, record: Following) -> None:
        self._last = record.last
        self._newest: list[str] | None = list(record.newest)
        self._held: EventRow | None = None
        """the only one at that moment, whose digest nobody has asked for yet"""

    def only(self, rows: Iterable[EventRow]) -> Iterator[EventRow]:
        for row in rows:
            at = time_of(row)
            if self._last is not None and at <= self._last:
                mark = digest(row)
                if mark in self._marks():
                    continue
                self._marks().append(mark)
            else:
                self._last, self._newest, self._held = at, None, row
            yield row

    def _marks(self) -> list[str]:
        if self._newest is None:
            assert self._held is not None
            self._newest = [digest(self._held)]
        return self._newest

    def after(self, record: Following) -> Following:
        newest = self._marks() if self._last is not None else []
        return replace(record, last=self._last, newest=tuple(newest[-MOST_NEWEST:]))


def _found(fold: Fold, rows: Iterable[EventRow], unreadable: list[str]) -> list[Found]:
    found: list[Found] = []
    for row in rows:
        try:
            found += fold.step(row)
        except Unreadable as problem:
            unreadable.append(str(problem))
    return found


def written(followed: Followed, at: float) -> Following:
    return replace(followed.record, state=dump(followed.state), at=at)


def _place(row: EventRow) -> tuple[float, int]:
    return time_of(row), row.seq


def _log(store: GuardStore, session: str, through: int) -> Iterator[EventRow]:
    after = 0
    while rows := store.events(after=after, session=session, limit=PAGE):
        for row in rows:
            if row.seq > through:
                return
            yield row
        after = rows[-1].seq


def _detections(store: GuardStore, session: str) -> Iterator[Detection]:
    skip = 0
    while found := store.followed(Detection, session=session, skip=skip, limit=PAGE):
        yield from found
        skip += len(found)
