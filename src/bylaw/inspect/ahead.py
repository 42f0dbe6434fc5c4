"""A look ahead: what most traces hold in all is known before their first line is shown, and long ones still flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from bylaw.inspect.model import Totals
from bylaw.inspect.tally import Tally
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event
from bylaw.model.ports import TraceSource
from bylaw.text.prices import Prices

EVENTS = 10_000


class Ahead:
    """Satisfies `ports.TraceSource`. Raises InputError where the part that was looked at cannot be read."""

    def __init__(self, source: TraceSource, *, events: int = EVENTS, prices: Prices | None = None) -> None:
        self._source = source
        self._rest = iter(source)
        self._seen = list(islice(self._rest, events + 1))
        self.is_all = len(self._seen) <= events
        """whether that was the whole trace"""
        self._prices = prices

    def totals(self) -> Totals:
        """Of what was looked at."""
        tally = Tally(self._prices)
        for event in self._seen:
            tally.add(event)
        return tally.totals

    def __iter__(self) -> Iterator[Event]:
        seen, self._seen = self._seen, []
        return chain(_let_go(seen), self._rest)

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def format(self) -> str | None:
        return self._source.format

    @property
    def complete(self) -> bool:
        return self._source.complete

    @property
    def notes(self) -> Sequence[str]:
        return self._source.notes

    @property
    def problems(self) -> Sequence[Diagnostic]:
        return self._source.problems

    @property
    def skipped(self) -> int:
        return self._source.skipped


def _let_go(events: list[Event]) -> Iterator[Event]:
    """One by one, and none is held for longer."""
    events.reverse()
    while events:
        yield events.pop()
