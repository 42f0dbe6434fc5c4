"""The state of one session while it is read: open requests, the latest turn, and recent calls."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.events import Event, Origin, Request, SessionEnd, ToolCall, ToolResult
from bylaw.model.values import json_equal

SHARED_ID = "two different calls of this response have the id `{}`"
GUESSED = "nothing says which of several calls of `{}` this result answers: the first that waits is taken"
GUESSED_HELP = "results are paired in the order of the calls, and rules about the tool are inconclusive"
MOST_SESSIONS = 1 << 14
"""sessions that are buffered at once"""
MOST_CALLS = 256
"""calls of one session that a result or a late record can still refer to"""


class KnownCall(Struct, eq=False):
    """A call of the session, with data from later records about it."""

    call: ToolCall
    claimed: bool = False
    """it has a record of its own"""
    answered: bool = False

    def repeated_by(self, call: ToolCall, turn: int | None) -> bool:
        """Whether a record with this id and turn repeats the same call.

        One record may disagree with a content block: it is that call, recorded wrongly. If two records disagree,
        either may be wrong, so neither is dropped.
        """
        return self.call.turn == turn and (not self.claimed or same_call(self.call, call))


class SessionBuffer:
    """The state of one session. INVARIANT: bounded, however long the session is."""

    __slots__ = ("calls", "has_results", "held", "implied", "lost_turns", "open", "origin", "pending", "turn")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.open: list[tuple[str | None, Request]] = []
        """requests without a response, oldest first, each with the id of its record"""
        self.turn: int | None = None
        """index of the latest turn"""
        self.held: int | None = None
        """position of the latest response in the assembler's events, as long as calls may still join it"""
        self.implied: int | None = None
        """a turn whose response was not recorded: only its calls show that there was one"""
        self.pending: list[ToolCall | ToolResult] = []
        """recorded between a request and its response"""
        self.calls: dict[str, KnownCall] = {}
        self.lost_turns: tuple[int | None, ...] = ()
        """the turns of calls without a result that were dropped, since there were too many; of several turns, two"""
        self.has_results = False
        """whether a call of the latest turn was answered"""

    @property
    def used(self) -> bool:
        return self.turn is not None or bool(self.open) or bool(self.pending)

    def take_request(self, parent: str | None) -> Request:
        """Remove one of several open requests: the one that a response names as its parent, else the latest."""
        at = next((i for i, (record, _) in enumerate(self.open) if record == parent), -1) if parent is not None else -1
        return self.open.pop(at)[1]

    def has_open_request(self, record_id: str | None) -> bool:
        return record_id is not None and any(record == record_id for record, _ in self.open)

    def remember(self, call: ToolCall, *, claimed: bool = False) -> None:
        dropped = _insert(self.calls, call.call_id, KnownCall(call, claimed))
        if dropped is not None and not dropped.answered and dropped.call.turn not in self.lost_turns:
            self.lost_turns = (*self.lost_turns, dropped.call.turn)[:2]

    def find_call(self, call_id: str | None, name: str | None, arguments: Any = None) -> KnownCall | None:
        """The call that a result answers: by id, else an unanswered one of that name (any, without a name).

        Of several, it is the first with the same arguments, if the result repeats them, else the first.
        """
        known = None if call_id is None else self.calls.get(call_id)
        if known is not None or (call_id is not None and (name is None or self.lost_turns)):
            return known  # an id that is not known may be that of a call that was dropped
        waiting = self._waiting(name)
        if arguments is not None:
            same = (known for known in waiting if same_value(given_arguments(known.call), arguments))
            return next(same, None) or next(iter(waiting), None)
        return next(iter(waiting), None)

    def turn_without_call(self, call_id: str | None) -> int | None:
        """The turn of a result whose call was not found: the latest, unless a dropped call may have that id."""
        if call_id is None or not self.lost_turns:
            return self.turn
        return self.lost_turns[0] if len(self.lost_turns) == 1 else None

    def is_guess(self, found: KnownCall, name: str | None, arguments: Any) -> bool:
        """Whether the result could as well answer another call, with other arguments, or one that was dropped."""
        if arguments is not None and same_value(given_arguments(found.call), arguments):
            return False
        others = (other.call for other in self._waiting(name) if other is not found)
        return bool(self.lost_turns) or any(not same_call(found.call, other) for other in others)

    def _waiting(self, name: str | None) -> list[KnownCall]:
        calls = self.calls.values()
        return [known for known in calls if not known.answered and (name is None or known.call.name == name)]


class CallLinks:
    """Links results to the calls they answer, by id. INVARIANT: bounded, however long the trace is."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, ToolCall]] = {}

    def linked(self, event: Event) -> Event:
        """The event, with its call if it is a result. Must be called with each event, in order."""
        session = event.origin.session
        if type(event) is ToolCall:
            calls = self._sessions.pop(session, None)
            if calls is None:
                calls = {}
                if len(self._sessions) >= MOST_SESSIONS:
                    del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = calls
            _insert(calls, event.call_id, event)
        elif type(event) is ToolResult:
            known = self._sessions.get(session)
            call = None if known is None or event.call_id is None else known.get(event.call_id)
            return event if call is event.call else replace(event, call=call)
        elif type(event) is SessionEnd:
            self._sessions.pop(session, None)
        return event


def _insert(calls: dict[str, Any], call_id: str, call: Any) -> Any:
    """Returns the call that had to be dropped for it."""
    calls.pop(call_id, None)  # of two calls with one id, the later is the youngest
    calls[call_id] = call
    return calls.pop(next(iter(calls))) if len(calls) > MOST_CALLS else None


def same_call(left: ToolCall, right: ToolCall) -> bool:
    return left.name == right.name and same_value(given_arguments(left), given_arguments(right))


def given_arguments(call: ToolCall) -> Any:
    """The parsed arguments, or the recorded text if it could not be parsed."""
    return call.raw_arguments if call.arguments is None else call.arguments


def same_value(left: Any, right: Any) -> bool:
    try:
        return json_equal(left, right)
    except RecursionError:  # compare deeply nested values as text
        return msgspec.json.encode(left) == msgspec.json.encode(right)
