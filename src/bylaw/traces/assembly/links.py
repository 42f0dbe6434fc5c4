"""Results find the calls they answer, by id, in the order in which both are told."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.model.events import Event, SessionEnd, ToolCall, ToolResult
from bylaw.traces.assembly.assembler import MOST_LANES
from bylaw.traces.assembly.lane import MOST_CALLS


class Links:
    """The recent calls of each session. INVARIANT: bounded, however long the trace is."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, ToolCall]] = {}

    def linked(self, event: Event) -> Event:
        """The event as it is told: a result with its call, anything else as it stands. Asked of each, in order."""
        if type(event) is ToolCall:
            self._remember(event)
        elif type(event) is ToolResult:
            call = self._find(event)
            return event if call is event.call else replace(event, call=call)
        elif type(event) is SessionEnd:
            self._sessions.pop(event.origin.session, None)
        return event

    def _remember(self, call: ToolCall) -> None:
        calls = self._sessions.pop(call.origin.session, None)
        if calls is None:
            calls = {}
            if len(self._sessions) >= MOST_LANES:
                del self._sessions[next(iter(self._sessions))]
        self._sessions[call.origin.session] = calls
        calls.pop(call.call_id, None)  # of two calls with one id the later is meant, and it is the younger
        calls[call.call_id] = call
        if len(calls) > MOST_CALLS:
            del calls[next(iter(calls))]

    def _find(self, result: ToolResult) -> ToolCall | None:
        calls = self._sessions.get(result.origin.session)
        return None if calls is None or result.call_id is None else calls.get(result.call_id)
