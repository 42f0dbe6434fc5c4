"""Writes Bylaw JSONL, one event at a time. Events are read back as they were written, with their sources.

Events become numbered lines with their links; every format carries these lines in some form. A response names its
request and its calls. How it does depends on which of them have a line of their own, so a response waits until that is
known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Any, Literal, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bylaw.model.events import (
    Annotation,
    Deferred,
    Event,
    Locator,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
)
from bylaw.model.messages import MessageSlice, shared_count
from bylaw.traces.assembly.content import read_content
from bylaw.traces.assembly.conversation import Prefix
from bylaw.traces.export import open_compressed
from bylaw.traces.formats.bylaw.canonical import MOST_COPIED, MOST_UNLINKED
from bylaw.traces.formats.bylaw.lines import (
    MOST_FOLLOWED,
    VERSION,
    AnnotationLine,
    Header,
    Line,
    LocatorLine,
    MessageLine,
    RequestLine,
    ResponseLine,
    SessionEndLine,
    SessionStartLine,
    SharedMessages,
    ToolCallLine,
    ToolResultLine,
    TraceEndLine,
    UsageLine,
)
from bylaw.traces.records.jsontext import REFUSED, decode_list

# What each agent's latest request showed: the next one is written only from where it differs. A conversation of n turns
# holds its first message n times. Written as references to earlier lines, it is stored once.


_MOST_BRANCHES = 8
"""requests of one agent that the next one may continue, since a user may go to and fro between branches"""
_split = msgspec.json.Decoder(list[Raw]).decode


class _WrittenMessages(Struct, eq=False):
    """The messages of a request that was written."""

    number: int
    """its line …"""
    order: int
    """… and how many requests were written before it"""
    held: list[Any] | Deferred | None = None
    keys: list[int] | None = None
    """the hash of each message; None until a later request needs it"""
    tools: int | None = None
    """the hash of its tools"""


class Histories:
    """INVARIANT: bounded. A line refers at most MOST_FOLLOWED requests back, which is how many a reader keeps, and all
    lines together make a reader copy at most MOST_COPIED messages."""

    def __init__(self) -> None:
        self._latest: dict[Origin, list[_WrittenMessages]] = {}
        """the latest request of each branch of an agent's conversation, the newest last"""
        self._written = 0
        self._copied = 0
        """messages that a reader copies where conversations branch"""

    def shorten(self, line: RequestLine, request: Request, number: int) -> None:
        """Write the messages and tools of a request as references, as far as an earlier line has them."""
        self._written += 1
        known = self._latest.pop(request.origin, [])
        recent = [one for one in known if self._written - one.order < MOST_FOLLOWED]
        newest = recent[-1] if recent else None
        shown = _WrittenMessages(number, self._written, request.held_messages)
        now = _shared_slice(shown.held)
        if now is None or not self._continue(line, now, recent):
            self._compare(line, shown, newest)
        branches = [] if now is None else [one for one in recent if _is_other_list(one.held, now)]
        if line.tools is not UNSET:
            shown.tools = hash(bytes(line.tools))
            if newest is not None and newest.tools == shown.tools:
                line.tools, line.tools_of = UNSET, newest.number
        self._latest[request.origin] = [*branches[1 - _MOST_BRANCHES :], shown]
        if len(self._latest) > MOST_FOLLOWED:
            del self._latest[next(iter(self._latest))]

    def _continue(self, line: RequestLine, now: MessageSlice, recent: list[_WrittenMessages]) -> bool:
        """Refer to the request that is known to share most messages; False if none shares any."""
        messages, start, end = now
        best, shared, length = None, 0, 0
        for one in reversed(recent):
            earlier = _shared_slice(one.held)
            count = 0 if earlier is None else shared_count(earlier, now)
            if earlier is not None and count > shared:
                best, shared, length = one, count, earlier[2] - earlier[1]
                if count == length:
                    break
        if best is None or not self._may_follow(shared, length, is_newest=best is recent[-1]):
            return False
        line.follows = (best.number, shared)
        line.messages = Raw(msgspec.json.encode(messages[start + shared : end]))
        return True

    def _compare(self, line: RequestLine, shown: _WrittenMessages, before: _WrittenMessages | None) -> None:
        """Refer to the request before, up to the first message that differs."""
        parts = None if type(shown.held) is Prefix else _parts(shown.held)
        if parts is None:
            whole = decode_now(shown.held)
            line.messages = UNSET if whole is None else Raw(msgspec.json.encode(whole))
            return
        shown.keys = [hash(one) for one in parts]
        count = 0
        if before is not None:
            if before.keys is None:
                before.keys = [hash(one) for one in _parts(before.held) or ()]
            for key, known in zip(shown.keys, before.keys, strict=False):
                if key != known:
                    break
                count += 1
            count = count if self._may_follow(count, len(before.keys), is_newest=True) else 0
            if count:
                line.follows = (before.number, count)
        line.messages = Raw(b"[" + b",".join(parts[count:]) + b"]")

    def _may_follow(self, count: int, length: int, *, is_newest: bool) -> bool:
        """Whether a line may refer to so many messages of a request. Where a conversation branches, a reader copies
        them, and maybe those of the request."""
        copied = 0 if is_newest and count == length else count + length
        if self._copied + copied > MOST_COPIED:
            return False
        self._copied += copied
        return True


