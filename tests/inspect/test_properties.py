"""Laws of every timeline, on random events in random order."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
from hypothesis import given
from hypothesis import strategies as st

from bylaw.inspect.comparison import compare
from bylaw.inspect.model import Entry, EventEntry, RequestEntry, TurnEntry
from bylaw.inspect.report.json import comparison_lines, entry_line
from bylaw.inspect.report.side_by_side import Columns
from bylaw.inspect.timeline import Timeline
from bylaw.model.events import Event, Origin, Request, Response, SessionEnd, SessionStart, ToolCall, ToolResult, Trace
from bylaw.report.text import width
from tests.inspect.support import controls, page
from tests.strategies import events, traces


def _told(entry: Entry) -> Iterator[Event]:
    if isinstance(entry, TurnEntry):
        yield entry.response
        for called in entry.calls:
            yield called.call
            yield from called.results
        yield from entry.beside
    elif isinstance(entry, RequestEntry):
        yield entry.request
    elif isinstance(entry, EventEntry):
        yield entry.event


def _key(event: Event) -> tuple[Any, ...]:
    if isinstance(event, ToolCall):
        return (event.kind, event.origin.session, event.turn, event.call_id)
    return (event.kind, id(event))


def _all_of(trace: Trace) -> Counter[Any]:
    """What has to be shown, once each: a call is shown by its response and by itself; a request by its response."""
    found: Counter[Any] = Counter()
    for event in trace.events:
        if isinstance(event, Response | ToolResult) or not isinstance(
            event, ToolCall | Request | SessionStart | SessionEnd
        ):
            found[_key(event)] += 1
    return found


@given(traces)
def test_every_event_is_shown_once(trace: Trace) -> None:
    shown = list(Timeline(trace))
    reported = Counter(_key(event) for entry in shown for event in _told(entry))
    wanted = _all_of(trace)
    assert {key: reported[key] for key in wanted} == wanted


@given(st.lists(events(), min_size=1, max_size=3), st.randoms())
def test_events_in_any_order_lose_nothing(parts: list[tuple[Event, ...]], random: Any) -> None:
    mixed = [event for part in parts for event in part]
    random.shuffle(mixed)
    trace = Trace(name="t", events=tuple(mixed))
    reported = Counter(_key(event) for entry in Timeline(trace) for event in _told(entry))
    wanted = _all_of(trace)
    assert {key: reported[key] for key in wanted} == wanted


@given(traces, st.integers(40, 130), st.booleans())
def test_every_line_fits_and_steers_nothing(trace: Trace, columns: int, full: bool) -> None:
    shown = list(Timeline(trace))
    text = page(shown, width=columns, full=full)
    assert not controls(text)
    assert all(width(line) <= columns for line in text.split("\n"))
    for entry in shown:
        json.loads(entry_line(entry))


def test_a_request_without_a_response_fits_with_a_long_agent() -> None:
    request = Request(origin=Origin("1", agent="x" * 200))
    text = page(list(Timeline(Trace(name="t", events=(request,)))), width=40, full=False)
    assert "request without a response · x" in text
    assert all(width(line) <= 40 for line in text.split("\n"))


@given(traces, traces, st.integers(40, 130))
def test_any_two_traces_can_be_compared(before: Trace, after: Trace, columns: int) -> None:
    report = compare(before, after)
    text = click.unstyle("".join(Columns(width=columns).render(report)))
    assert not controls(text)
    assert all(width(line) <= columns for line in text.split("\n"))
    assert all(json.loads(line) for line in comparison_lines(report, 0))


@given(traces)
def test_a_trace_does_not_differ_from_itself(trace: Trace) -> None:
    report = compare(trace, trace)
    assert report.differing == 0
    assert report.input_differs_at is None


class _Long:
    """A trace that is never in memory."""

    name, format, complete, notes, problems, skipped = "t", None, True, (), (), 0

    def __init__(self, sessions: int) -> None:
        self._sessions = sessions

    def __iter__(self) -> Iterator[Event]:
        turn = 0
        for number in range(self._sessions):
            origin = Origin(f"session {number}")
            messages: list[Any] = []
            for _ in range(5):
                messages = [*messages, {"role": "user", "content": f"question {turn} " * 20}]
                request = Request(origin=origin, turn=turn, held_messages=messages)
                yield request
                yield Response(origin=origin, turn=turn, request=request, text="answer " * 20)
                turn += 1
            yield SessionEnd(origin=origin)


def _peak(sessions: int) -> int:
    tracemalloc.start()
    try:
        for entry in Timeline(_Long(sessions)):
            page([entry])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_trace() -> None:
    _peak(10)  # what is imported and cached once
    short, long = _peak(50), _peak(200)
    assert long < 1.3 * short + 100_000
