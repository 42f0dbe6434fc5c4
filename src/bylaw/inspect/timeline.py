"""A timeline: events put together as the turns that people read, one by one, with the totals of the whole trace.

A turn lasts until something else happens. A result that comes back later, while another agent answers, stands where it
was recorded and names its turn. So only the current turn is in memory, and a trace may have any length. The prescan
knows the totals of most traces before the first entry is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from time import monotonic

from msgspec import Struct, field

from bylaw.inspect.messages import Histories, thoughts
from bylaw.inspect.model import (
    CallWithResults,
    Entry,
    EventEntry,
    Input,
    RequestEntry,
    Selection,
    SessionEntry,
    SessionTotals,
    Totals,
    TurnEntry,
    model_of,
)
from bylaw.model.events import Event, Origin, Request, Response, SessionEnd, SessionStart, ToolCall, ToolResult
from bylaw.text.prices import cost_of

MOST_NAMES = 1_000
"""names counted of each kind, which bounds the memory"""
MOST_SUMMED = 100
"""sessions with totals of their own"""
MOST_SESSIONS = 100_000
"""open sessions remembered; a session that has ended is forgotten"""
PRESCAN = 10_000
"""events read ahead, …"""
PATIENCE = 0.3
"""… for this many seconds at most"""
_PART, _FEWEST = 100, 1_000
"""events of one step, and those that are read ahead however long that takes"""


class Prescan:
    """Reads the first events of a trace ahead; iterating gives all of them. Raises InputError where one is bad."""

    def __init__(self, source: Iterable[Event], *, events: int = PRESCAN, seconds: float = PATIENCE) -> None:
        self._rest = iter(source)
        self._first: list[Event] = []
        self.is_all = False
        """whether the events read ahead are the whole trace"""
        until = monotonic() + seconds
        while part := list(islice(self._rest, min(_PART, events + 1 - len(self._first)))):
            self._first += part
            if len(self._first) > events or (len(self._first) >= _FEWEST and monotonic() > until):
                return  # so that the first page is shown at once
        self.is_all = True

    def totals(self) -> Totals:
        """Of the events read ahead."""
        counter = TotalsCounter()
        for event in self._first:
            counter.add(event)
        return counter.totals

    def __iter__(self) -> Iterator[Event]:
        return chain(self._release(), self._rest)

    def _release(self) -> Iterator[Event]:
        """Hold no event longer than needed."""
        self._first.reverse()
        while self._first:
            yield self._first.pop()


class TotalsCounter:
    """Counts events one by one, also those that are not shown."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._starts: dict[str, float | None] = {}
        """session → its first recorded time"""

    def add(self, event: Event) -> None:
        totals, time = self.totals, event.time
        totals.events += 1
        self._add_session(event.origin.session, time)
        session = totals.by_session.get(event.origin.session)
        if time is not None:
            for one in (totals, session) if session is not None else (totals,):
                one.first = time if one.first is None else min(one.first, time)
                one.last = time if one.last is None else max(one.last, time)
        if isinstance(event, Response):
            self._add_turn(event, session)
        elif isinstance(event, ToolCall):
            totals.calls += 1
            if session is not None:
                session.calls += 1
            _count(totals.tools, event.name)
        elif isinstance(event, ToolResult):
            totals.failed += bool(event.is_error)
        elif isinstance(event, SessionEnd):
            self._starts.pop(event.origin.session, None)

    def seconds_since_start(self, event: Event) -> float | None:
        """Seconds since the first recorded time of the event's session."""
        time, start = event.time, self._starts.get(event.origin.session)
        return None if time is None or start is None else time - start

    def _add_turn(self, response: Response, session: SessionTotals | None) -> None:
        totals, usage = self.totals, response.usage
        totals.turns += 1
        cost = cost_of(response)
        if session is not None:
            session.turns += 1
            session.cost.add(cost)
            session.tokens.add(None if usage is None else usage.total)
        _count(totals.models, model_of(response))
        _count(totals.agents, response.origin.agent)
        totals.latency_ms.add(response.latency_ms)
        totals.cost.add(cost)
        if usage is not None:
            totals.input_tokens.add(usage.input_tokens)
            totals.output_tokens.add(usage.output_tokens)
            totals.cached_tokens.add(usage.cached_input_tokens)
            totals.all_tokens.add(usage.total)

    def _add_session(self, session: str, time: float | None) -> None:
        starts = self._starts
        if session in starts:
            if starts[session] is None:
                starts[session] = time
            return
        starts[session] = time
        self.totals.sessions += 1
        if len(self.totals.session_ids) < MOST_NAMES:
            self.totals.session_ids[session] = None
        if len(self.totals.by_session) < MOST_SUMMED:
            self.totals.by_session.setdefault(session, SessionTotals())
        if len(starts) > MOST_SESSIONS:
            del starts[next(iter(starts))]


