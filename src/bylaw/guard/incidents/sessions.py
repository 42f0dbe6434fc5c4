"""Rows in the order of arrival, late and repeated → exactly the findings of one fold over them in order.

The order is that of time, then of the log. The rows of a batch are sorted, and copies are skipped. A row that happened
before the last folded one changes everything after it, so the session is folded again from the log, and the new
findings replace the old ones. Two cases cannot be corrected: a row that arrives after part of its session was pruned,
and one of a session with more than MOST_REFOLDED events. These rows are folded on arrival, and the session is marked as
inexact. Rules that count over many sessions are folded as rows arrive (`WideWindows`)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.attempts import count_attempt, judge
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.incidents.event_rows import FOLDED, Rules, TimedRow, Unreadable, add_time, digest, rule_key, time_of
from bylaw.guard.incidents.fold import CountedAttempt, Fold, RowViolation, violation_of_match
from bylaw.guard.stores.ports import GuardStore, each_event, each_followed
from bylaw.guard.stores.records import Detection, EventRow, Following, WideWindow
from bylaw.model.condition import Reach
from bylaw.model.rule import Action
from bylaw.text.redaction.redactor import redacted

MOST_REFOLDED = 50_000
"""events of a session that is folded again for a late event"""
MOST_NEWEST = 64
"""events of one moment that are distinguished without reading the log"""
LONGEST_MESSAGE = 2_000
"""characters of a message that are stored"""
CACHE_BYTES = 64 << 20
"""approximate size of the cached sessions"""
MOST_IDLE = 20_000
"""events of other sessions after which a session leaves the cache: most are over by then"""
_SESSION_BYTES, _CALL_BYTES, _STATE_FACTOR = 4_000, 1_000, 8
"""estimated memory of a session, of an open call, and of each encoded byte"""
_SHORT = 32
"""events of a session whose rules cannot hold much state"""


class SessionBatch(Struct, kw_only=True):
    """The result of a batch in one session."""

    record: Following
    state: SessionState
    added: list[Detection]
    removed: list[Detection] = []
    standing: list[Detection] = []
    """if some are removed: earlier detections that still hold"""
    again: bool = False
    """whether it was folded again"""
    unreadable: list[str] = []
    growth: int = 0
    """characters of arguments and contents in its rows"""
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged in this batch; negative if a new fold found fewer"""
    attempted: list[CountedAttempt] = []
    """for the rules that count over more than a session"""


class Sessions:
    def __init__(self, rules: Rules, cache: SessionCache, *, source: GuardStore, target: GuardStore) -> None:
        self._rules, self._cache = rules, cache
        self._source, self._target = source, target

    def follow(self, key: str, rows: list[TimedRow], before: int) -> SessionBatch:
        """`before`: the number of the last event before this batch."""
        record, state = self._cache.take(key)
        rows.sort()
        if record is None:
            new = Following(id=key, session=key, policy=self._rules.hash)
            return self._follow_new_rows(new, SessionState(key), rows, before)
        if record.policy != self._rules.hash:
            changed = replace(record, policy=self._rules.hash, since=before)
            again = self._follow_from_start(changed, rows, before)
            return again or self._follow_new_rows(replace(changed, lost=()), SessionState(key), rows, before)
        if record.last is not None:
            first = rows[0][0]
            if first < record.last or (first == record.last and len(record.newest) >= MOST_NEWEST):
                again = self._follow_from_start(record, rows, before)
                if again is not None:
                    return again
                record = replace(record, inexact=True)
        return self._follow_new_rows(record, state or SessionState(key), rows, before)

    def _follow_new_rows(
        self, record: Following, state: SessionState, rows: Sequence[TimedRow], before: int
    ) -> SessionBatch:
        fold = Fold(self._rules, state, asked=record.asked, lost=record.lost, unjudged=record.unjudged, after=before)
        fresh, unreadable, found = _FreshRows(record), list[str](), list[RowViolation]()
        for at, _, row in fresh.only(rows):
            try:
                found += fold.step(row, at)
            except Unreadable as problem:
                unreadable.append(str(problem))
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
        return SessionBatch(
            record=after,
            state=state,
            added=list(added.values()),
            unreadable=unreadable,
            growth=sum(_row_size(row) for _, _, row in rows),
            unjudged=_difference(record.unjudged, fold.unjudged),
            attempted=fold.attempted,
        )

    def _follow_from_start(self, record: Following, rows: Sequence[TimedRow], before: int) -> SessionBatch | None:
        """None if the log no longer holds the whole session, or too many events of it."""
        through = max(seq for _, seq, _ in rows)
        if record.folded + len(rows) > MOST_REFOLDED:
            return None
        log = takewhile(lambda row: row.seq <= through, each_event(self._source, session=record.id))
        everything = sorted(add_time(row) for row in log if row.kind in FOLDED)
        if len(everything) < record.folded + len(rows):
            return None
        blank = replace(record, last=None, newest=(), folded=0, asked={}, lost=(), unjudged={})
        followed = self._follow_new_rows(blank, SessionState(record.id), everything, before)
        known = [one for one in each_followed(self._target, Detection, session=record.id) if one.over == "session"]
        old = {one.id: one for one in known if one.seq > record.since}
        new = {one.id: one for one in followed.added}
        followed.added = [one for key, one in new.items() if key not in old]
        followed.removed = [one for key, one in old.items() if key not in new]
        followed.standing = [one for one in known if one.id not in old or one.id in new]
        followed.again = True
        followed.unjudged = _difference(record.unjudged, followed.record.unjudged)
        return followed


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    if before == after:
        return {}
    grown = {rule: after.get(rule, 0) - before.get(rule, 0) for rule in before | after}
    return {rule: count for rule, count in grown.items() if count}


