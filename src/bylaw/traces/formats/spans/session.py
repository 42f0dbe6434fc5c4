"""Builds the events of one session from its spans, in the order in which they happened.

Recorders differ in where they record a call: in the answer that issued it, in the span of the tool, or in both. What
one place leaves out is filled in from the other, by the id of the call; a tool's span without an id is the next call of
that name. A call stands where its span starts and a result where it ends. Where times do not say which of the two came
first, the call names the tool of that result as unordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from bylaw.model.events import Annotation, Origin, Request, Response, ToolCall, ToolResult
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import (
    EVERYTHING,
    UNREAD_BLOCK,
    AssistantContent,
    Result,
    calls_in,
    read_content,
    results_inside,
    unread_kinds,
)
from bylaw.traces.assembly.session_buffer import GUESSED, GUESSED_HELP, SHARED_ID, SessionBuffer
from bylaw.traces.formats.call_signs import (
    CUT_ANSWER,
    CUT_HELP,
    UNREAD_CALL,
    is_cut_answer,
    looks_like_call,
)
from bylaw.traces.formats.chat_message import read_assistant, results_in
from bylaw.traces.formats.record import MalformedRecord
from bylaw.traces.formats.spans.issued_calls import IssuedCalls, Run, Turn, mark_unordered
from bylaw.traces.formats.spans.span import ModelCall, RecordedInput, Span, SpanAnnotation, ToolRun, UnreadTool
from bylaw.traces.records.problems import Problems

DROPPED = "the recorder dropped {} attributes or events of this span, because there were too many"
DROPPED_HELP = "raise `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`; rules that they may decide are inconclusive"
NAMELESS = "this call of a tool has no name, so no rule can look for it; rules about calls are inconclusive"
UNREAD_RUN = "this looks like a run of the tool `{}`, but its format is not known; rules about it are inconclusive"
UNREAD_ANY = "this looks like a run of a tool, but its format is not known; rules about calls are inconclusive"
_CUT = "cut"
"""the type of a block that holds the start of an answer"""
_RESULT, _ANSWER, _CALL, _OTHER, _LATE = range(5)
"""the order of what happened at the same moment"""


class SessionSpans:
    """The spans of one session."""

    def __init__(self, assembler: Assembler, problems: Problems) -> None:
        self._assembler = assembler
        self._problems = problems
        self._turns: list[Turn] = []
        self._runs: list[Run] = []
        self._runs_by_id: dict[str, list[Run]] = {}
        self._attempts: dict[tuple[str | None, int], Run] = {}
        """the last run of each call, by its id and its turn; an attempt after the first one has no turn"""
        self._emitted: set[str] = set()
        """ids of models' spans"""
        self._latest: dict[Origin, str] = {}
        """each agent's latest of these"""
        self._early: dict[str, list[Run]] = {}
        """runs that ended before the answer that issued them began, because their clocks differ"""
        self._known: Counter[str] | None = None
        """how often each tool was called; counted only if something was not read"""
        self._open: Counter[str] = Counter()
        """how many of these calls have no span"""
        self._signs: Counter[tuple[str, str]] = Counter()
        """how many unread records there are about each tool, by its name and the event of the record"""
        self._reported: set[str] = set()
        self._answering: dict[Origin, None] | None = None
        """agents with an answer; the agent of the session's last answer comes last"""
        self._lacking: dict[int, SessionBuffer] = {}
        self._unread: SessionBuffer | None = None
        """the buffer of the session, if nothing of it is read"""
        self._inputs: dict[str, Result] | None = None
        """results in the answers and inputs of models, by the id of the call"""

    def assemble(self, spans: list[tuple[Span, Origin]]) -> None:
        steps: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        starts, ends, has_unknown = set[float](), set[float](), False
        for number, (when, span, origin) in enumerate(_sort_by_time(spans)):
            about = span.about
            if span.dropped:
                self._problems.warn_of(span.source, "unread-content", DROPPED.format(span.dropped), DROPPED_HELP)
            if type(about) is ModelCall:
                unread = frozenset(EVERYTHING if span.dropped else ())
                turn = Turn(span, when, about, self._read_answer(span, about), origin, unread)
                self._turns.append(turn)
                steps.append((when, _ANSWER, number, self._add_turn, turn))
            elif type(about) is ToolRun:
                ended = when if span.end is None else max(span.end, when)
                run = Run(span, when, ended, about, origin)
                self._runs.append(run)
                starts.add(when)
                ends.add(ended)
                has_unknown = has_unknown or span.start is None or span.end is None
                steps.append((when, _CALL, number, self._add_call, run))
                steps.append((ended, _RESULT if ended > when else _LATE, number, self._add_result, run))
            elif type(about) is UnreadTool:
                steps.append((when, _CALL, number, self._add_unread, (span, about, origin)))
            else:
                steps.append((when, _OTHER, number, self._add_other, (span, origin)))
        self._join()
        steps.sort()  # no two are equal in their first three parts
        if len(self._runs) > 1 and (has_unknown or not starts.isdisjoint(ends)):
            calls = [what for _, rank, _, _, what in steps if rank in (_ANSWER, _CALL) and type(what) is not tuple]
            for run in mark_unordered(calls):
                if self._assembler.has_unordered:  # reported once for the whole file
                    break
                self._assembler.has_unordered = True
                name, other = run.tool.name, run.unordered[0]
                message = f"times do not say whether `{name}` was called before the result of another call came"
                help = f"here the result of `{other}`; rules that depend on such an order are inconclusive"
                self._problems.warn_of(run.span.source, "unknown-order", message, help)
        for _, _, _, step, what in steps:
            step(what)
        incomplete = next((buffer for buffer in self._lacking.values() if buffer.unread), self._unread)
        if incomplete is not None:
            self._assembler.end_session(incomplete, complete=False)

    def _join(self) -> None:
        """Find the turn of each run. Those with ids first, so that none without takes another's call."""
        issued = IssuedCalls(self._turns) if self._runs else None
        by_id = [run for run in self._runs if run.tool.call_id is not None]
        for run in (*by_id, *(run for run in self._runs if run.tool.call_id is None)):
            if issued is not None and not issued.claim(run):
                run.disagrees = True
                message = f"call `{run.tool.call_id}` is recorded twice, with a different name or different arguments"
                help = "the call in the model's answer is used, and rules about either tool are inconclusive"
                self._problems.warn_of(run.span.source, "disagreeing-call", message, help)
        for run in self._runs:
            if run.is_guess and not self._assembler.has_guess:  # once for the whole file
                self._assembler.has_guess = True
                self._problems.warn_of(run.span.source, "guessed-call", GUESSED.format(run.tool.name), GUESSED_HELP)
            if run.tool.call_id is not None:
                self._runs_by_id.setdefault(run.tool.call_id, []).append(run)
                self._attempts[run.tool.call_id, id(run.turn)] = run

    # A model's span

    def _read_answer(self, span: Span, call: ModelCall) -> AssistantContent | None:
        if call.answer is None:
            return None
        try:
            answer = read_assistant(call.answer)
        except MalformedRecord as error:
            self._problems.warn_of(
                span.source, "unread-content", f"the answer of this span is not read: {error.message}"
            )
            return AssistantContent([call.answer])
        if is_cut_answer(call.answer.get("content")):
            self._problems.warn_of(span.source, "unread-content", CUT_ANSWER, CUT_HELP)
            return AssistantContent([{"type": _CUT, "text": call.answer["content"]}])
        if not answer.uses and looks_like_call(call.answer):
            self._problems.warn_of(span.source, "unread-content", UNREAD_CALL)
            return AssistantContent([*(answer.blocks or ()), call.answer])
        return answer

    def _add_turn(self, turn: Turn) -> None:
        span, call, assembler = turn.span, turn.call, self._assembler
        buffer = assembler.buffer_for(turn.origin)
        self._add_input_results(call.messages, buffer, span)
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
        self._emitted.add(span.id)
        if turn.answer is None and span.error is not None:
            assembler.add(request)
            assembler.unanswered += 1
            self._add_error(span, turn.origin)
            return
        assembler.request(buffer, span.id, request)
        response, shared = self._response(turn, assembler.answered(buffer, span.id))
        assembler.response(buffer, span.id, response, shared=shared)
        self._latest[turn.origin] = span.id
        if turn.answer is not None:
            self._add_own_results(turn, turn.answer, response.tool_calls, buffer)
        for run in self._early.pop(span.id, ()):
            self._emit_result(run)

    def _response(self, turn: Turn, request: Request | None) -> tuple[Response, list[tuple[str, str]]]:
        span, answer, number = turn.span, turn.answer, self._assembler.turns
        calls: tuple[ToolCall, ...] = ()
        shared: list[tuple[str, str]] = []
        content: list[Any] | None = None
        text: str | None = None
        if answer is not None:
            calls, shared = calls_in(
                answer.uses, turn.origin, number, _answered_at(span), span.source, answer.arguments
            )
            if self._assembler.has_unordered:
                calls = tuple(self._with_unordered(call, turn) for call in calls)
            content, text, _ = read_content(answer.blocks)
            for call_id, _ in shared:
                self._problems.warn_of(span.source, "duplicate-call-id", SHARED_ID.format(call_id))
            for kind in unread_kinds(content):
                if kind == _CUT:
                    continue  # reported when the answer was read
                self._problems.warn_of(span.source, "unread-content", UNREAD_BLOCK.format(kind))
        response = Response(
            origin=turn.origin,
            turn=number,
            at=_answered_at(span),
            source=span.source,
            request=request,
            model=turn.call.model,
            content=content,
            text=text,
            tool_calls=calls,
            unread=tuple(sorted(turn.unread)),
            stop_reason=turn.call.stop_reason,
            latency_ms=span.latency_ms,
            usage=turn.call.usage,
        )
        return response, shared

    def _add_own_results(
        self, turn: Turn, answer: AssistantContent, calls: tuple[ToolCall, ...], buffer: SessionBuffer
    ) -> None:
        """Add the results in an answer of calls that the provider ran, unless a tool's span has them."""
        for result, following in results_inside(answer, calls):
            known = buffer.calls.get(result.call_id or "")
            if (known is not None and known.answered) or any(
                run.is_over for run in self._runs_by_id.get(result.call_id or "", ())
            ):
                continue
            self._add_shown(result, buffer, _answered_at(turn.span), turn.span)
            for call in following:
                if call.call_id not in self._runs_by_id:
                    self._assembler.place_call(buffer, call.call_id, claims=False)

    def _with_unordered(self, call: ToolCall, turn: Turn) -> ToolCall:
        runs = (run for run in self._runs_by_id.get(call.call_id, ()) if run.turn is turn)
        names = next((run.unordered for run in runs), ())
        return replace(call, unordered=names) if names else call

    def _add_input_results(self, messages: RecordedInput | None, buffer: SessionBuffer, span: Span) -> None:
        """Add the results in a model's input of calls that have no result yet."""
        wanted = {call_id for call_id, known in buffer.calls.items() if not known.answered} if buffer.calls else None
        if not wanted or messages is None:
            return
        found, unnamed = messages.results(wanted, buffer.calls)
        for result in (*found, *(replace(one, call_id=None) for one in unnamed)):
            if result.call_id is None and buffer.find_call(None, result.name, result.arguments) is None:
                continue
            waiting = [run for run in self._runs_by_id.get(result.call_id or "", ()) if not run.has_result]
            if waiting:
                self._emit_result(waiting[0])
                continue
            self._add_shown(result, buffer, span.at, span)

    def _add_shown(self, result: Result, buffer: SessionBuffer, at: str | float | None, span: Span) -> None:
        """Add a result that a model's span holds."""
        arguments = result.arguments if result.call_id is None else None
        self._assembler.result(buffer, result.event(buffer.origin, at, span.source), arguments)

    # A tool's span

    def _add_call(self, run: Run) -> None:
        """A call that no answer holds belongs to the agent's latest answer before it."""
        span, tool = run.span, run.tool
        if run.turn is not None:
            if tool.call_id is not None and span.start is not None:
                self._assembler.place_call(self._assembler.buffer_for(run.turn.origin), tool.call_id)
            return
        if not tool.name:
            self._problems.warn_of(span.source, "unread-content", NAMELESS)
            self._lack_call(run.origin, EVERYTHING[0], span)
            return
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
            unordered=run.unordered,
        )
        self._assembler.call(self._assembler.buffer_for(run.origin), self._latest.get(run.origin), call)

    def _add_unread(self, what: tuple[Span, UnreadTool, Origin]) -> None:
        """Report a call that is not read, unless the session has as many calls of the tool as records of this kind.

        A span may be the run of a call that only an answer holds. A log record may repeat any call.
        """
        span, tool, origin = what
        if span.error is not None:
            self._add_error(span, origin)
        if self._known is None:
            issued = (str(use["name"]) for turn in self._turns if turn.answer is not None for use in turn.answer.uses)
            self._known = Counter(issued)
            self._open = self._known - Counter(run.tool.name for run in self._runs if run.turn is not None)
            self._known.update(run.tool.name for run in self._runs if run.turn is None)
        known = self._known if tool.event else self._open
        name = tool.name if tool.is_named else ""
        self._signs[name, tool.event] += 1
        if self._signs[name, tool.event] <= (known[name] if name else known.total()):
            return
        if name not in self._reported:  # once for each tool
            self._reported.add(name)
            self._problems.warn_of(span.source, "unread-content", UNREAD_RUN.format(name) if name else UNREAD_ANY)
        self._lack_call(origin, name or EVERYTHING[0], span)

    def _lack_call(self, origin: Origin, tool: str, span: Span) -> None:
        """Mark a call as missing in an answer of its agent or, if there is none, in another answer of the session."""
        if self._answering is None:
            origins = [run.origin for run in self._runs if run.tool.name]
            origins += [turn.origin for turn in self._turns if turn.answer is not None or turn.span.error is None]
            self._answering = dict.fromkeys(origins)
        if self._answering:
            agent = origin if origin in self._answering else next(reversed(self._answering))
            buffer = self._assembler.buffer_for(agent)
            self._assembler.lack_call(buffer, tool)
            if buffer.unread:  # the next answer will be marked
                self._lacking[id(buffer)] = buffer
        elif self._unread is None:  # nothing of the session is read
            self._unread = buffer = self._assembler.buffer_for(origin)
            turn = self._assembler.turns
            response = Response(origin=origin, turn=turn, at=span.at, source=span.source, unread=EVERYTHING)
            self._assembler.response(buffer, span.id, response)

    def _add_result(self, run: Run) -> None:
        if run.has_result or not run.is_over:
            return
        if run.turn is not None and run.turn.span.id not in self._emitted:
            self._early.setdefault(run.turn.span.id, []).append(run)
            return
        self._emit_result(run)

    def _emit_result(self, run: Run) -> None:
        run.has_result = True
        span, tool = run.span, run.tool
        shown = self._result_in_inputs(tool.call_id) if tool.result is UNSET and self._is_last(run) else None
        content = tool.result if shown is None else shown.content
        origin = run.origin if run.turn is None else run.turn.origin
        self._assembler.result(
            self._assembler.buffer_for(origin),
            ToolResult(
                origin=origin,
                at=span.ended_at,
                source=span.source,
                call_id=tool.call_id,
                name=tool.name or None,
                content=span.error if content is UNSET else content,
                is_error=shown.is_error if shown is not None and tool.is_error is None else tool.is_error,
                latency_ms=span.latency_ms,
                is_guessed=run.is_guess or run.disagrees,
            ),
            tool.given,
        )

    def _is_last(self, run: Run) -> bool:
        """Whether no later attempt at the call is recorded: models are shown the result of the last attempt."""
        last, again = (self._attempts.get((run.tool.call_id, turn)) for turn in (id(run.turn), id(None)))
        return last in (run, None) and (again in (run, None) or again.when < run.when)

    def _result_in_inputs(self, call_id: str | None) -> Result | None:
        """The result that some model's span holds, for a tool's span without one."""
        if self._inputs is None:
            answers = ({"content": turn.answer.blocks} for turn in self._turns if turn.answer is not None)
            inputs = [turn.call.messages for turn in self._turns if turn.call.messages is not None]
            messages = (message for one in inputs for message in one.messages() or ())
            found = (result for message in chain(answers, messages) for result in results_in(message))
            self._inputs = {result.call_id: result for result in found if result.call_id is not None}
        return None if call_id is None else self._inputs.get(call_id)

    # Any other

    def _add_other(self, what: tuple[Span, Origin]) -> None:
        span, origin = what
        if isinstance(mark := span.about, SpanAnnotation):
            self._annotate(span, origin, mark.label, mark.data)
        if span.error is not None:
            self._add_error(span, origin)

    def _add_error(self, span: Span, origin: Origin) -> None:
        self._annotate(span, origin, "error", {"span": span.name, "message": span.error})

    def _annotate(self, span: Span, origin: Origin, label: str, data: Any) -> None:
        self._assembler.add(Annotation(origin=origin, at=span.at, source=span.source, label=label, data=data))


def _answered_at(span: Span) -> str | float | None:
    """When the model had answered; a request is dated by the start of the span."""
    return span.at if span.ended_at is None else span.ended_at


def _sort_by_time(spans: list[tuple[Span, Origin]]) -> list[tuple[float, Span, Origin]]:
    """Each span with its time, in order; a span without a time gets that of the span recorded before it."""
    last = min((span.start for span, _ in spans if span.start is not None), default=0.0)
    found = []
    for span, origin in spans:
        last = last if span.start is None else span.start
        found.append((last, span, origin))
    return sorted(found, key=lambda item: item[0])
