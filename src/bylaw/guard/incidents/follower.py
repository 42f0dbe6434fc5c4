"""Following the event log: continuously, with reminders and delivery of notifications, or once over the whole log.

The log is processed in batches, each exactly once.

INVARIANT: the results of a batch and the position after it are written in one transaction, which is rolled back if the
position is not the one that the batch began at. So each row counts once, even if a correlator is killed or several run
on one store. The rules are evaluated before that transaction: it only writes, so that no decision waits for it long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from bylaw.files import clean_up_on_signals
from bylaw.files.temporary import TemporaryFolder
from bylaw.guard.incidents.event_rows import FOLDED, Rules, TimedRow, add_time
from bylaw.guard.incidents.incidents import IncidentWriter
from bylaw.guard.incidents.notifications import Outbox, Reminders, ReminderTimes, RetryPolicy, about_review, enqueue
from bylaw.guard.incidents.sessions import SessionBatch, SessionCache, Sessions, WideWindows
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import (
    GuardStore,
    StoreConflict,
    StoreUnavailable,
    Transaction,
    each_followed,
    followed_pages,
)
from bylaw.guard.stores.records import Detection, EventRow, Incident, Notification, Position
from bylaw.model.rule import GuardPolicy
from bylaw.text.redaction.redactor import Redactor

if TYPE_CHECKING:
    from bylaw.guard.incidents.channels import Notify

LONGEST_WAIT = 30.0
"""seconds between two attempts to reach a store"""
REPLAY_PAGE = 500
REPLAY_BATCH = 5_000
"""larger than live: no decision waits for the scratch store"""
BATCH = 500
BEHIND = 4
"""how many times larger batches are while more events wait, so that session states are written less often"""
NAME = "follow"


class Step(Struct):
    """The results of one batch."""

    events: int = 0
    checked: int = 0
    """events that the rules are about, and that could be read"""
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
            total.checked += step.checked
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

    def _follow(self, rows: Sequence[EventRow], *, before: int) -> list[SessionBatch]:
        by_session: dict[str, list[TimedRow]] = {}
        for row in rows:
            if row.kind in FOLDED:
                by_session.setdefault(row.session, []).append(add_time(row))
        return [self._sessions.follow(key, own, before) for key, own in by_session.items()]

    def _write(self, at: Position, rows: Sequence[EventRow], followed: Sequence[SessionBatch]) -> Step:
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
        unreadable = [problem for one in followed for problem in one.unreadable]
        return Step(
            events=len(rows),
            checked=max(0, sum(row.kind in FOLDED for row in rows) - len(unreadable)),
            opened=writer.opened,
            withdrawn=writer.withdrawn,
            detections=writer.detections,
            again=sum(one.again for one in followed),
            unreadable=unreadable,
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


class Follower:
    """Follows the log, reminds of reviews and delivers notifications: `once`, or until it is stopped (`run`)."""

    def __init__(
        self,
        correlator: Correlator,
        *,
        reminders: Reminders | None = None,
        outbox: Outbox | None = None,
        poll: float = 1.0,
        each: Callable[[Step], object] = lambda step: None,
        trouble: Callable[[str], object] = lambda why: None,
    ) -> None:
        self._correlator, self._reminders, self._outbox = correlator, reminders, outbox
        self._poll, self._each, self._trouble = poll, each, trouble
        self._swept = 0.0
        self._broken: BaseException | None = None
        """the error that ended the deliveries"""

    def once(self) -> None:
        """Follow all events, and attempt each notification that is due once."""
        self._correlator.catch_up(each=self._each)
        if self._reminders is not None:
            self._reminders.sweep()
        if self._outbox is not None:
            while self._outbox.deliver():
                pass

    def run(self, stop: threading.Event) -> None:
        """Deliveries have their own thread, so that a receiver that hangs delays only other notifications."""
        deliveries = threading.Thread(target=self._deliver, args=(stop,), name="bylaw-outbox", daemon=True)
        if self._outbox is not None:
            deliveries.start()
        self._repeat(stop, self._follow)
        if deliveries.is_alive():
            deliveries.join(self._poll + 1.0)
        if self._broken is not None:
            raise self._broken

    def _follow(self) -> bool:
        step = self._correlator.step()
        self._each(step)
        if self._reminders is not None and time.monotonic() >= self._swept + self._poll:
            self._reminders.sweep()
            self._swept = time.monotonic()
        return bool(step.events)

    def _deliver(self, stop: threading.Event) -> None:
        outbox = self._outbox
        assert outbox is not None
        try:
            self._repeat(stop, lambda: outbox.deliver(stopped=stop.is_set) > 0)
        except BaseException as broken:  # following without notifying would look as if all were well
            self._broken = broken
            stop.set()

    def _repeat(self, stop: threading.Event, work: Callable[[], bool]) -> None:
        """At once if there was work, else after `poll`; less often while the store is unavailable."""
        wait = self._poll
        while not stop.is_set():
            try:
                busy = work()
                wait = self._poll
            except StoreUnavailable as problem:
                self._trouble(str(problem))
                busy, wait = False, min(LONGEST_WAIT, wait * 2)
            if not busy:
                stop.wait(wait)


def make_follower(
    policies: Sequence[GuardPolicy],
    store: GuardStore,
    webhook: str | None = None,
    escalate_to: str | None = None,
    *,
    notify: Notify | None = None,
    secret: str | None = None,
    reminding: ReminderTimes | None = None,
    patience: RetryPolicy | None = None,
    redactor: Redactor | None = None,
    poll: float = 1.0,
    batch: int = BATCH,
    each: Callable[[Step], object] = lambda step: None,
    trouble: Callable[[str], object] = lambda why: None,
    undelivered: Callable[[Notification], object] = lambda notification: None,
    clock: Callable[[], float] = time.time,
) -> Follower:
    """`notify`: who is told; `webhook` and `escalate_to` are addresses in place of those that it names. Raises
    ValueError for a channel that cannot be used, or whose secret is missing."""
    channels, times = {}, ReminderTimes()
    if notify is not None or webhook is not None or escalate_to is not None:
        from bylaw.guard.incidents.channels import add_webhooks, open_channels

        notify = add_webhooks(notify, webhook, escalate_to)
        channels, times = dict(open_channels(notify, secret=secret)), notify.times
    reminders = outbox = None
    if channels:
        reminders = Reminders(store, reminding or times, clock=clock)
        outbox = Outbox(store, channels, patience=patience, redactor=redactor, undelivered=undelivered, clock=clock)
    correlator = Correlator(policies, store, notify=bool(channels), batch=batch, clock=clock)
    return Follower(correlator, reminders=reminders, outbox=outbox, poll=poll, each=each, trouble=trouble)


class ReplayResult(Struct):
    """The results of a replay."""

    events: int
    checked: int = 0
    """events that the rules are about, and that could be read"""
    count: int = 0
    """of incidents"""
    incidents: list[Incident] = []
    """in the order in which they were found; empty if a callback received them"""
    unjudged: dict[str, int] = {}
    """rule → how often it could not be judged, because of values that are not recorded"""
    unreadable: int = 0
    """events that no guard has written"""
    ahead: int = 0
    """attempts with a time in the future, which the rules over all sessions counted when they were written"""
    written: int = 0
    """detections that the store did not have"""


def replay(
    policies: Sequence[GuardPolicy],
    store: GuardStore,
    *,
    scratch: GuardStore | None = None,
    since: float | None = None,
    write: bool = False,
    each: Callable[[Incident], object] | None = None,
    batch: int = REPLAY_BATCH,
    clock: Callable[[], float] = time.time,
) -> ReplayResult:
    """The incidents that these rules find in the whole log, independent of what was followed live.

    `scratch`: an empty store for intermediate results (default: a temporary file). `since`: only incidents last seen
    then or later; earlier events still count for the rules. `write`: add missing incidents to the store. `each`:
    receives the incidents one by one, so that their number does not matter.
    """
    with ExitStack() as stack:
        if scratch is None:
            stack.enter_context(clean_up_on_signals())
            folder = stack.enter_context(TemporaryFolder("bylaw-replay-"))
            scratch = stack.enter_context(closing(SqliteStore(Path(folder) / "replay.db")))
        replayed = ReplayResult(0)

        def count_unreadable(step: Step) -> None:
            replayed.unreadable += len(step.unreadable)

        correlator = Correlator(policies, store, target=scratch, write_each=False, batch=batch, behind=1, clock=clock)
        total = correlator.catch_up(each=count_unreadable)
        replayed.events, replayed.checked = total.events, total.checked
        replayed.unjudged, replayed.ahead = total.unjudged, total.ahead
        if write:
            pages = followed_pages(scratch, Detection, size=REPLAY_PAGE)
            replayed.written = sum(_write_page(store, page, since, now=clock()) for page in pages)
        for incident in each_followed(scratch, Incident):
            if incident.count and (since is None or incident.last_seen >= since):
                replayed.count += 1
                (each or replayed.incidents.append)(incident)
        return replayed


def _write_page(store: GuardStore, page: Sequence[Detection], since: float | None, *, now: float) -> int:
    with store.transaction("") as transaction:
        writer = IncidentWriter(transaction, now=now, notify=False)
        for one in page:
            if since is None or one.when >= since:
                writer.add(replace(one, version=0, incident=""))
        writer.finish()
        return writer.detections