class _FreshRows:
    """Rows in order, without copies: rows of the same time are compared by their digests."""

    def __init__(self, record: Following) -> None:
        self.last = record.last
        self._newest: dict[str, None] | None = dict.fromkeys(record.newest)
        """digests of the rows at that time, in order"""
        self._sole: EventRow | None = None
        """the only row at that time, whose digest was not needed yet"""

    def only(self, rows: Iterable[TimedRow]) -> Iterator[TimedRow]:
        last = self.last
        for one in rows:
            at, _, row = one
            if last is not None and at <= last:
                mark = digest(row)
                if mark in self._digests():
                    continue
                self._digests()[mark] = None
            else:
                self.last = last = at
                self._newest, self._sole = None, row
            yield one

    def _digests(self) -> dict[str, None]:
        if self._newest is None:
            assert self._sole is not None
            self._newest = {digest(self._sole): None}
        return self._newest

    def newest(self) -> tuple[str, ...]:
        return tuple(self._digests())[-MOST_NEWEST:] if self.last is not None else ()


def detection(found: RowViolation) -> Detection:
    """The finding as a record. Its id is derived from the rule, the session and the deciding event, so it is unique."""
    row, call, guarded = found.row, found.call, found.guarded
    event, span = digest(row), guarded.rule.span
    return Detection(
        id=f"detection-{short_hash(found.rule, row.session, event)}",
        session=row.session,
        rule=found.rule,
        event=event,
        seq=row.seq,
        when=time_of(row),
        message=redacted(guarded.reason or found.message)[:LONGEST_MESSAGE],
        then=guarded.then.value,
        severity=guarded.rule.severity,
        stopped=found.stopped,
        certain=found.certain,
        line=None if span is None else str(span),
        tool=None if call is None else call.name,
        call_id=None if call is None else call.call_id,
        run=None if call is None else call.origin.run,
        agent=None if call is None else call.origin.agent,
    )


def short_hash(*parts: str | int) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


# -- states of sessions between two batches ---------------------------------------------------------------------------


class _Cached(Struct):
    record: Following
    state: SessionState
    size: int
    measured: int
    """events that were folded when it was measured"""
    growth: int
    """bytes that its size grew by since"""
    seen: int
    """number of events that had been followed when it was last used"""
    read: int
    """bytes that it was read from; 0 if it was followed from its beginning"""


