"""Immutable events of a trace, and a recorded run in memory.

A turn is recorded as `Request`, `Response`, and one `ToolCall` or `ToolResult` for each call and each result, in the
order in which they were recorded: a call may follow the result of another. A response knows its request and all its
calls, so it *is* the turn for every rule that looks at turns; a result knows its call. What a format cannot say is
`None` (absent), which is not the same as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

from msgspec import UNSET, Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.messages import MessageSlice


class Locator(Struct, frozen=True, gc=False):
    """Where an event was recorded: a file and a line, or an element's path or span id inside it."""

    file: str
    line: int | None = None
    """1-based line, where the format has lines"""
    item: str | None = None
    """path or span id inside the file, where lines do not tell"""

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.item) if part is not None)


class Origin(Struct, frozen=True):
    """Who an event belongs to. Events of one run share one object."""

    session: str
    run: str | None = None
    parent_run: str | None = None
    agent: str | None = None
    parent_agent: str | None = None


class Deferred(Struct, eq=False):
    """JSON that is decoded only when a rule looks at it. Most rules never look at a request's messages.

    `decode` is called once, with `held` where there is something to hold: `Deferred(decode, raw)`. Readers make two
    of these a turn, so this is a struct and needs no closure.
    """

    decode: Callable[..., Any] | None
    held: Any = UNSET

    def get(self) -> Any:
        if self.decode is not None:
            self.held, self.decode = self.decode() if self.held is UNSET else self.decode(self.held), None
        return self.held

    def message_slice(self) -> MessageSlice | None:
        """The decoded messages, as a slice of a list that other requests may share; None if this is no list."""
        found = self.get()
        return (found, 0, len(found)) if isinstance(found, list) else None

    def __eq__(self, other: object) -> bool:
        return bool(self.get() == (other.get() if isinstance(other, Deferred) else other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Deferred({self.get()!r})"


class Usage(Struct, frozen=True):
    """Tokens of one response. Cached tokens are inside the input and reasoning tokens inside the output, always."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    """read from a cache; part of `input_tokens`"""
    cache_write_tokens: int | None = None
    """written to a cache; part of `input_tokens`"""
    reasoning_tokens: int | None = None
    """part of `output_tokens`"""
    recorded: dict[str, Any] | None = None
    """the mapping as it was recorded, under the provider's own names"""

    @property
    def total(self) -> int | None:
        """Input and output together, or as much of it as is known; None where nothing is."""
        if self.input_tokens is None and self.output_tokens is None:
            return self._recorded_total
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def is_whole(self) -> bool:
        """Whether `total` is all of it."""
        known = self.input_tokens is not None and self.output_tokens is not None
        return known or (self.input_tokens is self.output_tokens is None and self._recorded_total is not None)

    @property
    def _recorded_total(self) -> int | None:
        total = (self.recorded or {}).get("total_tokens")
        return total if type(total) is int and total >= 0 else None


class Event(Struct, frozen=True, kw_only=True):
    """What all events share."""

    kind: ClassVar[str] = "event"

    origin: Origin
    turn: int | None = None
    """0-based index of the turn in the whole trace"""
    at: str | float | None = None
    """when: RFC 3339 text or seconds since 1970, as recorded"""
    source: Locator | None = None

    @property
    def time(self) -> float | None:
        """Seconds since 1970, or None where no readable time was recorded."""
        return seconds(self.at)


class SessionStart(Event, frozen=True, kw_only=True):
    """A session begins. Optional: the first event of an unseen session begins it too."""

    kind: ClassVar[str] = "session_start"

    metadata: dict[str, Any] | None = None


class SessionEnd(Event, frozen=True, kw_only=True):
    """No event of this session follows."""

    kind: ClassVar[str] = "session_end"

    complete: bool = True
    """False where the recording of this session stopped early"""


class Request(Event, frozen=True, kw_only=True):
    """A request to the model."""

    kind: ClassVar[str] = "request"

    model: str | None = None
    held_messages: list[Any] | Deferred | None = None
    """the whole input as recorded: system, user, assistant and tool messages"""
    params: dict[str, Any] | None = None
    held_tools: list[Any] | Deferred | None = None
    metadata: dict[str, Any] | None = None
    held_others: dict[str, Any] | Deferred | None = None
    """whatever else it was recorded with, by key"""

    @property
    def others(self) -> dict[str, Any] | None:
        held = self.held_others
        return held.get() if isinstance(held, Deferred) else held

    @property
    def messages(self) -> list[Any] | None:
        held = self.held_messages
        return held.get() if isinstance(held, Deferred) else held

    @property
    def message_slice(self) -> MessageSlice | None:
        """The same as `messages`, but without a copy: a slice of a list that other requests may share."""
        held = self.held_messages
        if isinstance(held, Deferred):
            return held.message_slice()
        return None if held is None else (held, 0, len(held))

    @property
    def tools(self) -> list[Any] | None:
        held = self.held_tools
        return held.get() if isinstance(held, Deferred) else held


class ToolCall(Event, frozen=True, kw_only=True):
    """A call the model issued."""

    kind: ClassVar[str] = "tool_call"

    name: str
    namespace: str | None = None
    """the server or toolset the tool belongs to, where the format says so"""
    call_id: str
    arguments: Any = None
    """parsed arguments; None where nothing readable was recorded"""
    raw_arguments: str | None = None
    """the text the arguments were recorded as, where they were recorded as text"""
    group: str | int | None = None
    """calls with the same group were issued in parallel"""
    unordered: tuple[str, ...] = ()
    """tools whose results may have come before this call or after it: the order is not recorded; `*`: any tool"""


class ToolResult(Event, frozen=True, kw_only=True):
    """The result of a call."""

    kind: ClassVar[str] = "tool_result"

    call_id: str | None = None
    name: str | None = None
    content: Any = None
    is_error: bool | None = None
    latency_ms: float | None = None
    call: ToolCall | None = None
    """the call it answers, where that is known"""
    is_guessed: bool = False
    """nothing recorded says that it answers `call`, rather than another one: no rule may rely on it"""

    @property
    def certain_call(self) -> ToolCall | None:
        return None if self.is_guessed else self.call


class Response(Event, frozen=True, kw_only=True):
    """The model's response, with the calls it issued: the turn."""

    kind: ClassVar[str] = "response"

    request: Request | None = None
    model: str | None = None
    content: list[Any] | None = None
    """`{type: text, text}`, `{type: tool_use, id, name, input}`, `{type: thinking, text}`; None: not recorded"""
    text: str | None = None
    """the text blocks joined by newlines; None = not recorded, `""` = recorded and empty"""
    tool_calls: tuple[ToolCall, ...] = ()
    calls_follow: bool = False
    """a guard received the response alone: its calls are not known yet"""
    unread: tuple[str, ...] = ()
    """tools of which it may hold calls that could not be read; `*`: calls of any tool, or text"""
    stop_reason: str | None = None
    latency_ms: float | None = None
    usage: Usage | None = None


class Message(Event, frozen=True, kw_only=True):
    """Something said outside any request, where a format records that."""

    kind: ClassVar[str] = "message"

    role: str
    content: Any = None


class Annotation(Event, frozen=True, kw_only=True):
    """Anything else a format records: errors, approvals, hand-offs, harness events. Kept, never judged by itself."""

    kind: ClassVar[str] = "annotation"

    label: str
    data: Any = None


def seconds(at: str | float | None) -> float | None:
    """A recorded time as seconds since 1970; a time without a zone is UTC."""
    if not isinstance(at, str):
        return at
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class Turn(Struct, frozen=True):
    """A request with its response."""

    index: int
    session: str
    request: Request | None
    response: Response

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.response.tool_calls


class Trace(Struct, frozen=True, kw_only=True):
    """Satisfies `ports.TraceSource`, so a trace in memory is checked exactly like one that streams from a file."""

    name: str
    """the file name, or another name that the caller chose"""
    format: str | None = None
    header: dict[str, Any] = {}
    events: tuple[Event, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()
    """the assumptions of the reader, such as how sessions were distinguished"""
    problems: tuple[Diagnostic, ...] = ()
    """warnings from reading; bad records that `skip_bad` passed over"""
    skipped: int = 0
    """how many bad records were passed over"""

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def turns(self) -> tuple[Turn, ...]:
        responses = (event for event in self.events if isinstance(event, Response))
        return tuple(
            Turn(i if r.turn is None else r.turn, r.origin.session, r.request, r) for i, r in enumerate(responses)
        )

    @property
    def sessions(self) -> tuple[str, ...]:
        """Session ids in the order of their first event."""
        return tuple(dict.fromkeys(event.origin.session for event in self.events))
