"""The base of the readers of span formats: collects spans until their trace is complete, and finds their agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from msgspec import UNSET, Struct

from bylaw.model.events import Event, Origin
from bylaw.traces.formats.bodies import has_calls
from bylaw.traces.formats.reader import AssemblingReader, OpenedFile
from bylaw.traces.formats.spans.session import SessionSpans
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, Span, ToolRun, UnreadTool
from bylaw.traces.records.lines import Block

MOST_HELD = 128 << 20
"""bytes of records that wait at once; beyond that, the least recently used trace is taken as complete"""
_FEW_HELD = 4 << 20
_MOST_LEVELS = 200
"""levels above a span that are searched: parents may even form a cycle"""


class _Trace(Struct, eq=False):
    spans: dict[str, Span] = {}
    size: int = 0
    has_root: bool = False
    """recorders write a span when it ends, so its root comes last"""


class Forest:
    """Spans wait here until their trace is complete, because recorders write them in any order.

    INVARIANT: bounded, however long the file is.
    """

    def __init__(self, *, eager: bool = False) -> None:
        """`eager`: a trace whose root has ended waits only until a few more bytes of others have come."""
        self._eager = eager
        self._traces: dict[str, _Trace] = {}
        self._latest: _Trace | None = None
        self._size = 0
        self._unnamed = 0
        self._released: set[int] = set()
        self.is_split = False
        """a trace had more spans after it was taken as complete"""

    def add(self, span: Span, size: int) -> None:
        trace = self._trace(span.trace, size)
        if not span.id:
            self._unnamed += 1
            span.id = f"#{self._unnamed}"
        known = trace.spans.get(span.id)
        if known is not None:  # exported twice, or its events came first in a file of their own
            span.events = [*known.events, *span.events]
            span.session = span.session or known.session
        trace.spans[span.id] = span
        trace.has_root = trace.has_root or span.parent is None

    def add_event(self, part: Span, size: int) -> None:
        """Add an event of a span that was not read yet."""
        trace = self._trace(part.trace, size)
        known = trace.spans.get(part.id) if part.id else None
        if known is not None:
            known.events += part.events
        else:
            self.add(part, 0)

    def overflow(self) -> Iterator[list[Span]]:
        """The traces to release, if too much is waiting."""
        while len(self._traces) > 1:
            name, oldest = next(iter(self._traces.items()))
            if self._size <= (_FEW_HELD if self._eager and oldest.has_root else MOST_HELD):
                return
            trace = self._traces.pop(name)
            self._size -= trace.size
            self._released.add(hash(name))
            yield list(trace.spans.values())

    def rest(self) -> list[list[Span]]:
        traces, self._traces = self._traces, {}
        return [list(trace.spans.values()) for trace in traces.values()]

    def _trace(self, name: str, size: int) -> _Trace:
        trace = self._traces.get(name)
        if trace is None or trace is not self._latest:
            self._traces.pop(name, None)
            if trace is None:
                trace = _Trace()
                self.is_split = self.is_split or hash(name) in self._released
            self._traces[name] = self._latest = trace
        trace.size += size
        self._size += size
        return trace


class Tree:
    """The spans of one trace as a tree: which agent each belongs to, and which were recorded twice."""

    def __init__(self, spans: list[Span]) -> None:
        self._by_id = {span.id: span for span in spans}
        self.spans = spans
        self._merge()
        self._add_whole_turns()
        named = {span.session for span in spans if span.session is not None}
        self._only_session = next(iter(named)) if len(named) == 1 else None
        self._origins: dict[tuple[str, str | None, str | None], Origin] = {}
        self._agents: dict[str | None, list[Span]] = {None: []}
        """spans of agents above a span, nearest first, by the span's parent"""

    def session_of(self, span: Span, fallback: str) -> str:
        """The session that a span or one above it names, else the only one of its trace, else the trace itself."""
        if span.session:
            return span.session
        named = (one.session for one in (span, *self._above(span)) if one.session is not None)
        return next(named, None) or self._only_session or span.trace or fallback

    def origin_of(self, span: Span, session: str) -> Origin:
        """The agent of a span, and the agent above that."""
        agents = self._agents_around(span)
        run = agents[0] if agents else None
        key = (session, None, span.agent) if run is None else (session, run.id, None)
        origin = self._origins.get(key)
        if origin is None:
            outer = agents[1] if len(agents) > 1 else None
            origin = self._origins[key] = Origin(
                session,
                run=key[1],
                parent_run=None if outer is None else outer.id,
                agent=_agent_name(run) if run is not None else span.agent,
                parent_agent=None if outer is None else _agent_name(outer),
            )
        return origin

    def _above(self, span: Span) -> Iterator[Span]:
        """The spans that contain a span, nearest first."""
        for _ in range(_MOST_LEVELS):
            parent = self._by_id.get(span.parent) if span.parent is not None else None
            if parent is None:
                return
            yield parent
            span = parent

    def _depth(self, span: Span) -> int:
        return sum(1 for _ in self._above(span))

    def _agents_around(self, span: Span) -> list[Span]:
        """Spans with the same parent have the same agents above them, so these are searched once."""
        agents = self._agents.get(span.parent)
        if agents is None:
            agents = [one for one in self._above(span) if type(one.about) is AgentRun]
            self._agents[span.parent] = agents
        return [span, *agents] if type(span.about) is AgentRun else agents

    def _merge(self) -> None:
        """A model's span inside a model's, or a tool's inside the same tool's, is one call recorded twice.

        If a model's span contains several, these were several calls, and the outer span is ignored.
        """
        self._merge_answers()
        inner: dict[str, list[Span]] = {}
        for span in self.spans:
            if span.parent not in self._by_id:
                continue
            if isinstance(span.about, ModelCall):
                outer = next((one for one in self._above(span) if isinstance(one.about, (ModelCall, AgentRun))), None)
                if outer is not None and outer is not span and isinstance(outer.about, ModelCall):
                    inner.setdefault(outer.id, []).append(span)
            elif isinstance(span.about, ToolRun):
                near = next((one for one in self._above(span) if one.about is not None), None)
                if near is None or near is span:
                    continue
                if _absorb_tool(near.about, span.about):
                    span.about = None
                elif isinstance(near.about, UnreadTool) and _is_same_run(near.about, span.about):
                    near.about = None
            elif isinstance(span.about, UnreadTool):
                near = next((one for one in self._above(span) if one.about is not None), None)
                if near is not None and _is_same_run(span.about, near.about):
                    span.about = None
        for outer_id, spans in sorted(inner.items(), key=lambda item: -self._depth(item[1][0])):
            outer = self._by_id[outer_id]
            if len(spans) > 1:
                outer.about = None
            elif isinstance(outer.about, ModelCall) and isinstance(spans[0].about, ModelCall):
                _absorb_model(outer.about, spans[0].about)
                spans[0].about = None

    def _merge_answers(self) -> None:
        """Two recorders at once: their spans overlap and name the same answer, and one has no content of it."""
        by_answer: dict[str, Span] = {}
        for span in self.spans:
            call = span.about
            if not isinstance(call, ModelCall) or call.response_id is None:
                continue
            other = by_answer.setdefault(call.response_id, span)
            known = other.about
            if other is span or not isinstance(known, ModelCall) or not _are_overlapping(other, span):
                continue
            if call.answer is not None and known.answer is not None:
                continue
            if known.answer is None:
                other, span, known, call = span, other, call, known
                by_answer[call.response_id or ""] = other
            _absorb_model(known, call)
            span.about = None

    def _add_whole_turns(self) -> None:
        """An agent without a model's span below it gets one turn, from its own input and output."""
        agents = [span for span in self.spans if type(span.about) is AgentRun]
        if not agents:
            return
        busy = {above.id for span in self.spans if type(span.about) is ModelCall for above in self._above(span)}
        lone = [span for span in agents if span.id not in busy]
        for span in sorted(lone, key=lambda span: -self._depth(span)):
            assert isinstance(span.about, AgentRun)
            if span.about.whole is None or span.id in busy:
                continue
            busy.update(above.id for above in self._above(span))
            whole = Span(
                id=f"{span.id}/whole",
                parent=span.id,
                trace=span.trace,
                start=span.start,
                end=span.end,
                at=span.at,
                error=span.error,
                source=span.source,
                about=span.about.whole,
            )
            self.spans.append(whole)
            self._by_id[whole.id] = whole


