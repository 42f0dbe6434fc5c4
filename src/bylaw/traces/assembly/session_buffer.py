"""The state of one session while it is read: open requests, the latest turn, and recent calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from bylaw.model.canonical import json_equal
from bylaw.model.events import Event, Origin, Request, SessionEnd, ToolCall, ToolResult

SHARED_ID = "two different calls of this response have the id `{}`"
GUESSED = "nothing says which of several calls of `{}` this result answers: the first without a result is taken"
GUESSED_HELP = "results are paired in the order of the calls, and rules about the tool are inconclusive"
OTHER_NAME = "this result of `{}` has the id of a call of `{}`"
OTHER_NAME_HELP = "it is not known which name is right, so rules about either tool are inconclusive"
WITHOUT_CALL = "the call that this result{} answers is not recorded"
WITHOUT_CALL_HELP = "its arguments are not known, so rules about the tool are inconclusive"
_RESULT_SIGNS = (
    b"tool_call_id", b"tool_result", b"call_output", b"oolResult", b"unctionResponse",
    b'"role":"tool"', b'"role": "tool"', b'"role":"function"', b'"role": "function"',
)  # fmt: skip
"""what the JSON of a message with a result contains, in the words of any API"""
_LATEST = 16
"""calls whose results may still be shown only by a later request"""
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
    is_guessed: bool = False
    """its result is a guess, so it may be that of another call"""
    repeated: Any = UNSET
    """its result, as a request repeated it before any record of its own"""

    def is_repeated_by(self, call: ToolCall, turn: int | None) -> bool:
        """Whether a record with this id and turn repeats the same call.

        One record may disagree with a content block: it is that call, recorded wrongly. If two records disagree,
        either may be wrong, so neither is dropped.
        """
        return self.call.turn == turn and (not self.claimed or is_same_call(self.call, call))


class SessionBuffer:
    """The state of one session. INVARIANT: bounded, however long the session is."""

    __slots__ = (
        "calls", "has_results", "held", "implied", "lost_turns", "open", "origin", "pending", "repeated", "shared",
        "turn", "unread",
    )  # fmt: skip

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
        self.shared: dict[str, tuple[str, ...]] = {}
        """an id that several calls of one response were recorded with → the ids that they have here"""
        self.repeated: dict[int, None] = {}
        """hashes of results that requests repeat, and whose ids do not tell that they were read"""
        self.unread: set[str] = set()
        """tools of which the next response may hold calls that were not recorded"""

    @property
    def used(self) -> bool:
        return self.turn is not None or bool(self.open) or bool(self.pending)

    @property
    def is_waiting(self) -> bool:
        """Whether one of the latest calls has no result."""
        left = _LATEST
        for known in reversed(self.calls.values()):
            if not known.answered:
                return True
            left -= 1
            if not left:
                break
        return False

    def may_lack_results(self, request: bytes) -> bool:
        """Whether its next request, in JSON, may show results that were not read. A quick look.

        In formats with records for results, most have one. If some have not, the session waits for them, or its latest
        answer has no calls that they could answer.
        """
        start = 0
        if self.turn is not None and not self.is_waiting:
            latest = next(reversed(self.calls.values()), None)
            if latest is not None and latest.call.turn == self.turn:
                return False
            start = max(request.rfind(b'"assistant"'), 0)
        return any(request.find(sign, start) >= 0 for sign in _RESULT_SIGNS)

    def take_request(self, parent: str | None) -> Request:
        """Remove one of several open requests: the one that a response names as its parent, else the latest."""
        at = next((i for i, (record, _) in enumerate(self.open) if record == parent), -1) if parent is not None else -1
        return self.open.pop(at)[1]

    def has_open_request(self, record_id: str | None) -> bool:
        return record_id is not None and any(record == record_id for record, _ in self.open)

    def remember(self, call: ToolCall, *, claimed: bool = False) -> None:
        if self.shared:
            self.shared.pop(call.call_id, None)  # a later call has that id now
        dropped = _insert(self.calls, call.call_id, KnownCall(call, claimed))
        if dropped is not None and not dropped.answered and dropped.call.turn not in self.lost_turns:
            self.lost_turns = (*self.lost_turns, dropped.call.turn)[:2]

    def share(self, recorded: str, own: str) -> None:
        """A call of the latest turn was recorded with the id of another one, and got its own."""
        self.shared[recorded] = (*self.shared.get(recorded, (recorded,)), own)

    def find_call(self, call_id: str | None, name: str | None, arguments: Any = None) -> KnownCall | None:
        """The call that a result answers: by id, else an unanswered one of that name (any, without a name).

        Of several, it is the first with the same arguments, if the result repeats them, else the first.
        """
        known = None if call_id is None else self.calls.get(call_id)
        if call_id is not None and (self.lost_turns if known is None else call_id not in self.shared):
            return known  # an id that is not known may be that of a call that was dropped
        waiting = self._open_calls(call_id, name)
        if call_id is not None and known is None:  # a client may have changed the ids of the latest calls
            waiting = [one for one in waiting if _is_made(one.call) or one.call.turn == self.turn]
        if arguments is not None:
            same = (known for known in waiting if is_same_value(given_arguments(known.call), arguments))
            return next(same, None) or next(iter(waiting), known)
        return next(iter(waiting), known)

    def pair(self, known: KnownCall, result: ToolResult, arguments: Any) -> ToolResult:
        """The result with its call, which is answered now. It says if that is a guess."""
        call, recorded, is_guessed = known.call, result.call_id or None, result.is_guessed
        name: str | None = result.name or call.name
        if not fits_name(call, result.name):
            is_guessed = True
        elif (recorded != call.call_id or recorded in self.shared) and not is_guessed:
            is_guessed = self._is_guess(known, recorded, result.name, arguments)
            if is_guessed and not result.name and not self._has_one_name(known, recorded):
                name = None
        known.answered, known.is_guessed = True, known.is_guessed or is_guessed
        if call.turn == self.turn:
            self.has_results = True
        found = {"turn": call.turn, "call_id": call.call_id, "name": name, "call": call, "is_guessed": is_guessed}
        return replace(result, origin=origin_beside(result.origin, call.origin), **found)

    def turn_without_call(self, call_id: str | None) -> int | None:
        """The turn of a result whose call was not found: the latest, unless a dropped call may have that id."""
        if call_id is None or not self.lost_turns:
            return self.turn
        return self.lost_turns[0] if len(self.lost_turns) == 1 else None

    def _is_guess(self, found: KnownCall, call_id: str | None, name: str | None, arguments: Any) -> bool:
        """Whether the result could as well answer another call, with other arguments, or one that is not known."""
        if arguments is not None and is_same_value(given_arguments(found.call), arguments):
            return False
        if call_id is not None and call_id not in self.shared and not _is_made(found.call):
            return True  # both were recorded with an id, and these differ
        others = (other.call for other in self._possible(found, call_id, name) if other is not found)
        return bool(self.lost_turns) or any(not is_same_call(found.call, other) for other in others)

    def _has_one_name(self, found: KnownCall, call_id: str | None) -> bool:
        """Whether all calls that a result with this id may answer are of the same tool."""
        if call_id is not None and call_id not in self.shared and not _is_made(found.call):
            return False
        return all(other.call.name == found.call.name for other in self._possible(found, call_id, None))

    def _possible(self, found: KnownCall, call_id: str | None, name: str | None) -> list[KnownCall]:
        """The calls that a result may answer. Of one answer, the last that waits is no more certain than the first."""
        beside = [known for known in self._calls_with_id(call_id, name) if known.call.turn == found.call.turn]
        return [*self._open_calls(call_id, name), *(known for known in beside if known.is_guessed)]

    def _open_calls(self, call_id: str | None, name: str | None) -> list[KnownCall]:
        return [known for known in self._calls_with_id(call_id, name) if not known.answered]

    def _calls_with_id(self, call_id: str | None, name: str | None) -> list[KnownCall]:
        """The calls that share this id, if several do, else all; of this name, if one is given."""
        own = None if call_id is None else self.shared.get(call_id)
        calls = self.calls.values() if own is None else [self.calls[one] for one in own if one in self.calls]
        return [known for known in calls if name is None or known.call.name == name]


def _is_made(call: ToolCall) -> bool:
    """Whether the id of a call was not recorded."""
    return call.call_id.startswith(f"t{call.turn}.")


class SessionBuffers:
    """The buffers of the sessions that were used last. INVARIANT: bounded, however many sessions a file has."""

    def __init__(self) -> None:
        self._buffers: dict[str | Origin, SessionBuffer] = {}
        self._latest = _NO_BUFFER
        """the buffer used last: usually the next record belongs to it too"""

    def session(self, session: str) -> SessionBuffer:
        """The buffer of a session. If there are too many, the least recently used one is closed."""
        buffer = self._buffers.get(session)
        return buffer if buffer is not None and buffer is self._latest else self.buffer_for(Origin(session))

    def buffer_for(self, origin: Origin) -> SessionBuffer:
        """The buffer of one agent's run in a session, for formats that record agents."""
        if self._latest.origin is origin:
            return self._latest
        key = _key(origin)
        buffer = self._buffers.pop(key, None)
        if buffer is None:
            buffer = SessionBuffer(origin)
            if len(self._buffers) >= MOST_SESSIONS:
                self._retire(self._buffers.pop(next(iter(self._buffers))))
        self._buffers[key] = self._latest = buffer
        return buffer

    def forget(self, buffer: SessionBuffer) -> None:
        """Drop the state of a session that has nothing pending."""
        self._buffers.pop(_key(buffer.origin), None)
        self._latest = _NO_BUFFER

    def _retire(self, buffer: SessionBuffer) -> None:
        """No record of this session follows."""
        raise NotImplementedError