def _count(names: dict[str, int], name: str | None) -> None:
    if name is not None and (name in names or len(names) < MOST_NAMES):
        names[name] = names.get(name, 0) + 1


DEEPEST = 6
"""agents nested deeper are shown at this depth"""
_MOST_ORIGINS = 10_000
"""runs and agents whose depth is remembered"""
_MOST_OPEN = 64
"""requests that wait for their response at once"""
_MOST_BESIDE = 100
"""annotations that one turn holds while its calls run"""


class AgentTree:
    """How many agents stand above each agent, as far as the trace says."""

    def __init__(self) -> None:
        self._depths: dict[tuple[str, str], int] = {}
        self._known: dict[Origin, int] = {}

    def depth(self, origin: Origin) -> int:
        found = self._known.get(origin)
        if found is None:
            if len(self._known) >= _MOST_ORIGINS:
                self._known.clear()
                self._depths.clear()
            parent = origin.parent_run or origin.parent_agent  # an unknown one has depth 0
            found = 0 if parent is None else min(DEEPEST, self._depths.get((origin.session, parent), 0) + 1)
            for name in (origin.run, origin.agent):
                if name is not None:
                    self._depths.setdefault((origin.session, name), found)
            self._known[origin] = found
        return found


class _Draft(Struct):
    """A turn that may still grow."""

    response: Response
    input: Input
    is_wanted: bool
    whole: bool
    calls: dict[str, ToolCall]
    results: dict[str, list[ToolResult]] = field(default_factory=dict)
    beside: list[Event] = field(default_factory=list)

    def holds(self, event: Event) -> bool:
        return event.turn == self.response.turn and event.origin == self.response.origin


