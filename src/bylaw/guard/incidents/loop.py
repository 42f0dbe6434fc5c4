"""Continuously: the log is followed, reviews are reminded of, the outbox is delivered, until somebody says stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bylaw.guard.incidents.correlator import Correlator, Step
from bylaw.guard.incidents.courier import Courier
from bylaw.guard.incidents.reminders import Reminders
from bylaw.guard.stores.ports import StoreUnavailable

LONGEST_PATIENCE = 30.0
"""seconds between two tries at a store that is out of reach"""


class Loop:
    def __init__(
        self,
        correlator: Correlator,
        *,
        reminders: Reminders | None = None,
        courier: Courier | None = None,
        poll: float = 1.0,
        each: Callable[[Step], object] = lambda step: None,
        trouble: Callable[[str], object] = lambda why: None,
    ) -> None:
        self._correlator, self._reminders, self._courier = correlator, reminders, courier
        self._poll, self._each, self._trouble = poll, each, trouble
        self._swept = 0.0
        self._broken: BaseException | None = None
        """what ended the deliveries"""

    def once(self) -> None:
        """Everything that is there, and one try of each notification that is due."""
        self._correlator.catch_up(each=self._each)
        if self._reminders is not None:
            self._reminders.sweep()
        if self._courier is not None:
            while self._courier.deliver():
                pass

    def run(self, stop: threading.Event) -> None:
        """A receiver that hangs holds up other notifications, and nothing else: they have a thread of their own."""
        courier = threading.Thread(target=self._carry, args=(stop,), name="bylaw-courier", daemon=True)
        if self._courier is not None:
            courier.start()
        self._repeat(stop, self._follow)
        if courier.is_alive():
            courier.join(self._poll + 1.0)
        if self._broken is not None:
            raise self._broken

    def _follow(self, stop: threading.Event) -> bool:
        step = self._correlator.step()
        self._each(step)
        if self._reminders is not None and time.monotonic() >= self._swept + self._poll:
            self._reminders.sweep()
            self._swept = time.monotonic()
        return bool(step.events)

    def _carry(self, stop: threading.Event) -> None:
        courier = self._courier
        assert courier is not None
        try:
            self._repeat(stop, lambda stop: courier.deliver(stopped=stop.is_set) > 0)
        except BaseException as broken:  # to follow on and tell nobody would look like all is well
            self._broken = broken
            stop.set()

    def _repeat(self, stop: threading.Event, work: Callable[[threading.Event], bool]) -> None:
        """At once where there was something to do, else after `poll`; longer while the store is out of reach."""
        wait = self._poll
        while not stop.is_set():
            try:
                busy = work(stop)
                wait = self._poll
            except StoreUnavailable as problem:
                self._trouble(str(problem))
                busy, wait = False, min(LONGEST_PATIENCE, wait * 2)
            if not busy:
                stop.wait(wait)