_NO_BUFFER = SessionBuffer(Origin(""))


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


def fits_name(call: ToolCall, name: str | None) -> bool:
    """Whether a result with this name can be that of a call. One of them may be qualified, as in `server__tool`."""
    return not name or name == call.name or name.endswith(call.name) or call.name.endswith(name)


def is_same_call(left: ToolCall, right: ToolCall) -> bool:
    return left.name == right.name and is_same_value(given_arguments(left), given_arguments(right))


def given_arguments(call: ToolCall) -> Any:
    """The parsed arguments, or the recorded text if it could not be parsed."""
    return call.raw_arguments if call.arguments is None else call.arguments


def is_same_result(left: Any, right: Any) -> bool:
    """Whether two contents are the same, one of them perhaps wrapped in a block of text."""
    return is_same_value(_only_text(left), _only_text(right))


def _only_text(content: Any) -> Any:
    if type(content) is list and len(content) == 1 and type(content[0]) is dict and content[0].get("type") == "text":
        return content[0].get("text")
    return content


def is_same_value(left: Any, right: Any) -> bool:
    try:
        return json_equal(left, right)
    except RecursionError:  # compare deeply nested values as text
        return msgspec.json.encode(left) == msgspec.json.encode(right)


def join_unread(unread: tuple[str, ...], tools: Iterable[str]) -> tuple[str, ...]:
    """Tools of which a response may hold calls that could not be read, with more of them."""
    names = {*unread, *tools}
    return ("*",) if "*" in names else tuple(sorted(names))


def origin_beside(origin: Origin, other: Origin) -> Origin:
    """The origin of an event that names no agent, and belongs to another event."""
    return origin if origin is other or origin.run is not None or origin.agent is not None else other


def _key(origin: Origin) -> str | Origin:
    """A session without agents is found by its name alone, because this runs at every record."""
    return origin.session if origin.run is None and origin.agent is None else origin