class Timeline:
    """The entries of a trace, once. `totals` are of the whole trace, and final when the iteration has ended."""

    def __init__(
        self,
        events: Iterable[Event],
        selection: Selection | None = None,
        *,
        by_session: Mapping[str, SessionTotals] | None = None,
    ) -> None:
        """`by_session`: the totals of sessions, if they are known before the events are read."""
        self._by_session = by_session or {}
        self._events = events
        self._selection = selection or Selection()
        self._counter = TotalsCounter()
        self._tree = AgentTree()
        self._histories = Histories()
        self._draft: _Draft | None = None
        self._open_requests: dict[tuple[Origin, int | None], Request] = {}
        self._session: str | None = None
        """the session of the latest heading"""
        self._headed: dict[str, None] = {}
        """sessions that had a heading"""
        self._metadata: dict[str, dict[str, object] | None] = {}
        self._shown: Origin | None = None
        """the origin of the latest turn, if it was shown: its next request need not repeat the history"""

    @property
    def totals(self) -> Totals:
        return self._counter.totals

    def __iter__(self) -> Iterator[Entry]:
        for event in self._events:
            self._counter.add(event)
            yield from _STEPS.get(type(event), Timeline._add_other)(self, event)
        yield from self._close_turn()
        yield from self._close_requests(0)

    # Events

    def _request(self, event: Request) -> Iterator[Entry]:
        key = (event.origin, event.turn)
        if key in self._open_requests:
            yield from self._add_unanswered(self._open_requests.pop(key))
        self._open_requests[key] = event
        yield from self._close_requests(_MOST_OPEN)

    def _response(self, event: Response) -> Iterator[Entry]:
        yield from self._close_turn()
        request = self._open_requests.pop((event.origin, event.turn), None) or event.request
        is_wanted = self._selection.takes_turn(event)
        whole = is_wanted and self._selection.whole
        new_input = Input()
        if is_wanted and not self._selection.tools:
            new_input = self._histories.new_input(request, all=whole and self._shown != event.origin)
        self._shown = event.origin if is_wanted else None
        self._histories.add_response(event)
        if request is not None:
            self._histories.add_request(request)
        self._draft = _Draft(event, new_input, is_wanted, whole, {call.call_id: call for call in event.tool_calls})

    def _call(self, event: ToolCall) -> Iterator[Entry]:
        if self._draft is not None and self._draft.holds(event):
            self._draft.calls[event.call_id] = self._draft.calls.pop(event.call_id, event)  # in the order they ran
        else:
            yield from self._add_single(event)

    def _result(self, event: ToolResult) -> Iterator[Entry]:
        draft = self._draft
        self._histories.add_result(event)
        if draft is None or event.turn != draft.response.turn or event.origin.session != draft.response.origin.session:
            yield from self._add_single(event)
        elif event.call_id in draft.calls:
            draft.results.setdefault(event.call_id, []).append(event)
        else:
            draft.beside.append(event)

    def _session_start(self, event: SessionStart) -> Iterator[Entry]:
        yield from self._close_turn()
        self._metadata[event.origin.session] = event.metadata
        if len(self._metadata) > _MOST_OPEN:
            del self._metadata[next(iter(self._metadata))]

    def _session_end(self, event: SessionEnd) -> Iterator[Entry]:
        yield from self._close_turn()
        session = event.origin.session
        for key in [key for key in self._open_requests if key[0].session == session]:
            yield from self._add_unanswered(self._open_requests.pop(key))
        if not event.complete:
            yield from self._add_single(event)
        self._headed.pop(session, None)
        self._histories.forget(session)

    def _add_other(self, event: Event) -> Iterator[Entry]:
        draft = self._draft
        if (
            draft is not None
            and draft.response.origin.session == event.origin.session
            and len(draft.results) < len(draft.calls)
            and len(draft.beside) < _MOST_BESIDE
        ):
            draft.beside.append(event)
        else:
            yield from self._add_single(event)

    # Entries

    def _add_single(self, event: Event) -> Iterator[Entry]:
        yield from self._close_turn()
        if self._selection.takes_event(event):
            yield from self._add_heading(event.origin)
            yield EventEntry(event=event, depth=self._tree.depth(event.origin))

    def _add_unanswered(self, request: Request) -> Iterator[Entry]:
        yield from self._close_turn()
        if self._selection.takes_turn(request) and not self._selection.tools:
            new_input = self._histories.new_input(request)
            yield from self._add_heading(request.origin)
            yield RequestEntry(request=request, depth=self._tree.depth(request.origin), input=new_input)
        self._histories.add_request(request)

    def _close_requests(self, most: int) -> Iterator[Entry]:
        """Show the oldest open requests as unanswered, until only `most` are open."""
        while len(self._open_requests) > most:
            yield from self._add_unanswered(self._open_requests.pop(next(iter(self._open_requests))))

    def _close_turn(self) -> Iterator[Entry]:
        draft, self._draft = self._draft, None
        if draft is None:
            return
        depth = self._tree.depth(draft.response.origin)  # also of hidden turns: others stand below them
        calls = [call for call in draft.calls.values() if self._selection.takes_tool(call)]
        if not draft.is_wanted or (self._selection.tools and not calls):
            return
        yield from self._add_heading(draft.response.origin)
        yield TurnEntry(
            response=draft.response,
            depth=depth,
            input=draft.input,
            thoughts=() if self._selection.tools else thoughts(draft.response),
            calls=_attach_results(calls, draft.results),
            other_calls=len(draft.calls) - len(calls),
            beside=tuple(event for event in draft.beside if self._selection.takes_event(event)),
            cost=cost_of(draft.response),
            since=self._counter.seconds_since_start(draft.response),
            whole=draft.whole,
        )

    def _add_heading(self, origin: Origin) -> Iterator[Entry]:
        """Count what is shown next, and show a heading where another session begins or continues."""
        self.totals.shown += 1
        session = origin.session
        if session == self._session:
            return
        self._session = session
        metadata = self._metadata.pop(session, None)
        totals = self._by_session.get(session)
        yield SessionEntry(session=session, metadata=metadata, continued=session in self._headed, totals=totals)
        self._headed[session] = None
        if len(self._headed) > MOST_SESSIONS:
            del self._headed[next(iter(self._headed))]


def _attach_results(calls: list[ToolCall], results: dict[str, list[ToolResult]]) -> tuple[CallWithResults, ...]:
    groups: dict[str | int, list[str]] = {}
    for call in calls:
        if call.group is not None:
            groups.setdefault(call.group, []).append(call.call_id)
    parallel = [ids for ids in groups.values() if len(ids) > 1]
    number = {call_id: i for i, ids in enumerate(parallel) for call_id in ids}
    return tuple(
        CallWithResults(call, tuple(results.get(call.call_id, ())), number.get(call.call_id)) for call in calls
    )


_STEPS: dict[type[Event], Callable[..., Iterator[Entry]]] = {
    Request: Timeline._request,
    Response: Timeline._response,
    ToolCall: Timeline._call,
    ToolResult: Timeline._result,
    SessionStart: Timeline._session_start,
    SessionEnd: Timeline._session_end,
}
