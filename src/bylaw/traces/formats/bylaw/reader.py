"""Opens Bylaw JSONL: reads the header, picks the reader, and reads handwritten files.

`canonical` reads the files that Bylaw wrote. In handwritten ones turns, sessions and calls are worked out as for any
other format.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from bylaw.model.events import Deferred, Event, Locator, Origin, Request, Response, ToolCall
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import (
    UNREAD_BLOCK,
    NamelessCall,
    calls_in,
    read_arguments,
    read_content,
    unread_kinds,
)
from bylaw.traces.assembly.session_buffer import SHARED_ID, SessionBuffer
from bylaw.traces.assembly.sessions import UNCLEAR, UNCLEAR_HELP, Survey, sessions_of
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bylaw.canonical import CanonicalReader, LineReader, UnknownKeys, is_header
from bylaw.traces.formats.bylaw.lines import (
    EVENT_OF,
    HINTS,
    VERSION,
    HandwrittenRequestLine,
    HandwrittenResponseLine,
    Header,
    SessionStartLine,
    ToolCallLine,
    ToolResultLine,
    TraceEndLine,
    TraceStartLine,
    call_of,
    decode_handwritten,
    messages_in,
    result_of,
    summarize,
)
from bylaw.traces.formats.reader import OpenedFile, Reader, unanswered_notes
from bylaw.traces.formats.record import explain
from bylaw.traces.records.jsontext import REFUSED, decode_list, decode_quickly
from bylaw.traces.records.layout import Records
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems

_decode = msgspec.json.Decoder(Header).decode


def reader(opened: OpenedFile) -> Reader:
    header = header_of(opened)
    if header.resolved:
        return CanonicalReader(opened.problems, header)
    return HandwrittenReader(opened.problems, header, opened.survey(summarize, HINTS))


def header_of(opened: OpenedFile) -> Header:
    """The header of the file. A file without one counts as handwritten. Raises InputError."""
    ignored = Problems(opened.source.name, skip_bad=True)
    for block in Records(opened.source, opened.layout, ignored).blocks():
        for raw, place in block:
            if raw.strip():
                return _read_header(raw, place, opened.problems) if is_header(raw) else Header(VERSION)
    return Header(VERSION)


def _read_header(raw: bytes, place: int | Place, problems: Problems) -> Header:
    strict = Problems(problems.file)  # without a valid header, the lines that follow cannot be interpreted
    version = decode_quickly(raw)["bylaw"]
    if version != VERSION:
        message, help = f"trace version `{version}` is not supported", f"this Bylaw reads `{VERSION}`"
        strict.report(place, raw, ("bylaw",), code="unsupported-version", message=message, help=help)
        strict.settle()
    try:
        return _decode(UnknownKeys(problems).remove(place, raw))
    except REFUSED as error:
        message, path = explain(str(error))
        strict.report(place, raw, path, code="wrong-type", message=message)
    strict.settle()
    raise AssertionError("a header that is refused is reported")


# Handwritten files


class HandwrittenReader(LineReader):
    def __init__(self, problems: Problems, header: Header, survey: Survey) -> None:
        super().__init__(problems, header)
        self._assembler = Assembler(problems)
        self._sessions = sessions_of(survey, self._assembler)
        self._is_unclear = False

    def read(self, block: Block) -> list[Event]:
        for raw, place in block:
            try:
                line = decode_handwritten(raw)
            except REFUSED:
                again = self._decode_again(place, raw, decode_handwritten)
                if again is None:
                    continue
                line, raw = again
            self._read_line(line, raw, place)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        super().finish()
        return self._assembler.take_all()

    def _own_notes(self) -> list[str]:
        return [*self._sessions.notes(), *unanswered_notes(self._assembler)]

    def _read_line(self, line: Any, raw: bytes, place: int | Place) -> None:
        if isinstance(line, (TraceStartLine, TraceEndLine)):
            self._mark(line)
            return
        if line.session is not None:
            self._sessions = self._sessions.by_id(line.session)
        sessions, assembler = self._sessions, self._assembler
        if isinstance(line, SessionStartLine):
            sessions.begins(line.session)
        elif sessions.separates:
            self._separate(line, raw, place)
        buffer = sessions.find(line.session, None)
        origin, source = self._origins.of(line, buffer.origin.session), self._source(line, place)
        if isinstance(line, HandwrittenRequestLine):
            if line.messages and buffer.may_lack_results(raw):
                from bylaw.traces.formats.bodies import add_results_of_request

                add_results_of_request(assembler, buffer, messages_in(raw) or (), source)
            request = Request(
                origin=origin,
                turn=assembler.turns,
                at=line.at,
                source=source,
                model=line.model,
                held_messages=None if line.messages is None else Deferred(messages_in, raw),
                params=line.params,
                held_tools=None if line.tools is UNSET else Deferred(decode_list, line.tools),
                metadata=line.metadata,
                held_others=line.others,
            )
            assembler.request(buffer, None, request)
        elif isinstance(line, HandwrittenResponseLine):
            self._read_response(line, raw, place, buffer, origin, source)
        elif isinstance(line, ToolCallLine):
            if line.raw_arguments is None:
                line.arguments, line.raw_arguments = read_arguments(line.arguments)
            line.turn = None  # the assembler finds it
            assembler.call(buffer, None, call_of(line, origin, source))
        elif isinstance(line, ToolResultLine):
            assembler.result(buffer, result_of(line, origin, source))
        else:
            assembler.add(EVENT_OF[type(line)](line, origin, source))

    def _separate(self, line: Any, raw: bytes, place: int | Place) -> None:
        """Find the session of a request by its messages, and that of a result by its call."""
        sessions = self._sessions
        if isinstance(line, HandwrittenRequestLine):
            if not line.messages:
                return
            messages = msgspec.json.encode(messages_in(raw))
            if not sessions.request(messages, None) and not self._is_unclear:
                self._is_unclear = True  # once is enough
                message = UNCLEAR.format(sessions.current.origin.session)
                self._problems.warn(place, raw, ("messages",), "unclear-session", message, UNCLEAR_HELP)
        elif isinstance(line, (ToolCallLine, ToolResultLine)):
            sessions.act(None, None, line.call_id or None, is_result=isinstance(line, ToolResultLine))

    def _read_response(
        self,
        line: HandwrittenResponseLine,
        raw: bytes,
        place: int | Place,
        buffer: SessionBuffer,
        origin: Origin,
        source: Locator | None,
    ) -> None:
        assembler, turn = self._assembler, self._assembler.turns
        content, text, uses = read_content(line.content)
        calls: tuple[ToolCall, ...] = ()
        shared: list[tuple[str, str]] = []
        if uses is not None and line.calls is UNSET:
            try:
                calls, shared = calls_in(uses, origin, turn, line.at, source)
            except NamelessCall as call:
                path = ("content", (content or []).index(call.block))
                self._problems.report(place, raw, path, code="wrong-type", message=str(call))
                return
            for call_id, _ in shared:
                self._problems.warn(place, raw, ("content",), "duplicate-call-id", SHARED_ID.format(call_id))
        for kind in unread_kinds(content):
            self._problems.warn(place, raw, ("content",), "unread-content", UNREAD_BLOCK.format(kind))
        usage, unread = read_usage(line.usage, line.model)
        for message in unread:
            self._problems.warn(place, raw, ("usage",), "bad-usage", message)
        response = Response(
            origin=origin,
            turn=turn,
            at=line.at,
            source=source,
            request=assembler.answered(buffer, None),
            model=line.model,
            content=content,
            text=text if line.text is UNSET else line.text,
            tool_calls=calls,
            unread=line.unread,
            stop_reason=line.stop_reason,
            latency_ms=line.latency_ms,
            usage=usage,
        )
        assembler.response(buffer, None, response, shared=shared)
        if self._sessions.separates:
            self._sessions.response(response.text if content is None else content, None, line.stop_reason)
