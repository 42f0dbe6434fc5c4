"""Spans wait here until their trace is whole. Recorders write them in any order, mostly the innermost first, so that
no line of a file says what comes before what. INVARIANT: bounded, however long the file is.

The spans of one trace as a tree: whose is what, and what was recorded twice, once around the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, Struct

from bylaw.model.events import Origin
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, Span, ToolRun

MOST_HELD = 128 << 20
"""bytes of records that wait at once; beyond that the trace that was silent longest is taken as whole"""


class _Trace(Struct, eq=False):
    spans: dict[str, Span] = {}
    size: int = 0


class Forest:
    def __init__(self) -> None:
        self._traces: dict[str, _Trace] = {}
        self._latest: _Trace | None = None
        self._size = 0
        self._unnamed = 0
        self._released: set[int] = set()
        self.torn = False
        """a trace had more spans after it had to be taken as whole"""

    def add(self, span: Span, size: int) -> None:
        trace = self._touched(span.trace, size)
        if not span.id:
            self._unnamed += 1
            span.id = f"#{self._unnamed}"
        known = trace.spans.get(span.id)
        if known is not None:  # exported twice, or its events came first in a file of their own
            span.events = [*known.events, *span.events]
            span.session = span.session or known.session
        trace.spans[span.id] = span

    def add_event(self, part: Span, size: int) -> None:
        """A span of which only an event is known so far."""
        trace = self._touched(part.trace, size)
        known = trace.spans.get(part.id) if part.id else None
        if known is not None:
            known.events += part.events
        else:
            self.add(part, 0)

    def overflow(self) -> Iterator[list[Span]]:
        """The traces that have to go, where too much is waiting."""
        while self._size > MOST_HELD and len(self._traces) > 1:
            name = next(iter(self._traces))
            trace = self._traces.pop(name)
            self._size -= trace.size
            self._released.add(hash(name))
            yield list(trace.spans.values())

    def rest(self) -> list[list[Span]]:
        traces, self._traces = self._traces, {}
        return [list(trace.spans.values()) for trace in traces.values()]

    def _touched(self, name: str, size: int) -> _Trace:
        trace = self._traces.get(name)
        if trace is None or trace is not self._latest:
            self._traces.pop(name, None)
            if trace is None:
                trace = _Trace()
                self.torn = self.torn or hash(name) in self._released
            self._traces[name] = self._latest = trace
        trace.size += size
        self._size += size
        return trace


_MOST_LEVELS = 200
"""spans above one that are looked at: parents may even form a circle"""


class Tree:
    def __init__(self, spans: list[Span]) -> None:
        self._by_id = {span.id: span for span in spans}
        self.spans = spans
        self._merge()
        self._fall_back()
        named = {span.session for span in spans if span.session is not None}
        self._only_session = next(iter(named)) if len(named) == 1 else None
        self._origins: dict[tuple[str, str | None, str | None], Origin] = {}
        self._agents: dict[str | None, list[Span]] = {None: []}
        """spans of agents from the nearest on, by the span that a span stands below"""

    def above(self, span: Span) -> Iterator[Span]:
        """The spans around one, from the nearest on."""
        for _ in range(_MOST_LEVELS):
            parent = self._by_id.get(span.parent) if span.parent is not None else None
            if parent is None:
                return
            yield parent
            span = parent

    def session_of(self, span: Span, fallback: str) -> str:
        """The session a span names, else one above it, else the only one of its trace; else the trace is one."""
        if span.session:
            return span.session
        named = (one.session for one in (span, *self.above(span)) if one.session is not None)
        return next(named, None) or self._only_session or span.trace or fallback

    def origin_of(self, span: Span, session: str) -> Origin:
        """The agent at work, and the one above it."""
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
                agent=_name(run) if run is not None else span.agent,
                parent_agent=None if outer is None else _name(outer),
            )
        return origin

    def _agents_around(self, span: Span) -> list[Span]:
        """Spans below the same one are within the same agents, so these are looked for once."""
        agents = self._agents.get(span.parent)
        if agents is None:
            agents = [one for one in self.above(span) if type(one.about) is AgentRun]
            self._agents[span.parent] = agents
        return [span, *agents] if type(span.about) is AgentRun else agents

    def _merge(self) -> None:
        """A model's span inside of a model's, or a tool's inside of the same tool's, is one call recorded twice.

        Several models inside of one were several calls, so there the outer span is only a frame around them.
        """
        inner: dict[str, list[Span]] = {}
        for span in self.spans:
            if span.parent not in self._by_id:
                continue
            if isinstance(span.about, ModelCall):
                outer = next((one for one in self.above(span) if isinstance(one.about, (ModelCall, AgentRun))), None)
                if outer is not None and outer is not span and isinstance(outer.about, ModelCall):
                    inner.setdefault(outer.id, []).append(span)
            elif isinstance(span.about, ToolRun):
                near = next((one for one in self.above(span) if one.about is not None), None)
                same = near is not None and near is not span and isinstance(near.about, ToolRun)
                if same and near is not None and _absorb_tool(near.about, span.about):
                    span.about = None
        for outer_id, spans in sorted(inner.items(), key=lambda item: -sum(1 for _ in self.above(item[1][0]))):
            outer = self._by_id[outer_id]
            if len(spans) > 1:
                outer.about = None
            elif isinstance(outer.about, ModelCall) and isinstance(spans[0].about, ModelCall):
                _absorb_model(outer.about, spans[0].about)
                spans[0].about = None

    def _fall_back(self) -> None:
        """An agent with no model's span below: what went into it and came out is all there is, so that is a turn."""
        agents = [span for span in self.spans if type(span.about) is AgentRun]
        if not agents:
            return
        busy = {above.id for span in self.spans if type(span.about) is ModelCall for above in self.above(span)}
        lone = [span for span in agents if span.id not in busy]
        for span in sorted(lone, key=lambda span: -sum(1 for _ in self.above(span))):
            assert isinstance(span.about, AgentRun)
            if span.about.whole is None or span.id in busy:
                continue
            busy.update(above.id for above in self.above(span))
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


def _name(span: Span) -> str | None:
    return span.about.name if isinstance(span.about, AgentRun) else None


def _absorb_model(outer: ModelCall, inner: ModelCall) -> None:
    for field in ModelCall.__struct_fields__:
        if getattr(outer, field) is None:
            setattr(outer, field, getattr(inner, field))


def _absorb_tool(outer: object, inner: ToolRun) -> bool:
    if not isinstance(outer, ToolRun) or outer.name != inner.name:
        return False
    if None not in (outer.call_id, inner.call_id) and outer.call_id != inner.call_id:
        return False  # a tool that calls itself
    if not outer.has_arguments:
        outer.arguments, outer.raw_arguments = inner.arguments, inner.raw_arguments
    if outer.result is UNSET:
        outer.result = inner.result
    outer.call_id = outer.call_id or inner.call_id
    outer.namespace = outer.namespace or inner.namespace
    outer.is_error = outer.is_error or inner.is_error
    return True
