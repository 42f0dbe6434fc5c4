"""Reads .agentlog: one content-addressed record a line. `read` is the inner loop of `bylaw check`: it must be fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bylaw.model.events import (
    Annotation,
    Deferred,
    Event,
    Locator,
    Origin,
    Request,
    Response,
    SessionStart,
    ToolCall,
    ToolResult,
    Usage,
)
from bylaw.traces.assembly.content import (
    UNREAD_BLOCK,
    AssistantContent,
    NamelessCall,
    calls_in,
    read_arguments,
    read_content,
    results_inside,
    unread_kinds,
)
from bylaw.traces.assembly.session_buffer import SHARED_ID, SessionBuffer
from bylaw.traces.assembly.sessions import UNCLEAR, UNCLEAR_HELP, SessionsBy, sessions_of
from bylaw.traces.assembly.usage import plain_usage, read_usage
from bylaw.traces.formats.agentlog_records import (
    HINTS,
    KINDS,
    LABELS,
    NO_META,
    CallRecord,
    ChatRequest,
    ChatResponse,
    IdCheck,
    Meta,
    Metadata,
    ResponsePayload,
    ResultRecord,
    UnreadRequest,
    decode_record,
    decode_unread,
    message_pieces,
    messages_in,
    others_in,
    raw_messages_in,
    summarize,
)
from bylaw.traces.formats.reader import AssemblingReader, OpenedFile
from bylaw.traces.formats.record import decode_typed_again
from bylaw.traces.records.jsontext import REFUSED, decode_list
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, locator

_MOST_ORIGINS = 4096
_NOBODY = (None, None, None)
UNKNOWN = Meta(session_id="")
"""differs from the meta of any record whose session is known"""


class AgentlogReader(AssemblingReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        found = opened.survey(summarize, HINTS)
        self._file = opened.problems.file
        if found.sessions_by is SessionsBy.NOTHING:
            found = replace(found, sessions_by=SessionsBy.REQUESTS)
        self._sessions = sessions_of(found, self._assembler)
        self._separates = self._sessions.separates
        self._is_unclear = False
        self._by_id = found.first_session is not None
        self._by_tags = found.by_tags
        self._tag: str | int | None = None
        self._meta: Meta | None = UNKNOWN
        self._buffer = self._sessions.current
        self._origin = self._buffer.origin
        self._ids = IdCheck(opened.problems, every=opened.verify_ids)
        self._origins: dict[tuple[str | int | None, ...], Origin] = {}
        self._headed = False

    def read(self, block: Block) -> list[Event]:
        ids = self._ids if self._ids.wanted else None
        decode: Callable[[bytes], Any] = decode_unread if self._separates else decode_record
        for line, place in block:
            try:
                record = decode(line)
                if type(record) is UnreadRequest and not self._sessions.can_read(bytes(record.payload.messages)):
                    record = decode_record(line)
            except REFUSED:
                again = decode_typed_again(place, line, self._problems, decode_record, KINDS)
                if again is None:
                    continue
                record, line = again
            if ids is not None and not ids.accepts(place, line):
                continue
            kind = type(record)
            if kind is ChatRequest or kind is UnreadRequest:
                self._request(record, line, place)
            elif kind is ChatResponse:
                self._response(record, line, place)
            else:
                self._rest(record, place)
        return self._assembler.take()

    def notes(self) -> list[str]:
        return [*self._sessions.notes(), *super().notes(), *self._ids.notes()]

    def _request(self, record: ChatRequest | UnreadRequest, line: bytes, place: int | Place) -> None:
        payload, meta, record_id = record.payload, record.meta, record.id
        messages, tools = payload.messages, payload.tools
        sessions, assembler = self._sessions, self._assembler
        if self._separates:
            self._separate(record, line, place)
        buffer = self._buffer
        if buffer is not sessions.current or meta != self._meta:
            buffer = self._find(meta, record.parent if self._by_id else None)
        source = Locator(self._file, place) if type(place) is int else locator(self._file, place)
        if messages and buffer.may_lack_results(line):
            from bylaw.traces.formats.bodies import add_results_of_request

            add_results_of_request(assembler, buffer, message_pieces(line), source)
        request = Request(
            origin=self._origin,
            turn=assembler.turns,
            at=record.ts,
            source=source,
            model=payload.model,
            held_messages=None if messages is None else Deferred(messages_in, line),
            # the payload is the request itself: what it does not have, the request had not
            params=payload.params or {},
            held_tools=Deferred(decode_list, tools) if tools else [],
            metadata=payload.metadata or {},
            held_others=Deferred(others_in, line),
        )
        assembler.request(buffer, record_id, request)

    def _separate(self, record: ChatRequest | UnreadRequest, line: bytes, place: int | Place) -> None:
        """Find the session of a request by its messages, unless it names the response that it continues."""
        payload = record.payload
        if not payload.messages or (payload.params and payload.params.get("previous_response_id")):
            return
        messages = payload.messages
        raw = raw_messages_in(line) if isinstance(messages, list) else bytes(messages)
        is_certain = self._sessions.request(raw, record.parent)
        if not is_certain and not self._is_unclear:
            self._is_unclear = True  # once is enough
            message = UNCLEAR.format(self._sessions.current.origin.session)
            self._problems.warn(place, line, ("payload", "messages"), "unclear-session", message, UNCLEAR_HELP)

    def _response(self, record: ChatResponse, line: bytes, place: int | Place) -> None:
        payload, meta, parent, at = record.payload, record.meta, record.parent, record.ts
        content, text, uses = read_content(payload.content)
        if content and not (len(content) == 1 and text):
            for kind in unread_kinds(content):
                self._problems.warn(place, line, ("payload", "content"), "unread-content", UNREAD_BLOCK.format(kind))
        assembler = self._assembler
        buffer, sessions = self._buffer, self._sessions
        if buffer is not sessions.current or meta != self._meta or sessions.waiting:
            buffer = self._find(meta, parent)
        origin = self._origin
        source = Locator(self._file, place) if type(place) is int else locator(self._file, place)
        turn = assembler.turns
        calls: tuple[ToolCall, ...] = ()
        shared: list[tuple[str, str]] = []
        if uses is not None:
            try:
                calls, shared = calls_in(uses, origin, turn, at, source)
            except NamelessCall as call:
                path = ("payload", "content", (content or []).index(call.block))
                self._problems.report(place, line, path, code="wrong-type", message=str(call))
                return
            for call_id, _ in shared:
                self._problems.warn(place, line, ("payload", "content"), "duplicate-call-id", SHARED_ID.format(call_id))
        usage = plain_usage(payload.usage)
        response = Response(
            origin=origin,
            turn=turn,
            at=at,
            source=source,
            request=assembler.answered(buffer, parent),
            model=payload.model,
            content=content,
            text=text,
            tool_calls=calls,
            stop_reason=payload.stop_reason,
            latency_ms=payload.latency_ms,
            usage=self._usage(payload, line, place) if usage is None else usage,
        )
        assembler.response(buffer, record.id, response, shared=shared)
        if content and len(content) > 1:
            for result, following in results_inside(AssistantContent(content, uses or []), calls):
                event = result.event(origin, at, source)
                assembler.result(buffer, event, result.arguments, is_repeated=True)
                for later in following:
                    assembler.place_call(buffer, later.call_id, claims=False)
        if self._separates:
            sessions.response(payload.content, record.id, payload.stop_reason)

    def _usage(self, payload: ResponsePayload, line: bytes, place: int | Place) -> Usage | None:
        usage, unread = read_usage(payload.usage, payload.model)
        for message in unread:
            self._problems.warn(place, line, ("payload", "usage"), "bad-usage", message)
        return usage

    def _rest(self, record: Any, place: int | Place) -> None:
        if type(record) is Metadata:
            self._metadata(record, place)
            return
        if self._separates and isinstance(record, (CallRecord, ResultRecord)):
            call_id, is_result = record.payload.tool_call_id, type(record) is ResultRecord
            call = None if call_id is None else str(call_id)
            self._sessions.act(record.parent, record.id, call, is_result=is_result)
        buffer = self._find(record.meta, record.parent)
        self._sessions.add_record(record.id)
        if type(record) is CallRecord:
            self._call(record, buffer, place)
        elif type(record) is ResultRecord:
            self._result(record, buffer, place)
        else:
            turn = None if buffer.open else buffer.turn
            label, source = LABELS[type(record)], locator(self._file, place)
            self._assembler.add(
                Annotation(
                    origin=self._origin, turn=turn, at=record.ts, source=source, label=label, data=record.payload
                )
            )

    def _call(self, record: CallRecord, buffer: SessionBuffer, place: int | Place) -> None:
        payload = record.payload
        arguments, raw = read_arguments(payload.arguments)
        call = ToolCall(
            origin=self._origin,
            at=record.ts,
            source=locator(self._file, place),
            name=payload.tool_name,
            call_id="" if payload.tool_call_id is None else str(payload.tool_call_id),
            arguments=arguments,
            raw_arguments=raw,
        )
        self._assembler.call(buffer, record.parent, call)

    def _result(self, record: ResultRecord, buffer: SessionBuffer, place: int | Place) -> None:
        payload = record.payload
        result = ToolResult(
            origin=self._origin,
            at=record.ts,
            source=locator(self._file, place),
            call_id=None if payload.tool_call_id in (None, "") else str(payload.tool_call_id),
            name=payload.tool_name,
            content=payload.output,
            is_error=payload.is_error,
            latency_ms=payload.latency_ms,
        )
        self._assembler.result(buffer, result)

    def _metadata(self, record: Metadata, place: int | Place) -> None:
        """The first is the header. One that begins a session is its start, any other becomes an annotation."""
        payload, source = record.payload or {}, locator(self._file, place)
        is_header, self._headed = not self._headed, True
        if is_header:
            self.header = payload
        session = self._named(record.meta)
        begins = self._sessions.begins(session)
        self._find(record.meta, record.parent if self._by_id else None)
        self._sessions.add_record(record.id)
        if begins:
            self._assembler.add(SessionStart(origin=self._origin, at=record.ts, source=source, metadata=payload))
        elif not is_header:
            self._annotate(self._origin, source, "metadata", payload, record.ts)

    # The session and origin of a record

    def _find(self, meta: Meta | None, parent: str | None) -> SessionBuffer:
        """The session of a record, and of the records that follow as long as their meta is the same."""
        session = self._named(meta)
        buffer = self._buffer = self._sessions.find(session, parent)
        # If other records name a session and this one does not, its parent decides, so the next may differ.
        self._meta = UNKNOWN if self._by_id and session is None else meta
        self._origin = buffer.origin if meta is None or meta == NO_META else self._shared_origin(buffer, meta)
        return buffer

    def _named(self, meta: Meta | None) -> str | None:
        """The session that a record names. From the first such name on, names tell sessions apart."""
        if meta is None:
            return None
        name = meta.session_id
        if name is None and (tag := meta.session_tag) is not None:
            self._tag = tag if self._tag is None else self._tag
            self._by_tags = self._by_tags or tag != self._tag
            name = tag if self._by_tags else None
        if name is None:
            return None
        if not self._by_id:
            self._sessions = self._sessions.by_id(str(name))
            self._by_id, self._separates = True, False
        return str(name)

    def _shared_origin(self, buffer: SessionBuffer, meta: Meta) -> Origin:
        """The session's own origin, unless the record names an agent or run. Equal origins are shared."""
        agent = meta.agent_id if meta.agent is None else meta.agent
        who = (meta.run_id, meta.parent_run_id, agent)
        if who == _NOBODY:
            return buffer.origin
        key = (buffer.origin.session, *who)
        origin = self._origins.get(key)
        if origin is None:
            if len(self._origins) >= _MOST_ORIGINS:
                self._origins.clear()
            origin = Origin(buffer.origin.session, *(None if part is None else str(part) for part in who))
            self._origins[key] = origin
        return origin