class SessionCache:
    """The states of sessions between two batches: decoded while there is room, and in the store.

    A live follower writes all of them with each batch, and the cache only saves reading. A replay starts over after a
    crash, so it writes a session only when it leaves the cache, which is once for most.
    """

    def __init__(self, rules: Rules, target: GuardStore, *, write_each: bool = True) -> None:
        """`write_each`: write with each batch, so that another process can continue."""
        self._rules, self._target, self._write_each = rules, target, write_each
        self._cached: dict[str, _Cached] = {}
        """in the order of last use"""
        self._taken: dict[str, _Cached] = {}
        self._read: dict[str, int] = {}
        """sessions of this batch that were read from the store → their size there"""
        self._size = self._events = 0

    def take(self, key: str) -> tuple[Following | None, SessionState | None]:
        """Removed from the cache until it is added again, since the fold changes it in place."""
        cached = self._cached.pop(key, None)
        if cached is not None:
            self._size -= cached.size
            self._taken[key] = cached
            return cached.record, cached.state
        stored = self._target.followed(Following, session=key, limit=1)
        if not stored:
            return None, None
        record = stored[0]
        self._read[key] = len(record.state)
        same = record.policy == self._rules.hash
        state = load(key, record.state, self._rules.policies.all) if same else None
        return replace(record, state=b""), state

    def to_write(self, batch: Sequence[SessionBatch], events: int, at: float) -> list[Following]:
        """The records that have to be written now. `events`: the size of the batch."""
        self._events += events
        if self._write_each:
            return [replace(one.record, state=dump(one.state), at=at) for one in batch]
        for one in batch:
            self._add(one.record, one.state, one.growth)
        return [replace(one.record, state=dump(one.state), at=at) for one in self._evict()]

    def commit(self, batch: Sequence[SessionBatch], records: Sequence[Following]) -> None:
        """After the commit: only committed states may be used again."""
        if self._write_each:
            for one, record in zip(batch, records, strict=True):
                self._add(replace(record, state=b""), one.state, one.growth)
            self._evict()

    def clear(self) -> None:
        self._cached.clear()
        self._taken.clear()
        self._read.clear()
        self._size = 0

    def _add(self, record: Following, state: SessionState, growth: int) -> None:
        """Measured again when its events or its size may have doubled; meanwhile the growth is added."""
        before, folded = self._taken.pop(record.id, None), record.folded
        read = self._read.pop(record.id, 0) if before is None else before.read
        if (
            before is not None
            and before.measured <= folded < 2 * before.measured
            and before.growth + growth <= before.size - before.growth
        ):
            size, measured, growth = before.size + growth, before.measured, before.growth + growth
        else:
            size, measured, growth = _state_size(state, short=folded < _SHORT) + _STATE_FACTOR * read, folded, 0
        self._cached[record.id] = _Cached(record, state, size, measured, growth, self._events, read)
        self._size += size

    def _evict(self) -> list[_Cached]:
        evicted: list[_Cached] = []
        for cached in self._cached.values():
            if self._size <= CACHE_BYTES and cached.seen >= self._events - MOST_IDLE:
                break
            self._size -= cached.size
            evicted.append(cached)
        for cached in evicted:
            del self._cached[cached.record.id]
        return evicted


def _state_size(state: SessionState, *, short: bool = False) -> int:
    """The approximate size in memory. It differs from the encoded size: undo records share most of their values with
    the state, unless they were decoded."""
    size = _SESSION_BYTES + sum(_CALL_BYTES + _text_size(call.arguments) for call in state.open.values())
    for own in state.policies.values():
        size += sum(_CALL_BYTES + (0 if one.text is None else len(one.text)) for one in own.log)
        size += sum(_text_size(getattr(one.event, "content", None)) for one in own.log)
        if not short:
            size += _STATE_FACTOR * (len(own.attempts.snapshot()) + len(own.calls.snapshot()))
    return size


def _row_size(row: EventRow) -> int:
    """Characters of the arguments or contents in the row."""
    attempt = row.data.get("attempt")
    arguments = attempt.get("arguments") if isinstance(attempt, dict) else None
    return sum(map(_text_size, (arguments, row.data.get("content"), row.data.get("said"))))


def _text_size(value: Any) -> int:
    size, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            left += (*one, *one.values())
        elif isinstance(one, list | tuple):
            left += one
    return size


# -- rules that count over many sessions -------------------------------------------------------------------------------

MOST_CACHED = 1_000
"""agents whose state is cached in decoded form"""
AHEAD = 60.0
"""seconds that the clock of a host may be ahead without a word"""