def _agent_name(span: Span) -> str | None:
    return span.about.name if isinstance(span.about, AgentRun) else None


def _are_overlapping(one: Span, other: Span) -> bool:
    if one.start is None or one.end is None or other.start is None or other.end is None:
        return False
    return one.start <= other.end and other.start <= one.end


def _absorb_model(outer: ModelCall, inner: ModelCall) -> None:
    """Let the inner span fill in what the outer lacks. Of two answers, the one that has calls is the whole one."""
    if outer.answer is not None and inner.answer is not None and not has_calls(outer.answer):
        outer.answer = inner.answer if has_calls(inner.answer) or not outer.answer.get("content") else outer.answer
    for field in ModelCall.__struct_fields__:
        if getattr(outer, field) is None:
            setattr(outer, field, getattr(inner, field))


def _absorb_tool(outer: object, inner: ToolRun) -> bool:
    """Let the outer span fill in what it lacks. False if the spans are different calls."""
    if not isinstance(outer, ToolRun) or (outer.name != inner.name and inner.name):
        return False
    if None not in (outer.call_id, inner.call_id) and outer.call_id != inner.call_id:
        return False  # a tool that calls itself
    if outer.arguments is None and outer.raw_arguments is None:
        outer.arguments, outer.raw_arguments = inner.arguments, inner.raw_arguments
    if outer.result is UNSET:
        outer.result = inner.result
    outer.call_id = outer.call_id or inner.call_id
    outer.namespace = outer.namespace or inner.namespace
    outer.is_error = outer.is_error or inner.is_error
    return True


