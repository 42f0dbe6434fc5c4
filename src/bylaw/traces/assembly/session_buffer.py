"""One session while it is being read: its open requests, its turn that may still grow, and its recent calls.

Results find the calls they answer, by id, in the order in which both are told.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.events import Event, Origin, Request, SessionEnd, ToolCall, ToolResult
from bylaw.model.values import json_equal

SHARED_ID = "two different calls of this response have the id `{}`"
MOST_LANES = 1 << 14
"""sessions that are buffered at once"""
MOST_CALLS = 256
"""calls of one session that a result or a late record can still find"""


class Known(Struct, eq=False):
    """A call that was met, and what has been said about it since."""

    call: ToolCall
    claimed: bool = False
    """it has a record of its own"""
    answered: bool = False

    def repeated_by(self, call: ToolCall, turn: int | None) -> bool:
        """Whether a record with this id, of this turn, is the same call once more.

        One record may disagree with a content block: it is that call, recorded wrongly. Of two records that disagree
        nobody knows which is wrong, so neither is dropped.
        """
        return self.call.turn == turn and (not self.claimed or same_call(self.call, call))


class Lane:
    """The state of one session. INVARIANT: bounded, however long the session is."""

    __slots__ = ("calls", "held", "implied", "open", "origin", "pending", "turn")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.open: list[tuple[str | None, Request]] = []
        """requests without a response, oldest first, each with the id of its record"""
        self.turn: int | None = None
        """index of the latest turn"""
        self.held: int | None = None
        """where the latest response stands in the assembler's events, as long as calls may still join it"""
        self.implied: int | None = None
        """a turn whose response was never recorded: its calls alone show that there was one"""
        self.pending: list[ToolCall | ToolResult] = []
        """recorded between a request and its response"""
        self.calls: dict[str, Known] = {}

    @property
    def used(self) -> bool:
        return self.turn is not None or bool(self.open) or bool(self.pending)

    @property
    def has_results(self) -> bool:
        """Whether a call of the latest turn was answered."""
        return any(known.answered and known.call.turn == self.turn for known in reversed(self.calls.values()))

    def take_request(self, parent: str | None) -> Request:
        """One of several open requests: the one a response names as its parent, else the latest."""
        at = next((i for i, (record, _) in enumerate(self.open) if record == parent), -1) if parent is not None else -1
        return self.open.pop(at)[1]

    def asks(self, record_id: str | None) -> bool:
        """Whether an open request has this record id."""
        return record_id is not None and any(record == record_id for record, _ in self.open)

    def remember(self, call: ToolCall, *, claimed: bool = False) -> None:
        calls = self.calls
        if call.call_id in calls:
            del calls[call.call_id]  # of two calls with one id the later is meant, and it is the younger
        calls[call.call_id] = Known(call, claimed)
        if len(calls) > MOST_CALLS:
            del calls[next(iter(calls))]

    def find_call(self, call_id: str | None, name: str | None) -> Known | None:
        """The call that a result answers: by id, else the first unanswered one of that name (any, without one)."""
        known = None if call_id is None else self.calls.get(call_id)
        if known is not None or (call_id is not None and name is None):
            return known
        waiting = (known for known in self.calls.values() if not known.answered)
        return next((known for known in waiting if name is None or known.call.name == name), None)


def same_call(left: ToolCall, right: ToolCall) -> bool:
    return left.name == right.name and alike(_told(left), _told(right))


def alike(left: Any, right: Any) -> bool:
    try:
        return json_equal(left, right)
    except RecursionError:  # arguments nested that deeply are compared as text
        return msgspec.json.encode(left) == msgspec.json.encode(right)


def _told(call: ToolCall) -> Any:
    return call.raw_arguments if call.arguments is None else call.arguments


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
