"""The event log of a store as a trace, so that rules can be tried on real traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.guard.backtest.backtest import Backtest
from bylaw.guard.backtest.replay import RecordedSession, trial_guard
from bylaw.guard.backtest.report import BacktestReport
from bylaw.guard.incidents.event_rows import Unreadable, read_decision, read_observation, time_of
from bylaw.guard.model import is_name
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import EventRow
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Origin, SessionEnd, ToolCall, ToolResult
from bylaw.model.rule import GuardPolicy

MOST_EVENTS = 100_000
"""the newest events that are read, unless somebody asks for more"""
_PAGE = 1_000


class StoreTrace:
    """Satisfies `ports.TraceSource`. Calls whose arguments were redacted have none, so that no rule judges a marker."""

    format = "store"
    name = "store"

    def __init__(self, store: GuardStore, *, most: int = MOST_EVENTS, only_made: bool = False) -> None:
        """`only_made`: without calls that were stopped."""
        self._store, self._only_made = store, only_made
        self._last = store.last_event()
        self._first = max(0, self._last - most)
        self.complete = False
        self.notes: Sequence[str] = () if not self._first else (f"only the newest {most:,} events were read",)
        self.problems: Sequence[Diagnostic] = ()
        self.skipped = 0
        self.stopped: set[tuple[str, str]] = set()
        """sessions and ids of calls that were not made"""
        self.resumed: set[tuple[str, str]] = set()
        """likewise, of calls that were made after a person had approved them"""

    def __iter__(self) -> Iterator[Event]:
        after = self._first
        while rows := self._store.events(after=after, limit=_PAGE):
            for row in rows:
                if row.seq > self._last:
                    return
                try:
                    event = self._event(row)
                    if event is not None:
                        _check_names(event)
                except Unreadable:
                    self.skipped += 1
                    continue
                if event is not None:
                    yield event
            after = rows[-1].seq

    def _event(self, row: EventRow) -> Event | None:
        at = time_of(row)
        match row.kind:
            case "decision" | "taken":
                return self._call(row, at)
            case "result":
                origin = Origin(row.session)
                data = row.data
                content = None if data.get("redacted") else data.get("content")
                return ToolResult(
                    origin=origin, at=at, call_id=data.get("result_of"), content=content, is_error=data.get("is_error")
                )
            case "observation":
                return read_observation(row, at)
            case "session" if row.data.get("how") == "ended":
                return SessionEnd(origin=Origin(row.session), at=at, complete=row.data.get("why") is None)
            case _:
                return None

    def _call(self, row: EventRow, at: float) -> ToolCall | None:
        decision = read_decision(row, at)
        attempt = decision.attempt
        if decision.action != "allow":
            if self._only_made:
                return None
            self.stopped.add((row.session, decision.call_id))
        elif decision.resumed:
            self.resumed.add((row.session, decision.call_id))
        arguments = attempt.arguments if attempt.arguments is not None else {}
        return ToolCall(
            origin=Origin(row.session, attempt.run, attempt.parent_run, attempt.agent),
            at=at,
            name=attempt.tool,
            call_id=decision.call_id,
            arguments=arguments if decision.redacted is None else None,
        )


def _check_names(event: Event) -> None:
    """An attempt was refused, and is recorded, if a name in it cannot be used. Raises Unreadable."""
    origin = event.origin
    names = [origin.session, *(name for name in (origin.run, origin.parent_run, origin.agent) if name is not None)]
    if isinstance(event, ToolCall):
        names += [event.name, event.call_id or ""]
    elif isinstance(event, ToolResult):
        names.append(event.call_id or "")
    if not all(map(is_name, names)):
        raise Unreadable("a name in it cannot be used")


class StoreBacktest(Backtest):
    """A backtest on the record of a guard. A call that the guard had stopped was attempted, and not made: it is judged,
    and taken back. A call that was approved later was made then: it was judged before, so it is only remembered."""

    trace: StoreTrace | None = None

    def _observe(self, trace: str, event: Event) -> None:
        try:
            super()._observe(trace, event)
        except ValueError:  # such as a run that moves to another agent, which the guard has refused too
            if self.trace is None:
                raise
            self.trace.skipped += 1

    def _call(self, trace: str, call: ToolCall, ours: RecordedSession, theirs: RecordedSession) -> None:
        session = call.origin.session
        if self.trace is not None and (session, call.call_id) in self.trace.resumed:
            self.trace.resumed.discard((session, call.call_id))
            for replay, recorded in ((self._replay, ours), (self._other, theirs)):
                if replay is not None:
                    replay.judge(call, recorded)
                    recorded.add_call(call)
            return
        super()._call(trace, call, ours, theirs)
        if self.trace is None or (session, call.call_id) not in self.trace.stopped:
            return
        self.trace.stopped.discard((session, call.call_id))
        for replay in (self._replay, self._other):
            if replay is not None:
                replay.guard.release(call.call_id, session=session)


def compare_policies(
    store: GuardStore,
    policies: Sequence[GuardPolicy],
    against: Sequence[GuardPolicy] | None,
    *,
    most: int = MOST_EVENTS,
) -> BacktestReport:
    other = None if against is None else trial_guard(against)
    job = StoreBacktest(trial_guard(policies), against=other)
    job.trace = StoreTrace(store, most=most)
    job.add(job.trace)
    return job.report()
