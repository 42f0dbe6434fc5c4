"""Tells the assembler what the spans of a session are about, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Annotation, Origin, Request, Response, ToolCall, ToolResult
from bylaw.model.source import Span as Place
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import UNREAD_BLOCK, AssistantContent, calls_in, read_content, unread_kinds
from bylaw.traces.assembly.session_buffer import SHARED_ID, SessionBuffer
from bylaw.traces.formats.chat_message import Result, read_assistant, results_in
from bylaw.traces.formats.record import MalformedRecord
from bylaw.traces.formats.spans.calls import Run, Turn, join
from bylaw.traces.formats.spans.messages import RecordedInput
from bylaw.traces.formats.spans.span import Mark, ModelCall, Span, ToolRun
from bylaw.traces.records.problems import Problems

_RESULT, _ANSWER, _CALL, _REST, _LATE = range(5)
"""what comes first of what happened at the same moment"""


class SessionSpans:
    """One session."""

    def __init__(self, assembler: Assembler, problems: Problems) -> None:
        self._assembler = assembler
        self._problems = problems
        self._turns: list[Turn] = []
        self._runs: list[Run] = []
        self._runs_by_id: dict[str, list[Run]] = {}
        self._told: set[str] = set()
        """model's spans, by their ids"""
        self._latest: dict[Origin, str] = {}
        """each agent's latest of these"""
        self._early: dict[str, list[Run]] = {}
        """runs that ended before the answer that issued them began: their clock is another"""
        self._heard: dict[str, Result] | None = None
        """what models were told of calls, by the id of the call"""

    def assemble(self, spans: list[tuple[Span, Origin]]) -> None:
        steps: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        for number, (when, span, origin) in enumerate(_dated(spans)):
            about = span.about
            if type(about) is ModelCall:
                turn = Turn(span, when, about, self._said(span, about), origin)
                self._turns.append(turn)
                steps.append((when, _ANSWER, number, self._answer, turn))
            elif type(about) is ToolRun:
                run = Run(span, when, about, origin)
                self._runs.append(run)
                ended = when if span.end is None else max(span.end, when)
                steps.append((when, _CALL, number, self._call, run))
                steps.append((ended, _RESULT if ended > when else _LATE, number, self._result, run))
            else:
                steps.append((when, _REST, number, self._rest, (span, origin)))
        for run in join(self._turns, self._runs):
            message = f"call `{run.tool.call_id}` is recorded twice, with different arguments"
            self._warn(run.span, "disagreeing-call", message, help="those of the model's answer are used")
        for run in self._runs:
            if run.tool.call_id is not None:
                self._runs_by_id.setdefault(run.tool.call_id, []).append(run)
        steps.sort()  # no two are equal in their first three parts
        for _, _, _, step, what in steps:
            step(what)

    # A model's span

    def _said(self, span: Span, call: ModelCall) -> AssistantContent | None:
        if call.answer is None:
            return None
        try:
            return read_assistant(call.answer)
        except MalformedRecord as error:
            self._warn(span, "wrong-type", f"the answer of this span is not read: {error.message}")
            return None

    def _answer(self, turn: Turn) -> None:
        span, call, assembler = turn.span, turn.call, self._assembler
        buffer = assembler.buffer_for(turn.origin)
        self._results_in(call.messages, buffer, span)
        request = Request(
            origin=turn.origin,
            turn=assembler.turns,
            at=span.at,
            source=span.source,
            model=call.model,
            held_messages=None if call.messages is None else call.messages.deferred(),
            params=call.params,
            held_tools=call.tools,
        )
        self._told.add(span.id)
        if turn.said is None and span.error is not None:
            assembler.add(request)
            assembler.unanswered += 1
            self._error(span, turn.origin)
            return
        assembler.request(buffer, span.id, request)
        assembler.response(buffer, span.id, self._response(turn, assembler.answered(buffer, span.id)))
        self._latest[turn.origin] = span.id
        for run in self._early.pop(span.id, ()):
            self._tell_result(run)

    def _response(self, turn: Turn, request: Request | None) -> Response:
        span, told, at = turn.span, turn.said, self._assembler.turns
        calls: tuple[ToolCall, ...] = ()
        content: list[Any] | None = None
        text: str | None = None
        if told is not None:
            calls, shared = calls_in(told.uses, turn.origin, at, span.at, span.source, told.arguments)
            content, text, _ = read_content(told.blocks)
            for call_id in shared:
                self._warn(span, "duplicate-call-id", SHARED_ID.format(call_id))
            for kind in unread_kinds(content):
                self._warn(span, "unread-content", UNREAD_BLOCK.format(kind))
        return Response(
            origin=turn.origin,
            turn=at,
            at=span.at,
            source=span.source,
            request=request,
            model=turn.call.model,
            content=content,
            text=text,
            tool_calls=calls,
            stop_reason=turn.call.stop_reason,
            latency_ms=span.latency_ms,
            usage=turn.call.usage,
        )

    def _results_in(self, asked: RecordedInput | None, buffer: SessionBuffer, span: Span) -> None:
        """What the model is told of calls that nothing has told of yet."""
        wanted = {call_id for call_id, known in buffer.calls.items() if not known.answered} if buffer.calls else None
        if not wanted or asked is None:
            return
        found, nameless = asked.results(wanted)
        for result in found:
            self._tell_message(result, buffer, span)
        for result in nameless:
            if buffer.find_call(None, result.name) is not None:
                self._tell_message(result, buffer, span)

    def _tell_message(self, result: Result, buffer: SessionBuffer, span: Span) -> None:
        waiting = [run for run in self._runs_by_id.get(result.call_id or "", ()) if not run.told]
        if waiting:
            self._tell_result(waiting[0])
            return
        self._assembler.result(
            buffer,
            ToolResult(
                origin=buffer.origin,
                at=span.at,
                source=span.source,
                call_id=result.call_id,
                name=result.name,
                content=result.content,
                is_error=result.is_error,
            ),
        )

    # A tool's span

    def _call(self, run: Run) -> None:
        """A call that no answer tells of belongs to the agent's latest answer before it."""
        if run.turn is not None:
            return
        span, tool = run.span, run.tool
        tool.call_id = tool.call_id or span.id
        call = ToolCall(
            origin=run.origin,
            at=span.at,
            source=span.source,
            name=tool.name,
            namespace=tool.namespace,
            call_id=tool.call_id,
            arguments=tool.arguments,
            raw_arguments=tool.raw_arguments,
        )
        self._assembler.call(self._assembler.buffer_for(run.origin), self._latest.get(run.origin), call)

    def _result(self, run: Run) -> None:
        tool = run.tool
        if run.told or (run.span.end is None and tool.result is UNSET and not tool.is_error):
            return  # told already, or the recording stopped before the tool did
        if run.turn is not None and run.turn.span.id not in self._told:
            self._early.setdefault(run.turn.span.id, []).append(run)
            return
        self._tell_result(run)

    def _tell_result(self, run: Run) -> None:
        run.told = True
        span, tool = run.span, run.tool
        heard = self._heard_of(tool.call_id) if tool.result is UNSET else None
        content = tool.result if heard is None else heard.content
        origin = run.origin if run.turn is None else run.turn.origin
        self._assembler.result(
            self._assembler.buffer_for(origin),
            ToolResult(
                origin=origin,
                at=span.ended_at,
                source=span.source,
                call_id=tool.call_id,
                name=tool.name,
                content=span.error if content is UNSET else content,
                is_error=heard.is_error if heard is not None and tool.is_error is None else tool.is_error,
                latency_ms=span.latency_ms,
            ),
        )

    def _heard_of(self, call_id: str | None) -> Result | None:
        if self._heard is None:
            asked = [turn.call.messages for turn in self._turns if turn.call.messages is not None]
            told = (message for one in asked for message in one.messages() or ())
            found = (result for message in told for result in results_in(message))
            self._heard = {result.call_id: result for result in found if result.call_id is not None}
        return None if call_id is None else self._heard.get(call_id)

    # Any other

    def _rest(self, what: tuple[Span, Origin]) -> None:
        span, origin = what
        if isinstance(span.about, Mark):
            mark = span.about
            self._assembler.add(
                Annotation(origin=origin, at=span.at, source=span.source, label=mark.label, data=mark.data)
            )
        if span.error is not None:
            self._error(span, origin)

    def _error(self, span: Span, origin: Origin) -> None:
        data = {"span": span.name, "message": span.error}
        self._assembler.add(Annotation(origin=origin, at=span.at, source=span.source, label="error", data=data))

    def _warn(self, span: Span, code: str, message: str, help: str | None = None) -> None:
        file, line = span.source.file, span.source.line or 1
        place = Place(file, line, 1, line, 2)
        self._problems.add(Diagnostic(code=code, message=message, severity="warning", file=file, span=place, help=help))


def _dated(spans: list[tuple[Span, Origin]]) -> list[tuple[float, Span, Origin]]:
    """Each span with its time, in its order; one without a time happened when the one recorded before it did."""
    last = min((span.start for span, _ in spans if span.start is not None), default=0.0)
    found = []
    for span, origin in spans:
        last = last if span.start is None else span.start
        found.append((last, span, origin))
    return sorted(found, key=lambda item: item[0])