def _is_same_run(unread: UnreadTool, other: object) -> bool:
    """Whether another span, around or inside an unread one, records the same run."""
    return isinstance(other, (ToolRun, UnreadTool)) and (not unread.is_named or unread.name == other.name)


class SpanReader(AssemblingReader, ABC):
    """Collects spans in the forest, and emits them a session at a time."""

    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._forest = Forest(eager=opened.eager)
        self._spans = 0

    def read(self, block: Block) -> list[Event]:
        self.read_block(block)
        for trace in self._forest.overflow():
            self._emit([trace])
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self._emit(self._forest.rest())
        return super().finish()

    def notes(self) -> list[str]:
        notes = super().notes()
        if self._forest.is_split:
            notes.append(f"spans of one trace stand more than {MOST_HELD >> 20} MiB apart, so it is read in parts")
        if self._spans and not self._assembler.turns:
            notes.append(f"none of the {self._spans:,} spans is a call of a model or a tool")
        return notes

    @abstractmethod
    def read_block(self, block: Block) -> None:
        """Put the spans of these records into the forest."""

    def interpret(self, span: Span) -> None:
        """Set what a span is about, for formats in which that needs the whole span."""
        return  # most formats know it at once

    def _emit(self, traces: list[list[Span]]) -> None:
        sessions: dict[str, list[tuple[Span, Origin]]] = {}
        for spans in traces:
            self._spans += len(spans)
            for span in spans:
                self.interpret(span)
            tree = Tree(spans)
            for span in tree.spans:
                session = tree.session_of(span, "1")
                sessions.setdefault(session, []).append((span, tree.origin_of(span, session)))
        starts = {name: [one.start for one, _ in found if one.start is not None] for name, found in sessions.items()}
        for name in sorted(sessions, key=lambda name: min(starts[name], default=0.0)):
            SessionSpans(self._assembler, self._problems).assemble(sessions[name])
