"""The event log in batches, each processed exactly once.

INVARIANT: the results of a batch and the position after it are written in one transaction, which is rolled back if the
position is not the one that the batch began at. So each row counts once, even if a correlator is killed or several run
on one store. The rules are evaluated before that transaction: it only writes, so that no decision waits for it long.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.evaluate import count_attempt, judge
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.incidents.event_rows import FOLDED, Rules, TimedRow, rule_key, time_of, timed
from bylaw.guard.incidents.fold import Attempted, Found, found_match
from bylaw.guard.incidents.incidents import IncidentWriter
from bylaw.guard.incidents.notifications import about_review, enqueue
from bylaw.guard.incidents.sessions import Followed, SessionCache, Sessions, detection
from bylaw.guard.stores.ports import GuardStore, StoreConflict, Transaction
from bylaw.guard.stores.records import Detection, EventRow, Incident, Position, WideWindow
from bylaw.model.condition import Reach
from bylaw.model.rule import Action, GuardPolicy

MOST_CACHED = 1_000
"""agents whose state is cached in decoded form"""
AHEAD = 60.0
"""seconds that the clock of a host may be ahead without a word"""


class _Window(Struct):
    record: WideWindow
    state: SessionState


class Counted(Struct):
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

    def count(self, attempts: Sequence[Attempted]) -> Counted:
        """Judge the attempts of a batch."""
        counted = Counted()
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

    def _judge(self, attempted: Attempted, state: SessionState, unjudged: dict[str, int]) -> list[Found]:
        chain, call, partial = attempted.chain, attempted.call, attempted.partial
        at = min(time_of(attempted.row), attempted.row.at)
        there = replace(call, origin=replace(call.origin, session=state.key), at=at)
        if not attempted.decision.judged:
            if attempted.row.kind == "taken":
                count_attempt(chain.judging, state, there)
            return []
        rules = chain.rules_by_name(call.origin.agent)
        found: list[Found] = []
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
                found += found_match(attempted.row, attempted.decision, guarded, replace(match, rule=name), call)
        return found


# -- batches of the log -----------------------------------------------------------------------------------------------

BATCH = 500
BEHIND = 4
"""how many times larger batches are while more events wait, so that session states are written less often"""
NAME = "follow"


class Step(Struct):
    """The results of one batch."""

    events: int = 0
    opened: list[Incident] = []
    withdrawn: list[Incident] = []
    detections: int = 0
    again: int = 0
    """sessions that were folded again because of a late event"""
    unreadable: list[str] = []
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged, because of values that are not recorded; negative if an earlier number
    was too high"""
    ahead: int = 0
    """attempts with a time in the future, which the rules over all sessions counted when they were written"""


class Correlator:
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
        """`store` has the log; `target` receives the results (default: the same store). `write_each`: write session
        states with each batch, so that another correlator can continue from there."""
        self._source, self._target = store, target or store
        self._notify, self._clock = notify, clock
        self._batch, self._large_batch = batch, batch * behind
        rules = Rules(policies)
        self._cache = SessionCache(rules, self._target, write_each=write_each)
        self._sessions = Sessions(rules, self._cache, source=store, target=self._target)
        self._wide = WideWindows(rules, self._target)
        self._at: Position | None = None
        self._is_behind = False

    def step(self) -> Step:
        """Process the next batch; `events` is 0 if none is left."""
        at = self._at or next(iter(self._target.followed(Position, session="", limit=1)), Position(id=NAME))
        limit = self._large_batch if self._is_behind else self._batch
        rows = self._source.events(after=at.seq, limit=limit)
        self._is_behind = len(rows) == limit
        if not rows:
            self._at = at
            return Step()
        try:
            return self._write(at, rows, self._follow(rows, before=at.seq))
        except StoreConflict:  # another correlator on this store was faster
            self._start_over()
            return Step(events=len(rows))
        except BaseException:
            self._start_over()
            raise

    def catch_up(self, *, each: Callable[[Step], object] | None = None) -> Step:
        """Process every batch there is; returns the sums."""
        total = Step()
        while (step := self.step()).events:
            if each is not None:
                each(step)
            total.events += step.events
            total.detections += step.detections
            total.again += step.again
            total.ahead += step.ahead
            total.unjudged = add_counts(total.unjudged, step.unjudged)
        return total

    def _start_over(self) -> None:
        """Cached states were changed, but not written."""
        self._at = None
        self._cache.clear()
        self._wide.clear()

    def _follow(self, rows: Sequence[EventRow], *, before: int) -> list[Followed]:
        by_session: dict[str, list[TimedRow]] = {}
        for row in rows:
            if row.kind in FOLDED:
                by_session.setdefault(row.session, []).append(timed(row))
        return [self._sessions.follow(key, own, before) for key, own in by_session.items()]

    def _write(self, at: Position, rows: Sequence[EventRow], followed: Sequence[Followed]) -> Step:
        now = self._clock()
        states = self._cache.to_write(followed, len(rows), now)
        wide = self._wide.count([one for each in followed for one in each.attempted])
        found = [*(one for each in followed for one in each.added), *wide.added]
        added = sorted(found, key=lambda one: (one.when, one.seq))
        with self._target.transaction("") as transaction:
            writer = IncidentWriter(transaction, now=now, notify=self._notify)
            moved = transaction.put_followed(replace(at, seq=rows[-1].seq, at=now))
            records = [transaction.put_followed(record) for record in states]
            windows = [transaction.put_followed(replace(record, at=now)) for record in wide.records]
            for one in followed:
                if one.removed:
                    writer.withdraw(one.removed, one.standing)
            for detected in added:
                writer.add(detected)
            writer.finish()
            if self._notify:
                _notify_reviews(transaction, rows, now)
        self._at = moved
        self._cache.commit(followed, records)
        self._wide.commit(windows)
        unjudged = wide.unjudged
        for one in followed:
            unjudged = add_counts(unjudged, one.unjudged)
        return Step(
            events=len(rows),
            opened=writer.opened,
            withdrawn=writer.withdrawn,
            detections=writer.detections,
            again=sum(one.again for one in followed),
            unreadable=[problem for one in followed for problem in one.unreadable],
            unjudged=unjudged,
            ahead=wide.ahead,
        )


def add_counts(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    if not other:
        return one
    summed = {key: one.get(key, 0) + other.get(key, 0) for key in one | other}
    return {key: count for key, count in summed.items() if count}


def _notify_reviews(transaction: Transaction, rows: Sequence[EventRow], now: float) -> None:
    for row in rows:
        if row.kind == "review" and row.data.get("what") == "opened":
            review = transaction.review(str(row.data.get("review")))
            if review is not None and review.status == "pending":
                enqueue(transaction, about_review(review, "review.opened", now))