class _Window(Struct):
    record: WideWindow
    state: SessionState


class BatchResult(Struct):
    """The result of a batch."""

    added: list[Detection] = []
    records: list[WideWindow] = []
    """to be written with the batch"""
    unjudged: dict[str, int] = {}
    ahead: int = 0
    """attempts whose time is in the future"""


class WideWindows:
    """Rules that count over all sessions of an agent, or of all agents: `call_count_in_window_gt` with `over`.

    They are folded in the order of the log, as if all calls of the agent, or all calls, were in one session. An event
    that arrives late is counted at its time, and nothing before it is judged again. An event with a time in the future
    counts when it was written: else one wrong clock would make calls recent for everybody. The state is one record for
    each agent and one for all agents. A record holds no more times than the rules can ask for.
    """

    def __init__(self, rules: Rules, target: GuardStore) -> None:
        self._rules, self._target = rules, target
        names = Counter(
            policy.rule_name(id, policy.agent) for policy in rules.everywhere.judging for id in policy.rules
        )
        self._shared = {name for name, number in names.items() if number > 1}
        """rules over all agents that several agents have under one name"""
        self._cached: dict[str, _Window] = {}

    def count(self, attempts: Sequence[CountedAttempt]) -> BatchResult:
        """Judge the attempts of a batch."""
        counted = BatchResult()
        touched: dict[str, _Window] = {}
        for attempted in sorted(attempts, key=lambda one: one.row.seq):
            key = attempted.call.origin.agent or "" if attempted.reach == "agent" else ""
            id = f"{attempted.reach}:{key}"
            window = touched.get(id) or self._take(id, key, attempted.reach)
            touched[id] = window
            for found in self._judge(attempted, window.state, counted.unjudged):
                own = detection(found)
                when = min(own.when, attempted.row.at)
                over_all = replace(own, session=key, over=attempted.reach, call_session=own.session, when=when)
                counted.added.append(over_all)
        ahead = {one.row.seq for one in attempts if time_of(one.row) > one.row.at + AHEAD}
        counted.ahead = len(ahead)
        counted.records = [replace(window.record, state=dump(window.state)) for window in touched.values()]
        self._cached |= touched
        return counted

    def commit(self, records: Sequence[WideWindow]) -> None:
        """After the commit: the records as they were written."""
        for record in records:
            self._cached[record.id].record = replace(record, state=b"")
        while len(self._cached) > MOST_CACHED:
            del self._cached[next(iter(self._cached))]

    def clear(self) -> None:
        self._cached.clear()

    def _take(self, id: str, key: str, reach: Reach) -> _Window:
        cached = self._cached.pop(id, None)
        if cached is not None:
            return cached
        stored = self._target.followed(WideWindow, session=id, limit=1)
        if not stored:
            return _Window(WideWindow(id=id, session=id), SessionState(key))
        state = load(key, stored[0].state, self._rules.wide[reach].all)
        return _Window(replace(stored[0], state=b""), state)

    def _judge(self, attempted: CountedAttempt, state: SessionState, unjudged: dict[str, int]) -> list[RowViolation]:
        chain, call, partial = attempted.chain, attempted.call, attempted.partial
        at = min(time_of(attempted.row), attempted.row.at)
        there = replace(call, origin=replace(call.origin, session=state.key), at=at)
        if not attempted.decision.judged:
            if attempted.row.kind == "taken":
                count_attempt(chain.judging, state, there)
            return []
        rules = chain.rules_by_name(call.origin.agent)
        found: list[RowViolation] = []
        for match in judge(chain, state, there, Action.BLOCK):
            policy, guarded = rules[match.rule]
            doubtful = partial is not None and rule_key(policy, guarded.rule.id) in partial.doubtful
            if doubtful and not match.certain:
                unjudged[match.rule] = unjudged.get(match.rule, 0) + 1
            else:
                name = match.rule
                if attempted.reach == "all":  # the same, whichever agent broke the rule
                    name = guarded.rule.id
                    if name in self._shared and policy.agent is not None:
                        name = f"{policy.agent}/{name}"
                found += violation_of_match(attempted.row, attempted.decision, guarded, replace(match, rule=name), call)
        return found
