"""Reads Bylaw JSONL that was written by hand: turns, sessions and calls are worked out as for any other format."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from bylaw.model.events import Deferred, Event, Origin, Request, Response, ToolCall, Usage
from bylaw.model.source import Locator
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import NamelessCall, calls_in, read_arguments, read_content
from bylaw.traces.assembly.session_buffer import SHARED_ID, Lane
from bylaw.traces.assembly.sessions import Survey, carries_history, sessions_of
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bylaw.header import Completeness, SecondLook, is_header
from bylaw.traces.formats.bylaw.lines import (
    PLAIN,
    DraftRequestLine,
    DraftResponseLine,
    Header,
    Line,
    Origins,
    SessionStartLine,
    ToolCallLine,
    ToolResultLine,
    TraceEndLine,
    TraceStartLine,
    call_of,
    decode_draft,
    messages_in,
    result_of,
)
from bylaw.traces.formats.record import assembly_notes, report
from bylaw.traces.records.jsontext import REFUSED, decode_list
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems, locator


class DraftedReader:
    def __init__(self, problems: Problems, header: Header, survey: Survey) -> None:
        self.header: dict[str, Any] = header.header
        self.complete = header.complete is True
        self._completeness = Completeness(header)
        self._problems = problems
        self._second_look = SecondLook(problems)
        self._assembler = Assembler(problems)
        self._sessions = sessions_of(survey, self._assembler)
        self._origins = Origins()
        self._begun = False
        self._notes: list[str] = []

    def read(self, block: Block) -> list[Event]:
        for raw, place in block:
            try:
                line = decode_draft(raw)
            except REFUSED:
                if self._is_first_line(raw) or self._completeness.excuses(raw):
                    continue
                again = self._second_look.line(place, raw, decode_draft)
                if again is None:
                    continue
                line, raw = again
            self._line(line, raw, place)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self.complete = self._completeness.is_complete
        return self._assembler.take_all()

    def notes(self) -> list[str]:
        told = (
            self._completeness.notes(),
            self._sessions.notes(),
            assembly_notes(self._assembler),
            self._second_look.notes(),
        )
        return [*self._notes, *(note for notes in told for note in notes)]

    def _is_first_line(self, raw: bytes) -> bool:
        if self._begun or not raw.strip():
            return False
        self._begun = True
        return is_header(raw)

    def _line(self, line: Any, raw: bytes, place: int | Place) -> None:
        if isinstance(line, TraceStartLine):
            self._completeness.begins(line)
            return
        if isinstance(line, TraceEndLine):
            self._completeness.ends(line)
            self.header = line.header or self.header
            self._notes.extend(line.notes)
            self._problems.carry(line.problems, line.skipped)
            return
        if line.session is not None:
            self._sessions = self._sessions.by_id(line.session)
        if isinstance(line, SessionStartLine):
            self._sessions.begins(line.session)
        elif isinstance(line, DraftRequestLine) and self._starts_afresh(line, raw):
            self._sessions.begin_afresh()
        lane = self._sessions.find(line.session, None)
        origin, source = self._origins.of(line, lane.origin.session), self._source(line, place)
        if isinstance(line, DraftRequestLine):
            self._request(line, raw, lane, origin, source)
        elif isinstance(line, DraftResponseLine):
            self._response(line, raw, place, lane, origin, source)
        elif isinstance(line, ToolCallLine):
            self._assembler.call(lane, None, _call(line, origin, source))
        elif isinstance(line, ToolResultLine):
            self._assembler.result(lane, result_of(line, origin, source))
        else:
            self._assembler.add(PLAIN[type(line)](line, origin, source))

    def _starts_afresh(self, line: DraftRequestLine, raw: bytes) -> bool:
        return self._sessions.watch_history and carries_history(line.messages, raw, messages_in) is False

    def _request(self, line: DraftRequestLine, raw: bytes, lane: Lane, origin: Origin, source: Locator | None) -> None:
        request = Request(
            origin=origin,
            turn=self._assembler.turns,
            at=line.at,
            source=source,
            model=line.model,
            held_messages=None if line.messages is None else Deferred(messages_in, raw),
            params=line.params,
            held_tools=None if line.tools is UNSET else Deferred(decode_list, line.tools),
            metadata=line.metadata,
        )
        self._assembler.request(lane, None, request)

    def _response(
        self,
        line: DraftResponseLine,
        raw: bytes,
        place: int | Place,
        lane: Lane,
        origin: Origin,
        source: Locator | None,
    ) -> None:
        assembler, turn = self._assembler, self._assembler.turns
        content, text, uses = read_content(line.content)
        calls: tuple[ToolCall, ...] = ()
        if uses is not None and line.calls is UNSET:
            try:
                calls, shared = calls_in(uses, origin, turn, line.at, source)
            except NamelessCall as call:
                path = ("content", (content or []).index(call.block))
                report(self._problems, place, raw, path, code="wrong-type", message=str(call))
                return
            for call_id in shared:
                self._warn(raw, place, "content", "duplicate-call-id", SHARED_ID.format(call_id))
        response = Response(
            origin=origin,
            turn=turn,
            at=line.at,
            source=source,
            request=assembler.answered(lane, None),
            model=line.model,
            content=content,
            text=text if line.text is UNSET else line.text,
            tool_calls=calls,
            stop_reason=line.stop_reason,
            latency_ms=line.latency_ms,
            usage=self._usage(line, raw, place),
        )
        assembler.response(lane, None, response)

    def _usage(self, line: DraftResponseLine, raw: bytes, place: int | Place) -> Usage | None:
        usage, unread = read_usage(line.usage, line.model)
        for message in unread:
            self._warn(raw, place, "usage", "bad-usage", message)
        return usage

    def _source(self, line: Line, place: int | Place) -> Locator | None:
        return locator(self._problems.file, place) if line.source is UNSET else line.source

    def _warn(self, raw: bytes, place: int | Place, key: str, code: str, message: str) -> None:
        report(self._problems, place, raw, (key,), code=code, message=message, severity="warning")


def _call(line: ToolCallLine, origin: Origin, source: Locator | None) -> ToolCall:
    if line.raw_arguments is None:
        line.arguments, line.raw_arguments = read_arguments(line.arguments)
    line.turn = None  # worked out by the assembler
    return call_of(line, origin, source)
