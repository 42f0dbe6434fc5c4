"""Events, one by one, put together as the turns that people read.

A turn lasts until something else happens: what comes back later, while another agent already speaks, stands where it
was recorded and names its turn. So nothing is held but the turn at hand, and a trace of any length flows through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from bylaw.inspect.history import Histories
from bylaw.inspect.model import Called, Entry, EventEntry, Input, RequestEntry, SessionEntry, Totals, TurnEntry
from bylaw.inspect.parts import thoughts
from bylaw.inspect.selection import Selection
from bylaw.inspect.tally import Tally
from bylaw.inspect.tree import Tree
from bylaw.model.events import Event, Origin, Request, Response, SessionEnd, SessionStart, ToolCall, ToolResult
from bylaw.model.ports import TraceSource
from bylaw.text.prices import Prices

_MOST_OPEN = 64
"""requests that wait for their response at once"""
_MOST_BESIDE = 100
"""annotations that one turn keeps while its calls run"""
_MOST_SESSIONS = 100_000


class _Draft(Struct):
    """A turn that may still grow."""

    response: Response
    input: Input
    wanted: bool
    whole: bool
    calls: dict[str, ToolCall]
    results: dict[str, list[ToolResult]] = field(default_factory=dict)
    beside: list[Event] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        return len(self.results) < len(self.calls)

    def holds(self, event: Event) -> bool:
        return event.turn == self.response.turn and event.origin == self.response.origin


class Timeline:
    """The entries of a trace, once; `totals` are of the whole trace, and settled when the iteration has ended."""

    def __init__(
        self, source: TraceSource, selection: Selection | None = None, *, prices: Prices | None = None
    ) -> None:
        self._source = source
        self._selection = selection or Selection()
        self._tally = Tally(prices)
        self._tree = Tree()
        self._histories = Histories()
        self._draft: _Draft | None = None
        self._asked: dict[tuple[Origin, int | None], Request] = {}
        self._session: str | None = None
        """the one whose heading is shown"""
        self._headed: dict[str, None] = {}
        self._metadata: dict[str, dict[str, object] | None] = {}
        self._read: Origin | None = None
        """whose turn was shown last: what its next request repeats need not be shown again"""

    @property
    def totals(self) -> Totals:
        return self._tally.totals

    def __iter__(self) -> Iterator[Entry]:
        for event in self._source:
            self._tally.add(event)
            yield from _STEPS.get(type(event), Timeline._beside)(self, event)
        yield from self._close()
        yield from self._give_up(0)

    # Events

    def _request(self, event: Request) -> Iterator[Entry]:
        key = (event.origin, event.turn)
        if key in self._asked:
            yield from self._unanswered(self._asked.pop(key))
        self._asked[key] = event
        yield from self._give_up(_MOST_OPEN)

    def _response(self, event: Response) -> Iterator[Entry]:
        yield from self._close()
        request = self._asked.pop((event.origin, event.turn), None) or event.request
        wanted = self._selection.takes_turn(event)
        whole = wanted and self._selection.whole
        told = Input()
        if wanted and not self._selection.tools:
            told = self._histories.look(request, all=whole and self._read != event.origin)
        self._read = event.origin if wanted else None
        self._histories.answered(event)
        if request is not None:
            self._histories.asked(request)
        self._draft = _Draft(event, told, wanted, whole, {call.call_id: call for call in event.tool_calls})

    def _call(self, event: ToolCall) -> Iterator[Entry]:
        draft = self._draft
        if draft is not None and draft.holds(event):
            draft.calls.setdefault(event.call_id, event)
        else:
            yield from self._alone(event)

    def _result(self, event: ToolResult) -> Iterator[Entry]:
        draft = self._draft
        self._histories.returned(event)
        if draft is None or event.turn != draft.response.turn or event.origin.session != draft.response.origin.session:
            yield from self._alone(event)
        elif event.call_id in draft.calls:
            draft.results.setdefault(event.call_id, []).append(event)
        else:
            draft.beside.append(event)

    def _starts(self, event: SessionStart) -> Iterator[Entry]:
        yield from self._close()
        self._metadata[event.origin.session] = event.metadata
        if len(self._metadata) > _MOST_OPEN:
            del self._metadata[next(iter(self._metadata))]

    def _ends(self, event: SessionEnd) -> Iterator[Entry]:
        yield from self._close()
        for key in [key for key in self._asked if key[0].session == event.origin.session]:
            yield from self._unanswered(self._asked.pop(key))
        if not event.complete:
            yield from self._alone(event)
        self._headed.pop(event.origin.session, None)
        self._histories.ended(event.origin.session)

    def _beside(self, event: Event) -> Iterator[Entry]:
        draft = self._draft
        of_turn = draft is not None and draft.response.origin.session == event.origin.session
        if draft is not None and of_turn and draft.is_waiting and len(draft.beside) < _MOST_BESIDE:
            draft.beside.append(event)
        else:
            yield from self._alone(event)

    # Entries

    def _alone(self, event: Event) -> Iterator[Entry]:
        yield from self._close()
        if self._selection.takes_event(event):
            yield from self._heading(event.origin)
            yield EventEntry(event=event, depth=self._tree.depth(event.origin))

    def _unanswered(self, request: Request) -> Iterator[Entry]:
        yield from self._close()
        if self._selection.takes_turn(request) and not self._selection.tools:
            told = self._histories.look(request)
            yield from self._heading(request.origin)
            yield RequestEntry(request=request, depth=self._tree.depth(request.origin), input=told)
        self._histories.asked(request)

    def _give_up(self, most: int) -> Iterator[Entry]:
        while len(self._asked) > most:
            yield from self._unanswered(self._asked.pop(next(iter(self._asked))))

    def _close(self) -> Iterator[Entry]:
        draft, self._draft = self._draft, None
        if draft is None:
            return
        depth = self._tree.depth(draft.response.origin)  # also of what is not shown: others stand below it
        calls = [call for call in draft.calls.values() if self._selection.takes_tool(call)]
        if not draft.wanted or (self._selection.tools and not calls):
            return
        yield from self._heading(draft.response.origin)
        yield TurnEntry(
            response=draft.response,
            depth=depth,
            input=draft.input,
            thoughts=() if self._selection.tools else thoughts(draft.response),
            calls=_called(calls, draft),
            other_calls=len(draft.calls) - len(calls),
            beside=tuple(event for event in draft.beside if self._selection.takes_event(event)),
            cost=self._tally.cost(draft.response),
            since=self._tally.since(draft.response),
            whole=draft.whole,
        )

    def _heading(self, origin: Origin) -> Iterator[Entry]:
        """Something of this session follows and is shown."""
        self.totals.shown += 1
        session = origin.session
        if session == self._session:
            return
        self._session = session
        yield SessionEntry(
            session=session, metadata=self._metadata.pop(session, None), continued=session in self._headed
        )
        self._headed[session] = None
        if len(self._headed) > _MOST_SESSIONS:
            del self._headed[next(iter(self._headed))]


def _called(calls: list[ToolCall], draft: _Draft) -> tuple[Called, ...]:
    groups: dict[str | int, list[str]] = {}
    for call in calls:
        if call.group is not None:
            groups.setdefault(call.group, []).append(call.call_id)
    several = [ids for ids in groups.values() if len(ids) > 1]
    number = {call_id: i for i, ids in enumerate(several) for call_id in ids}
    return tuple(Called(call, tuple(draft.results.get(call.call_id, ())), number.get(call.call_id)) for call in calls)


_STEPS: dict[type[Event], Callable[..., Iterator[Entry]]] = {
    Request: Timeline._request,
    Response: Timeline._response,
    ToolCall: Timeline._call,
    ToolResult: Timeline._result,
    SessionStart: Timeline._starts,
    SessionEnd: Timeline._ends,
}
