"""Following the event log: continuously, with reminders and delivery of notifications, or once over the whole log."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents.correlator import BATCH, Correlator, Step
from bylaw.guard.incidents.incidents import IncidentWriter
from bylaw.guard.incidents.notifications import Outbox, Patience, Reminders, ReminderTimes
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import GuardStore, StoreUnavailable, each_followed, followed_pages
from bylaw.guard.stores.records import Detection, Incident, Notification
from bylaw.model.rule import GuardPolicy
from bylaw.text.redaction.redactor import Redactor

if TYPE_CHECKING:
    from bylaw.guard.incidents.channels import Notify

LONGEST_WAIT = 30.0
"""seconds between two attempts to reach a store"""
REPLAY_PAGE = 500
REPLAY_BATCH = 5_000
"""larger than live: nobody waits for the scratch store"""


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
    patience: Patience | None = None,
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


class Replayed(Struct):
    """The results of a replay."""

    events: int
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
    notify: bool = False,
    each: Callable[[Incident], object] | None = None,
    batch: int = REPLAY_BATCH,
    clock: Callable[[], float] = time.time,
) -> Replayed:
    """The incidents that these rules find in the whole log, independent of what was followed live.

    `scratch`: an empty store for intermediate results (default: a temporary file). `since`: only incidents last seen
    then or later; earlier events still count for the rules. `write`: add missing incidents to the store. `each`:
    receives the incidents one by one, so that their number does not matter.
    """
    with ExitStack() as stack:
        if scratch is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bylaw-replay-"))
            scratch = stack.enter_context(closing(SqliteStore(Path(folder) / "replay.db")))
        replayed = Replayed(0)

        def count_unreadable(step: Step) -> None:
            replayed.unreadable += len(step.unreadable)

        correlator = Correlator(policies, store, target=scratch, write_each=False, batch=batch, behind=1, clock=clock)
        total = correlator.catch_up(each=count_unreadable)
        replayed.events, replayed.unjudged, replayed.ahead = total.events, total.unjudged, total.ahead
        if write:
            pages = followed_pages(scratch, Detection, size=REPLAY_PAGE)
            replayed.written = sum(_write_page(store, page, since, notify=notify, now=clock()) for page in pages)
        for incident in each_followed(scratch, Incident):
            if incident.count and (since is None or incident.last_seen >= since):
                replayed.count += 1
                (each or replayed.incidents.append)(incident)
        return replayed


def _write_page(store: GuardStore, page: Sequence[Detection], since: float | None, *, notify: bool, now: float) -> int:
    with store.transaction("") as transaction:
        writer = IncidentWriter(transaction, now=now, notify=notify)
        for one in page:
            if since is None or one.when >= since:
                writer.add(replace(one, version=0, incident=""))
        writer.finish()
        return writer.detections