def _shared_slice(held: list[Any] | Deferred | None) -> MessageSlice | None:
    """The messages as a slice of a shared list, not decoded; None if requests do not share them."""
    if type(held) is SharedMessages:
        pieces, end = held.held
        return pieces, 0, end
    return held.message_slice() if type(held) is Prefix else None


def _is_other_list(held: list[Any] | Deferred | None, now: MessageSlice) -> bool:
    """Whether the messages are a slice of another shared list."""
    found = _shared_slice(held)
    return found is not None and found[0] is not now[0]


def _parts(held: list[Any] | Deferred | None) -> list[bytes] | None:
    """The JSON of each message; None if they are not a list."""
    if isinstance(held, Deferred) and held.decode is decode_list and isinstance(held.held, Raw):
        raw = bytes(held.held)
        if b"\n" not in raw:
            try:
                return [bytes(part) for part in _split(raw)]
            except REFUSED:
                return None
    if type(held) is SharedMessages:
        return held.parts()
    found = decode_now(held)
    return [msgspec.json.encode(one) for one in found] if isinstance(found, list) else None


_COPIED: dict[type[Event], tuple[type[Line], tuple[str, ...]]] = {
    Request: (RequestLine, ("model", "params", "metadata", "others")),
    Response: (ResponseLine, ("model", "content", "unread", "stop_reason", "latency_ms")),
    ToolCall: (ToolCallLine, ("name", "namespace", "call_id", "arguments", "raw_arguments", "group", "unordered")),
    ToolResult: (ToolResultLine, ("call_id", "name", "content", "is_error", "latency_ms", "is_guessed")),
    Message: (MessageLine, ("role", "content")),
    Annotation: (AnnotationLine, ("label", "data")),
    SessionStart: (SessionStartLine, ("metadata",)),
    SessionEnd: (SessionEndLine, ("complete",)),
}
"""the line of each kind of event, and the fields that are copied to it"""


def line_of(event: Event, here: Locator | None, *, with_messages: bool = True) -> Line:
    """The line of an event that will stand at `here`; None if lines do not record where they stand.

    The links of a response are left to the writer.
    """
    if type(event) not in _COPIED:
        raise TypeError(f"an event of kind `{event.kind}` cannot be written")
    kind, fields = _COPIED[type(event)]
    line = kind(**{field: getattr(event, field) for field in fields})
    if isinstance(event, Request):
        request = cast(RequestLine, line)
        request.messages = _raw(event.held_messages) if with_messages else UNSET
        request.tools = _raw(event.held_tools)
    elif isinstance(event, Response):
        response = cast(ResponseLine, line)
        response.text = UNSET if event.text == read_content(event.content)[1] else event.text
        response.usage = None if event.usage is None else UsageLine(*_values(event.usage))
    origin, source = event.origin, event.source
    line.session, line.run, line.parent_run = origin.session, origin.run, origin.parent_run
    line.agent, line.parent_agent = origin.agent, origin.parent_agent
    line.turn, line.at = event.turn, event.at
    if here is None or source != here:
        line.source = None if source is None else LocatorLine(*_values(source))
    return line


def _values(found: msgspec.Struct) -> tuple[Any, ...]:
    return msgspec.structs.astuple(found)


def _raw(value: list[Any] | Deferred | None) -> Raw | UnsetType:
    """Messages or tools as JSON."""
    if isinstance(value, Deferred) and value.decode is decode_list:
        undecoded = value.held
        if isinstance(undecoded, Raw) and b"\n" not in bytes(undecoded):
            return undecoded
    found = decode_now(value)
    return UNSET if found is None else Raw(msgspec.json.encode(found))


def decode_now(value: list[Any] | Deferred | None) -> list[Any] | None:
    """Messages or tools. If they are not decoded yet, the decoded form is not stored in the event."""
    if isinstance(value, Deferred) and value.decode is not None:
        found: list[Any] | None = value.decode() if value.held is UNSET else value.decode(value.held)
        return found
    return value.get() if isinstance(value, Deferred) else value


def are_strictly_equal(left: Any, right: Any) -> bool:
    """Strict equality: for `==` alone, 1 and true are equal."""
    return left is right or (bool(left == right) and has_same_encoding(left, right))


def has_same_encoding(left: Any, right: Any) -> bool:
    return msgspec.json.encode(left) == msgspec.json.encode(right)


class PutLine(Protocol):
    """Takes a line, with its number and its event."""

    def __call__(self, number: int, line: Line, event: Event, /) -> None: ...


