"""Spans wait here until their trace is whole. Recorders write them in any order, mostly the innermost first, so that
no line of a file says what comes before what. INVARIANT: bounded, however long the file is.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bylaw.traces.formats.spans.span import Span

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
