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

from bylaw.guard.decide.session import SessionState
from bylaw.guard.incidents.detections import detection
from bylaw.guard.incidents.fold import Fold, Found
from bylaw.guard.incidents.memory import Memory, told_size
from bylaw.guard.incidents.model import Detection, Following
from bylaw.guard.incidents.paging import each
from bylaw.guard.incidents.recorded import FOLDED, Placed, Unreadable, digest, placed
from bylaw.guard.incidents.unwritten import Rules
from bylaw.guard.stores.ports import EventRow, GuardStore

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
    standing: list[Detection] = []
    """where some are removed: those that were found before and still are"""
    again: bool = False
    """whether it was folded anew"""
    unreadable: list[str] = []
    told: int = 0
    """characters of arguments and contents in its rows"""
    unjudged: dict[str, int] = {}
    """rule → how often more than before it could not be judged; less where it was folded anew"""


class Sessions:
    def __init__(self, rules: Rules, memory: Memory, *, source: GuardStore, target: GuardStore) -> None:
        self._rules, self._memory = rules, memory
        self._source, self._target = source, target

    def follow(self, key: str, rows: list[Placed], before: int) -> Followed:
        """`before`: the number of the last event before this batch."""
        record, state = self._memory.take(key)
        rows.sort()
        if record is None:
            return self._onward(Following(id=key, session=key, policy=self._rules.hash), SessionState(key), rows)
        if record.policy != self._rules.hash:
            changed = replace(record, policy=self._rules.hash, since=before)
            return self._again(changed, rows) or self._onward(replace(changed, lost=()), SessionState(key), rows)
        if record.last is not None:
            first = rows[0][0]
            if first < record.last or (first == record.last and len(record.newest) >= MOST_NEWEST):
                again = self._again(record, rows)
                if again is not None:
                    return again
                record = replace(record, inexact=True)
        return self._onward(record, state or SessionState(key), rows)

    def _onward(self, record: Following, state: SessionState, rows: Sequence[Placed]) -> Followed:
        fold = Fold(self._rules, state, asked=record.asked, lost=record.lost, unjudged=record.unjudged)
        fresh, unreadable = _Fresh(record), list[str]()
        found = _found(fold, fresh.only(rows), unreadable)
        added = {one.id: one for one in map(detection, found) if one.seq > record.since}
        after = replace(
            record,
            last=fresh.last,
            newest=fresh.newest(),
            folded=record.folded + len(rows),
            asked=fold.asked,
            lost=tuple(sorted(fold.lost)),
            unjudged=fold.unjudged,
        )
        return Followed(
            record=after,
            state=state,
            added=list(added.values()),
            unreadable=unreadable,
            told=sum(told_size(row) for _, _, row in rows),
            unjudged=_more(record.unjudged, fold.unjudged),
        )

    def _again(self, record: Following, rows: Sequence[Placed]) -> Followed | None:
        """None where the log does not hold the whole session any more, or too much of it."""
        through = max(seq for _, seq, _ in rows)
        if record.folded + len(rows) > MOST_AGAIN:
            return None
        everything = sorted(placed(row) for row in _log(self._source, record.id, through) if row.kind in FOLDED)
        if len(everything) < record.folded + len(rows):
            return None
        followed = self._onward(_blank(record), SessionState(record.id), everything)
        known = list(each(self._target, Detection, session=record.id))
        old = {one.id: one for one in known if one.seq > record.since}
        new = {one.id: one for one in followed.added}
        followed.added = [one for key, one in new.items() if key not in old]
        followed.removed = [one for key, one in old.items() if key not in new]
        followed.standing = [one for one in known if one.id not in old or one.id in new]
        followed.again = True
        followed.unjudged = _more(record.unjudged, followed.record.unjudged)
        return followed


def _blank(record: Following) -> Following:
    """Before its first event."""
    return replace(record, last=None, newest=(), folded=0, asked={}, lost=(), unjudged={})


def _more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    if before == after:
        return {}
    grown = {rule: after.get(rule, 0) - before.get(rule, 0) for rule in before | after}
    return {rule: count for rule, count in grown.items() if count}


class _Fresh:
    """Rows in order, without copies: those of one moment are told apart by their digests."""

    def __init__(self, record: Following) -> None:
        self.last = record.last
        self._newest: dict[str, None] | None = dict.fromkeys(record.newest)
        """the last one comes last"""
        self._held: EventRow | None = None
        """the only one at that moment, whose digest nobody has asked for yet"""

    def only(self, rows: Iterable[Placed]) -> Iterator[Placed]:
        last = self.last
        for one in rows:
            at, _, row = one
            if last is not None and at <= last:
                mark = digest(row)
                if mark in self._marks():
                    continue
                self._marks()[mark] = None
            else:
                self.last = last = at
                self._newest, self._held = None, row
            yield one

    def _marks(self) -> dict[str, None]:
        if self._newest is None:
            assert self._held is not None
            self._newest = {digest(self._held): None}
        return self._newest

    def newest(self) -> tuple[str, ...]:
        return tuple(self._marks())[-MOST_NEWEST:] if self.last is not None else ()


def _found(fold: Fold, rows: Iterable[Placed], unreadable: list[str]) -> list[Found]:
    found: list[Found] = []
    for at, _, row in rows:
        try:
            found += fold.step(row, at)
        except Unreadable as problem:
            unreadable.append(str(problem))
    return found


def _log(store: GuardStore, session: str, through: int) -> Iterator[EventRow]:
    after = 0
    while rows := store.events(after=after, session=session, limit=PAGE):
        for row in rows:
            if row.seq > through:
                return
            yield row
        after = rows[-1].seq
