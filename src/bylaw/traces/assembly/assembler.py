"""Builds events, in the order of turns, from records in the order of the file.

A turn is emitted as Request, Response, the ToolCalls in the response, and then calls and results in the order of their
records. A call that is both in the response and a record stands where the record does if a result came before it: the
model asked for it at once, and it ran after that result. Formats record calls apart from the response that issued them,
so a turn may still grow until the next request or response of its session: its response learns of these calls too.
Events wait in `_events` from the oldest such turn on; `take` returns those before it. So the order is that of the file,
even where sessions interleave, and does not depend on how often `take` is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from bylaw.model.events import Event, Request, Response, SessionEnd, ToolCall, ToolResult
from bylaw.traces.assembly.content import (
    EVERYTHING,
    MISSING_CALLS,
    MISSING_HELP,
    WRITTEN_CALL,
    WRITTEN_HELP,
    is_written_call,
    stops_for_tools,
    unread_kinds,
)
from bylaw.traces.assembly.session_buffer import (
    GUESSED,
    GUESSED_HELP,
    OTHER_NAME,
    OTHER_NAME_HELP,
    SHARED_ID,
    WITHOUT_CALL,
    WITHOUT_CALL_HELP,
    KnownCall,
    SessionBuffer,
    SessionBuffers,
    fits_name,
    is_same_call,
    is_same_result,
    join_unread,
    origin_beside,
)
from bylaw.traces.records.problems import Problems

MOST_HELD = 64
"""a turn stops growing after this many later turns, in any session"""
MOST_OPEN = 16
"""requests of one session that may wait for a response at the same time"""
MOST_WAITING = 10_000
"""a turn also stops growing after this many events"""
_MOST_CALLS = 1000
"""calls that may join one turn"""


class Assembler(SessionBuffers):
    def __init__(self, problems: Problems) -> None:
        super().__init__()
        self.turns = 0
        """responses so far: the index of the next turn"""
        self.requests = 0
        self.unanswered = 0
        self.has_unordered = False
        """whether the order of a call and a result was unknown anywhere"""
        self.has_guess = False
        """whether nothing said which of several calls a result answers"""
        self.has_orphan = False
        """whether a result answers no call that is recorded"""
        self._problems = problems
        self._events: list[Event] = []
        self._taken = 0
        """number of events that `take` has returned"""
        self._recent: deque[tuple[SessionBuffer, str | None, int, int]] = deque(maxlen=MOST_HELD)
        """the latest turns: buffer, id of the response's record, turn index, position of the response in all events"""
        self._bare: dict[int, tuple[str, str]] = {}
        """turns whose model stopped to call tools or wrote a call as text, while no call is known yet: what to tell"""

    def take(self) -> list[Event]:
        """The events that have become final since the last call."""
        events = self._events
        end = self._taken + len(events)
        oldest = end - MOST_WAITING
        first = next((at for buffer, _, _, at in self._recent if at == buffer.held and at > oldest), end)
        settled = first - self._taken
        self._events = events[settled:]
        self._taken += settled
        return self._mark_missing_calls(events[:settled]) if self._bare else events[:settled]

    def take_all(self) -> list[Event]:
        """The remaining events, when no record follows."""
        for buffer in self._buffers.values():
            self._retire(buffer)
        return self.take()

    def _mark_missing_calls(self, events: list[Event]) -> list[Event]:
        """Final events; a response whose calls are nowhere tells that rules cannot be decided."""
        for at, event in enumerate(events):
            if type(event) is Response and event.turn in self._bare:
                message, help = self._bare.pop(event.turn)
                if not event.tool_calls:
                    self._problems.warn_of(event.source, "unread-content", message, help)
                    events[at] = replace(event, unread=EVERYTHING)
        return events

    # Sessions

    def buffer_of_record(self, record_id: str) -> SessionBuffer | None:
        """The session of a recent response, or of a request that is still open."""
        recent = (buffer for buffer, record, _, _ in reversed(self._recent) if record == record_id)
        return next(recent, None) or next(
            (buffer for buffer in self._buffers.values() if buffer.has_open_request(record_id)), None
        )

    def end_session(self, buffer: SessionBuffer, *, complete: bool = True, alone: bool = False) -> None:
        """No record of this session follows, from any of its agents. `alone`: it has one buffer for all agents."""
        session = buffer.origin.session
        others = () if alone else (other for other in self._buffers.values() if other.origin.session == session)
        for one in [buffer, *others]:
            self._retire(one)
            self.forget(one)
        self._events.append(SessionEnd(origin=buffer.origin, complete=complete))

    def _retire(self, buffer: SessionBuffer) -> None:
        if buffer.pending:
            self._imply(buffer)
        buffer.held = None
        self._give_up(buffer, len(buffer.open))

    # Turns

    def request(self, buffer: SessionBuffer, record_id: str | None, request: Request) -> None:
        """Add a request. Its turn is `self.turns`, where its response is expected."""
        self.requests += 1
        if buffer.pending:
            self._imply(buffer)
        buffer.held = None
        buffer.open.append((record_id, request))
        if len(buffer.open) > MOST_OPEN:
            self._give_up(buffer, 1)

    def take_back(self, buffer: SessionBuffer) -> None:
        """Remove the latest request, which has no response yet: what follows repeats it."""
        if buffer.open:
            buffer.open.pop()
            self.requests -= 1

    def answered(self, buffer: SessionBuffer, parent: str | None) -> Request | None:
        """The request that the current response answers, with the index of the turn."""
        waiting = buffer.open
        if not waiting:
            return None
        request = waiting.pop()[1] if len(waiting) == 1 else buffer.take_request(parent)
        return request if request.turn == self.turns else replace(request, turn=self.turns)

    def exchanged(self, buffer: SessionBuffer, request: Request) -> Request:
        """Add a request of turn `self.turns` that is recorded together with its response; returns it as emitted."""
        if buffer.open or buffer.pending:
            self.request(buffer, None, request)
            return self.answered(buffer, None) or request
        self.requests += 1
        buffer.held = None
        return request

    def response(
        self,
        buffer: SessionBuffer,
        record_id: str | None,
        response: Response,
        *,
        shared: Sequence[tuple[str, str]] = (),
        is_checked: bool = False,
    ) -> None:
        """Add a response. Its turn is `self.turns`, its request is what `answered` returned.

        `shared`: ids that several of its calls were recorded with, and the ids that these have instead. `is_checked`:
        blocks that cannot be read were looked for already.
        """
        events = self._events
        if response.request is not None:
            events.append(response.request)
        if not is_checked and response.content and unread_kinds(response.content):
            response = replace(response, unread=EVERYTHING)
        if buffer.unread:
            response = replace(response, unread=join_unread(response.unread, buffer.unread))
            buffer.unread = set()
        buffer.held = at = self._taken + len(events)
        buffer.turn = turn = self.turns
        buffer.has_results = False
        self.turns = turn + 1
        self._recent.append((buffer, record_id, turn, at))
        events.append(response)
        calls = response.tool_calls
        if calls:
            events.extend(calls)
            for call in calls:
                buffer.remember(call)
            for recorded, own in shared:
                buffer.share(recorded, own)
        elif EVERYTHING[0] not in response.unread:
            if stops_for_tools(response.stop_reason):
                self._bare[turn] = (MISSING_CALLS, MISSING_HELP)
            elif is_written_call(response.text):
                self._bare[turn] = (WRITTEN_CALL, WRITTEN_HELP)
        if buffer.pending:
            self._join_pending(buffer)

    def add(self, event: Event) -> None:
        """Add any other event."""
        self._events.append(event)

    # Calls and results with records of their own

    def call(self, buffer: SessionBuffer, parent: str | None, call: ToolCall) -> None:
        """Add a call that has its own record. Finds its turn, and makes an id if it has none (`""`)."""
        known = buffer.calls.get(call.call_id)
        turn = self._turn_of(buffer, parent)
        if known is not None and self._repeats(buffer, known, call, turn):
            self._claim(buffer, known, call)
        elif turn is not None:
            self._add_call(buffer, turn, call)
        elif self._grows(buffer) and not buffer.has_open_request(parent):
            self._join(buffer, call)
        elif buffer.open:
            buffer.pending.append(call)
        elif buffer.turn is not None:
            self._add_call(buffer, buffer.turn, call)
        else:
            buffer.pending.append(call)
            self._imply(buffer)

    def result(
        self, buffer: SessionBuffer, result: ToolResult, arguments: Any = None, *, is_repeated: bool = False
    ) -> None:
        """Add a result. Its turn is that of its call.

        `arguments`: those of the call, in formats that repeat them. `is_repeated`: a request shows it, so a record of
        its own may follow.
        """
        call_id, was_guessed = result.call_id or None, result.is_guessed
        known = buffer.find_call(call_id, result.name, arguments)
        if known is not None:
            if is_repeated:
                known.repeated = result.content
            elif known.repeated is not UNSET and is_same_result(known.repeated, result.content):
                known.repeated = UNSET
                return
            result = buffer.pair(known, result, arguments)
            if result.is_guessed and not was_guessed:
                self._guess(buffer, known.call, result)
        elif buffer.pending:
            buffer.pending.append(result)
            return
        else:
            result = replace(result, call_id=call_id, turn=buffer.turn_without_call(call_id))
            if not buffer.lost_turns:  # a tool was called, and no recorded call is the one that this answers
                if not self.has_orphan:  # once for the whole file
                    self.has_orphan = True
                    of = "" if result.name is None else f" of `{result.name}`"
                    message = WITHOUT_CALL.format(of)
                    self._problems.warn_of(result.source, "result-without-call", message, WITHOUT_CALL_HELP)
                self.lack_call(buffer, result.name or EVERYTHING[0])
        self._events.append(result)

    def paired_result(self, buffer: SessionBuffer, known: KnownCall, result: ToolResult) -> None:
        """Add a result that holds its call already."""
        known.answered = True
        if result.turn == buffer.turn:
            buffer.has_results = True
        self._events.append(result)

    def _repeats(self, buffer: SessionBuffer, known: KnownCall, call: ToolCall, turn: int | None) -> bool:
        """Whether a record repeats a known call, rather than being a new one that reuses an earlier turn's id."""
        if turn is None and self._grows(buffer):
            turn = buffer.turn
        # Some writers always name the previous record as the parent, so a link does not prove a new call.
        return known.is_repeated_by(call, turn) or (not known.claimed and is_same_call(known.call, call))

    def place_call(self, buffer: SessionBuffer, call_id: str, *, claims: bool = True) -> None:
        """A call of the latest response runs now, after the results so far. `claims`: a record of its own says so."""
        known = buffer.calls.get(call_id)
        if known is not None and not known.claimed:
            known.claimed = claims
            self._place(buffer, known)

    def _place(self, buffer: SessionBuffer, known: KnownCall) -> None:
        call = known.call
        if not buffer.has_results or known.answered or call.turn != buffer.turn or not self._grows(buffer):
            return
        assert buffer.held is not None
        events, first = self._events, buffer.held - self._taken
        at = len(events) - 1
        while at > first and events[at] is not call:
            at -= 1
        if at > first:
            events.append(events.pop(at))
            self._shift(self._taken + at)

    def _claim(self, buffer: SessionBuffer, known: KnownCall, call: ToolCall) -> None:
        """Drop a record that repeats a known call."""
        if not known.claimed:
            known.claimed = True
            self._place(buffer, known)
        if not is_same_call(known.call, call):
            message = f"call `{call.call_id}` is recorded twice, with a different name or different arguments"
            help = f"the one in the response is used, `{known.call.name}`, and rules about either tool are inconclusive"
            self._problems.warn_of(call.source, "disagreeing-call", message, help)
            # nobody knows which of the two is right: the response tells, or the second is a call too
            if known.call.turn == buffer.turn and self._grows(buffer):
                self._mark_unread(buffer, known.call.name, call.name)
            else:
                own = f"{call.call_id}.again{len(buffer.calls)}"
                self._events.append(replace(call, turn=known.call.turn, call_id=own))

    def _mark_unread(self, buffer: SessionBuffer, *tools: str) -> None:
        """The latest response, which still grows, tells that rules about these tools cannot be decided."""
        assert buffer.held is not None
        at = buffer.held - self._taken
        response = self._events[at]
        assert isinstance(response, Response)
        self._events[at] = replace(response, unread=join_unread(response.unread, tools))

    def _guess(self, buffer: SessionBuffer, call: ToolCall, result: ToolResult) -> None:
        """Nothing says that a result answers this call, and not another one: its pairing is a guess."""
        if not fits_name(call, result.name):
            self._problems.warn_of(
                result.source, "disagreeing-call", OTHER_NAME.format(result.name, call.name), OTHER_NAME_HELP
            )
            self.lack_call(buffer, result.name or EVERYTHING[0])
        elif not self.has_guess:  # once for the whole file
            self.has_guess = True
            self._problems.warn_of(call.source, "guessed-call", GUESSED.format(call.name), GUESSED_HELP)
        self.lack_call(buffer, call.name)

    def lack_call(self, buffer: SessionBuffer, tool: str) -> None:
        """A call of this tool was made, `*` for any tool, which could not be read: the latest response tells it."""
        if self._grows(buffer):
            self._mark_unread(buffer, tool)
        else:
            buffer.unread.add(tool)

    def _turn_of(self, buffer: SessionBuffer, record_id: str | None) -> int | None:
        """The turn of a recent response, by the id of its record."""
        if record_id is None:
            return None
        of_buffer = (entry for entry in reversed(self._recent) if entry[0] is buffer)
        return next((turn for _, record, turn, _ in of_buffer if record == record_id), None)

    def _grows(self, buffer: SessionBuffer) -> bool:
        """Whether a call can still become part of the session's latest turn."""
        held = buffer.held
        if held is None or held <= self._taken + len(self._events) - MOST_WAITING:
            return False
        return self._recent[-1][3] == held or any(at == held for _, _, _, at in reversed(self._recent))

    def _add_call(self, buffer: SessionBuffer, turn: int, call: ToolCall) -> None:
        """Add a call to a known turn: as part of its response while it grows, later as a separate event."""
        if turn == buffer.turn and self._grows(buffer):
            self._join(buffer, call)
            return
        call = replace(call, turn=turn, call_id=call.call_id or f"t{turn}.late{len(buffer.calls)}")
        self._bare.pop(turn, None)
        buffer.remember(call, claimed=True)
        self._events.append(call)

    def _join(self, buffer: SessionBuffer, call: ToolCall) -> None:
        """Make a call part of the latest turn. Its response lists it, and it stands where it was recorded."""
        known = buffer.calls.get(call.call_id)
        if known is not None and known.is_repeated_by(call, buffer.turn):
            self._claim(buffer, known, call)
            return
        if buffer.implied == buffer.turn and buffer.has_results:
            # A call after a result was decided after it, so it starts another turn without a recorded response.
            buffer.pending.append(call)
            self._imply(buffer)
            return
        assert buffer.held is not None
        at = buffer.held - self._taken
        response = self._events[at]
        assert isinstance(response, Response)
        number = len(response.tool_calls)
        call_id = call.call_id or f"t{buffer.turn}.{number}"
        if known is not None and known.call.turn == buffer.turn:
            self._problems.warn_of(call.source, "duplicate-call-id", SHARED_ID.format(call_id))
            recorded, call_id = call_id, f"t{buffer.turn}.{number}"
            buffer.share(recorded, call_id)
        origin = origin_beside(call.origin, response.origin)
        call = replace(call, origin=origin, turn=buffer.turn, call_id=call_id)
        buffer.remember(call, claimed=True)
        self._events[at] = replace(response, tool_calls=(*response.tool_calls, call))
        self._events.append(call)
        if number >= _MOST_CALLS:
            buffer.held = None

    def _shift(self, start: int) -> None:
        """The event at position `start` was moved to the end."""
        for place in range(len(self._recent) - 1, -1, -1):
            buffer, record, turn, at = self._recent[place]
            if at <= start:
                return  # positions ascend, and usually the latest turn grows
            self._recent[place] = (buffer, record, turn, at - 1)
            if buffer.held == at:
                buffer.held = at - 1

    def _join_pending(self, buffer: SessionBuffer) -> None:
        waiting, buffer.pending = buffer.pending, []
        for event in waiting:
            if isinstance(event, ToolCall):
                self._join(buffer, event)
            else:
                self.result(buffer, event)

    def _imply(self, buffer: SessionBuffer) -> None:
        """Add an empty response for calls whose response was not recorded."""
        request, turn = self.answered(buffer, None), self.turns
        waiting, buffer.pending = buffer.pending, []
        first = waiting[0]
        response = Response(origin=first.origin, turn=turn, at=first.at, source=first.source, request=request)
        if type(first) is ToolCall:  # the common case, and usually the only item
            call = replace(first, turn=turn, call_id=first.call_id or f"t{turn}.0")
            self.response(buffer, None, replace(response, tool_calls=(call,)))
            buffer.calls[call.call_id].claimed = True
            del waiting[0]
        else:
            self.response(buffer, None, response)
        if waiting:
            buffer.pending = waiting
            self._join_pending(buffer)
        buffer.implied = turn

    def _give_up(self, buffer: SessionBuffer, count: int) -> None:
        """Emit the oldest requests without a response: they waited too long, or nothing follows."""
        self._events.extend(request for _, request in buffer.open[:count])
        del buffer.open[:count]
        self.unanswered += count