class LineBuilder:
    def __init__(self, file: str | None, put: PutLine, *, histories: Histories | None) -> None:
        """`file`: the file in which each line stands at its number; None if lines are stored otherwise. `histories`
        writes the messages of requests, and refers to earlier requests where these have them; None if the format
        stores a conversation only once: then `put` writes the messages."""
        self._file = file
        self._histories = histories
        self._put = put
        self.number = 1
        """the number of the latest line; the first one is the header"""
        self._previous: Request | None = None
        """the request on the line before"""
        self._unlinked: dict[int, tuple[int, Request]] = {}
        """by identity: requests that a response can link to by line number, and that number"""
        self._held: Response | None = None
        """a response whose calls have not all been written yet"""
        self._calls: list[ToolCall] = []
        """the calls that have been written"""

    def write(self, event: Event) -> None:
        response = self._held
        if response is not None:
            call = response.tool_calls[len(self._calls)]
            if event is call or (event == call and are_strictly_equal(event.arguments, call.arguments)):
                self._calls.append(call)
                if len(self._calls) == len(response.tool_calls):
                    self.release()
                return
            self.release()
        if isinstance(event, Response) and event.tool_calls:
            self._held = event  # which of its calls follow decides how they are written
        else:
            self._write(event)

    def release(self) -> None:
        """Write the held response, then the calls that followed it; its other calls are part of its line."""
        response, calls = self._held, self._calls
        if response is None:
            return
        self._held, self._calls = None, []
        here = self._here
        line = cast(ResponseLine, line_of(response, here))
        line.request = self._link(response)
        inline = [cast(ToolCallLine, line_of(call, here)) for call in response.tool_calls[len(calls) :]]
        line.calls = [*(call.call_id for call in calls), *inline]
        self._put_next(line, response)
        for call in calls:
            self._write(call)

    def _write(self, event: Event) -> None:
        line = line_of(event, self._here, with_messages=False)
        if isinstance(event, Response):
            cast(ResponseLine, line).request = self._link(event)
        elif isinstance(event, Request) and self._histories is not None:
            self._histories.shorten(cast(RequestLine, line), event, self.number + 1)
        self._put_next(line, event)
        if isinstance(event, Request):
            self._previous = event

    def _put_next(self, line: Line, event: Event) -> None:
        self._leave_previous()
        self.number += 1
        self._put(self.number, line, event)

    @property
    def _here(self) -> Locator | None:
        return None if self._file is None else Locator(self._file, self.number + 1)

    # Links to requests; the reader follows them in the same steps

    def _link(self, response: Response) -> int | RequestLine | UnsetType | None:
        request, previous = response.request, self._previous
        follows = previous is not None and previous.origin.session == response.origin.session
        if request is None:
            return None if follows else UNSET
        if request is previous and follows:
            self._previous = None
            return UNSET
        self._leave_previous()
        if id(request) in self._unlinked:
            return self._unlinked[id(request)][0]
        return cast(RequestLine, line_of(request, self._here))

    def _leave_previous(self) -> None:
        if self._previous is not None:
            self._unlinked[id(self._previous)] = (self.number, self._previous)
            self._previous = None
            if len(self._unlinked) > MOST_UNLINKED:
                del self._unlinked[next(iter(self._unlinked))]


class TraceWriter:
    """Writes a trace while it happens. The last line marks it as complete, so a file that was cut short is noticed.

    with TraceWriter("run.jsonl.zst") as writer:
        writer.write(event)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        format: str | UnsetType | None = UNSET,
        header: dict[str, Any] | None = None,
        complete: bool | Literal["marked"] = "marked",
        file: IO[bytes] | None = None,
    ) -> None:
        """`file`: where to write, if the file at `path` is to appear only later. It is not closed."""
        self.path = os.fspath(path)
        self._file = open_compressed(self.path) if file is None else file
        self._is_own = file is None
        self._closed = False
        self._marked = complete == "marked"
        self._lines = LineBuilder(self.path, lambda number, line, event: self._put(line), histories=Histories())
        self._put(Header(VERSION, name=name, format=format, complete=complete, resolved=True, header=header or {}))

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)

    def write(self, event: Event) -> None:
        self._lines.write(event)

    def write_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.write(event)

    def flush(self) -> None:
        """Hand everything written so far to the operating system, so that it survives a crash of this process."""
        self._lines.release()
        self._file.flush()

    def close(self, *, complete: bool = True) -> None:
        self.finish(TraceEndLine(complete=complete))

    def finish(self, end: TraceEndLine) -> None:
        """Close the file, after writing values that are known only at the end. Closing it again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._lines.release()
        if self._marked or end.header or end.notes or end.problems or end.skipped:
            self._put(end)
        if self._is_own:
            self._file.close()

    def remarks(self) -> list[str]:
        return []  # this format can express everything

    def _put(self, line: object) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
