"""Makes events, in the order of turns, from what records say in the order of the file.

A turn is told as Request, Response, its ToolCalls, its ToolResults. Formats record calls apart from the response that
issued them, so a turn may still grow until the next request or response of its session. Events wait in `_events` from
the oldest such turn on; `take` hands out those before it. Order is therefore that of the file, even where sessions
interleave, and does not depend on how often `take` is called.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Origin, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.model.source import Span
from bylaw.traces.assembly.session_buffer import MOST_LANES, SHARED_ID, Known, Lane, same_call
from bylaw.traces.records.problems import Problems

MOST_HELD = 64
"""turns after which one cannot grow any more, whatever its session does"""
MOST_OPEN = 16
"""requests of one session that may wait for a response at once"""
MOST_WAITING = 10_000
"""events after which a turn cannot grow any more either"""
_MOST_CALLS = 1000
"""calls that may join one turn"""


class Assembler:
    def __init__(self, problems: Problems) -> None:
        self.turns = 0
        """responses so far: the index of the next turn"""
        self.requests = 0
        self.unanswered = 0
        self._problems = problems
        self._lanes: dict[str | Origin, Lane] = {}
        self._latest = _NO_LANE
        """the lane asked for last: mostly, the next record is of the same"""
        self._events: list[Event] = []
        self._taken = 0
        """events handed out before the first of `_events`"""
        self._recent: deque[tuple[Lane, str | None, int, int]] = deque(maxlen=MOST_HELD)
        """the latest turns: lane, id of the response's record, index, and where the response stands among all events"""

    def take(self) -> list[Event]:
        """The events that are settled since the last time."""
        events = self._events
        end = self._taken + len(events)
        oldest = end - MOST_WAITING
        first = next((at for lane, _, _, at in self._recent if at == lane.held and at > oldest), end)
        settled = first - self._taken
        self._events = events[settled:]
        self._taken += settled
        return events[:settled]

    def take_all(self) -> list[Event]:
        """The rest, when no record follows."""
        for lane in self._lanes.values():
            self._retire(lane)
        return self.take()

    # Sessions

    def lane(self, session: str) -> Lane:
        """The lane of a session. The one used longest ago makes room where there are too many."""
        lane = self._lanes.get(session)
        return lane if lane is not None and lane is self._latest else self.lane_for(Origin(session))

    def lane_for(self, origin: Origin) -> Lane:
        """The lane of one agent's run in a session, for formats that tell agents apart."""
        if self._latest.origin is origin:
            return self._latest
        key = _key(origin)
        lane = self._lanes.pop(key, None)
        if lane is None:
            lane = Lane(origin)
            if len(self._lanes) >= MOST_LANES:
                self._retire(self._lanes.pop(next(iter(self._lanes))))
        self._lanes[key] = self._latest = lane
        return lane

    def lane_of(self, record_id: str) -> Lane | None:
        """The session of a recent response, or of a request that is still open."""
        recent = (lane for lane, record, _, _ in reversed(self._recent) if record == record_id)
        return next(recent, None) or next((lane for lane in self._lanes.values() if lane.asks(record_id)), None)

    def end_session(self, lane: Lane, *, complete: bool = True) -> None:
        """No record of this session follows, whichever agent's."""
        session = lane.origin.session
        for one in [lane, *(other for other in self._lanes.values() if other.origin.session == session)]:
            self._retire(one)
            self.forget(one)
        self._events.append(SessionEnd(origin=lane.origin, complete=complete))

    def forget(self, lane: Lane) -> None:
        """Nothing of this session is waiting for anything."""
        self._lanes.pop(_key(lane.origin), None)
        self._latest = _NO_LANE

    def _retire(self, lane: Lane) -> None:
        if lane.pending:
            self._imply(lane)
        lane.held = None
        self._give_up(lane, len(lane.open))

    # Turns

    def request(self, lane: Lane, record_id: str | None, request: Request) -> None:
        """A request was made. Its turn is `self.turns`, where its response is expected."""
        self.requests += 1
        if lane.pending:
            self._imply(lane)
        lane.held = None
        lane.open.append((record_id, request))
        if len(lane.open) > MOST_OPEN:
            self._give_up(lane, 1)

    def answered(self, lane: Lane, parent: str | None) -> Request | None:
        """The request that the response now read belongs to, with the turn's own index."""
        waiting = lane.open
        if not waiting:
            return None
        request = waiting.pop()[1] if len(waiting) == 1 else lane.take_request(parent)
        return request if request.turn == self.turns else replace(request, turn=self.turns)

    def exchanged(self, lane: Lane, request: Request) -> Request:
        """A request of turn `self.turns` whose response is recorded with it, as it is told."""
        if lane.open or lane.pending:
            self.request(lane, None, request)
            return self.answered(lane, None) or request
        self.requests += 1
        lane.held = None
        return request

    def response(self, lane: Lane, record_id: str | None, response: Response) -> None:
        """A response was given. Its turn is `self.turns`, its request what `answered` returned."""
        events = self._events
        if response.request is not None:
            events.append(response.request)
        lane.held = at = self._taken + len(events)
        lane.turn = turn = self.turns
        self.turns = turn + 1
        self._recent.append((lane, record_id, turn, at))
        events.append(response)
        calls = response.tool_calls
        if calls:
            events.extend(calls)
            for call in calls:
                lane.remember(call)
        if lane.pending:
            self._join_pending(lane)

    def add(self, event: Event) -> None:
        """Anything else that was recorded."""
        self._events.append(event)

    # Calls and results with records of their own

    def call(self, lane: Lane, parent: str | None, call: ToolCall) -> None:
        """A call was recorded apart from its response. Its turn is found here, and its id where it has none (`""`)."""
        known = lane.calls.get(call.call_id)
        turn = self._turn_of(lane, parent)
        if known is not None and self._tells_again(lane, known, call, turn):
            self._claim(known, call)
        elif turn is not None:
            self._add_call(lane, turn, call)
        elif self._grows(lane) and not lane.asks(parent):
            self._join(lane, call)
        elif lane.open:
            lane.pending.append(call)
        elif lane.turn is not None:
            self._add_call(lane, lane.turn, call)
        else:
            lane.pending.append(call)
            self._imply(lane)

    def result(self, lane: Lane, result: ToolResult) -> None:
        """A result was recorded. Its turn is that of its call."""
        known = lane.find_call(result.call_id, result.name)
        if known is not None:
            call, known.answered = known.call, True
            result = replace(result, turn=call.turn, call_id=call.call_id, name=result.name or call.name, call=call)
        elif lane.pending:
            lane.pending.append(result)
            return
        else:
            result = replace(result, turn=lane.turn)
        self._events.append(result)

    def _tells_again(self, lane: Lane, known: Known, call: ToolCall, turn: int | None) -> bool:
        """Whether a record is about a call already met, rather than a new one that reuses an id of an earlier turn."""
        if turn is None and self._grows(lane):
            turn = lane.turn
        # Some writers name the record before as the parent, whatever it is, so a link is no proof against this.
        return known.repeated_by(call, turn) or (not known.claimed and same_call(known.call, call))

    def _claim(self, known: Known, call: ToolCall) -> None:
        """The record repeats a call that is told already, so it is dropped."""
        known.claimed = True
        if not same_call(known.call, call):
            message = f"call `{call.call_id}` is recorded twice, with a different name or different arguments"
            self._warn(call, "disagreeing-call", message, f"the one of the response is used: `{known.call.name}`")

    def _turn_of(self, lane: Lane, record_id: str | None) -> int | None:
        """The turn of a recent response, by the id of its record."""
        if record_id is None:
            return None
        of_lane = (entry for entry in reversed(self._recent) if entry[0] is lane)
        return next((turn for _, record, turn, _ in of_lane if record == record_id), None)

    def _grows(self, lane: Lane) -> bool:
        """Whether a call can still become part of the lane's latest turn."""
        held = lane.held
        if held is None or held <= self._taken + len(self._events) - MOST_WAITING:
            return False
        return self._recent[-1][3] == held or any(at == held for _, _, _, at in reversed(self._recent))

    def _add_call(self, lane: Lane, turn: int, call: ToolCall) -> None:
        """A call of a turn that is known: part of it as long as it grows, later on an event with the turn's index."""
        if turn == lane.turn and self._grows(lane):
            self._join(lane, call)
            return
        call = replace(call, turn=turn, call_id=call.call_id or f"t{turn}.late{len(lane.calls)}")
        lane.remember(call, claimed=True)
        self._events.append(call)

    def _join(self, lane: Lane, call: ToolCall) -> None:
        """Make a call part of the latest turn, behind the calls that are there."""
        known = lane.calls.get(call.call_id)
        if known is not None and known.repeated_by(call, lane.turn):
            self._claim(known, call)
            return
        if lane.implied == lane.turn and lane.has_results:
            # What follows a result was decided after it: one more turn of which only calls were recorded.
            lane.pending.append(call)
            self._imply(lane)
            return
        assert lane.held is not None
        at = lane.held - self._taken
        response = self._events[at]
        assert isinstance(response, Response)
        number = len(response.tool_calls)
        call_id = call.call_id or f"t{lane.turn}.{number}"
        if known is not None and known.call.turn == lane.turn:
            self._warn(call, "duplicate-call-id", SHARED_ID.format(call_id))
            call_id = f"t{lane.turn}.{number}"
        call = replace(call, turn=lane.turn, call_id=call_id)
        lane.remember(call, claimed=True)
        self._events[at] = replace(response, tool_calls=(*response.tool_calls, call))
        self._events.insert(at + 1 + number, call)
        self._shift(lane.held)
        if number >= _MOST_CALLS:
            lane.held = None

    def _shift(self, start: int) -> None:
        """An event was put in behind `start`."""
        for place in range(len(self._recent) - 1, -1, -1):
            lane, record, turn, at = self._recent[place]
            if at <= start:
                return  # they are in order, and mostly the latest grows
            self._recent[place] = (lane, record, turn, at + 1)
            if lane.held == at:
                lane.held = at + 1

    def _join_pending(self, lane: Lane) -> None:
        waiting, lane.pending = lane.pending, []
        for event in waiting:
            if isinstance(event, ToolCall):
                self._join(lane, event)
            else:
                self.result(lane, event)

    def _imply(self, lane: Lane) -> None:
        """Calls were recorded, and no response that issued them: there must have been one."""
        request, turn = self.answered(lane, None), self.turns
        waiting, lane.pending = lane.pending, []
        first = waiting[0]
        response = Response(origin=first.origin, turn=turn, at=first.at, source=first.source, request=request)
        if type(first) is ToolCall:  # nearly always, and mostly the only one
            call = replace(first, turn=turn, call_id=first.call_id or f"t{turn}.0")
            self.response(lane, None, replace(response, tool_calls=(call,)))
            lane.calls[call.call_id].claimed = True
            del waiting[0]
        else:
            self.response(lane, None, response)
        if waiting:
            lane.pending = waiting
            self._join_pending(lane)
        lane.implied = turn

    def _warn(self, call: ToolCall, code: str, message: str, help: str | None = None) -> None:
        line = call.source.line if call.source is not None and call.source.line is not None else 1
        file = self._problems.file
        span = Span(file, line, 1, line, 2)
        self._problems.warn(Diagnostic(code=code, message=message, severity="warning", file=file, span=span, help=help))

    def _give_up(self, lane: Lane, count: int) -> None:
        """The oldest requests have waited too long, or nothing follows: they stay without a response."""
        self._events.extend(request for _, request in lane.open[:count])
        del lane.open[:count]
        self.unanswered += count


_NO_LANE = Lane(Origin(""))


def _key(origin: Origin) -> str | Origin:
    """A session's own lane is found by its name alone, for that is asked at every record."""
    return origin.session if origin.run is None and origin.agent is None else origin
