"""The spans of agents: each is around all that its agent did, so it is written when that is over.

INVARIANT: bounded. Of very many agents at work at once, the one that was silent longest is written; should it go on,
its span is written again, under the same id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.events import Origin
from bylaw.traces.export.otlp.span import INTERNAL, span_fields, span_line

MOST_RUNS = 1024


class Run(Struct, eq=False):
    origin: Origin
    trace: str
    id: str
    parent: str = ""
    start: float | None = None
    end: float | None = None

    def saw(self, *times: float | None) -> None:
        for time in times:
            if time is not None:
                self.start = time if self.start is None else min(self.start, time)
                self.end = time if self.end is None else max(self.end, time)

    def line(self) -> bytes:
        name = f"invoke_agent {self.origin.agent}" if self.origin.agent else "invoke_agent"
        told = {"gen_ai.operation.name": "invoke_agent", **origin_attributes(self.origin)}
        ids = {"traceId": self.trace, "spanId": self.id, "parentSpanId": self.parent}
        return span_line(ids | span_fields(name, INTERNAL, self.start, self.end, told))


class Runs:
    def __init__(self, name: str) -> None:
        self._name = name
        self._runs: dict[tuple[str, str | None, str | None], Run] = {}
        self._over: list[Run] = []

    def trace(self, session: str) -> str:
        """The id of the trace that a session is."""
        return self._id(session, size=16)

    def known(self, origin: Origin) -> Run | None:
        return self._runs.get((origin.session, origin.run, origin.agent))

    def of(self, origin: Origin) -> Run:
        key = (origin.session, origin.run, origin.agent)
        run = self._runs.pop(key, None)
        if run is None:
            run = Run(origin, self.trace(origin.session), self._id(*key))
        self._runs[key] = run
        if not run.parent:
            run.parent = self._parent(origin, key)
        if len(self._runs) > MOST_RUNS:
            self._over.append(self._runs.pop(next(iter(self._runs))))
        return run

    def ended(self, session: str) -> None:
        over = [key for key in self._runs if key[0] == session]
        self._over += [self._runs.pop(key) for key in over]

    def over(self) -> Iterator[Run]:
        over, self._over = self._over, []
        return iter(over)

    def rest(self) -> Iterator[Run]:
        runs, self._runs = self._runs, {}
        return iter(runs.values())

    def _parent(self, origin: Origin, key: tuple[str, str | None, str | None]) -> str:
        above = (origin.session, origin.parent_run, origin.parent_agent)
        if above == key or (origin.parent_run is None and origin.parent_agent is None):
            return ""
        if above not in self._runs:  # an agent that did nothing but call others
            self._runs[above] = Run(Origin(*above[:2], agent=above[2]), self.trace(above[0]), self._id(*above))
        return self._runs[above].id

    def _id(self, *parts: str | None, size: int = 8) -> str:
        told = "\0".join("\1" if part is None else part for part in (self._name, *parts))
        return hashlib.sha256(told.encode()).hexdigest()[: 2 * size]


def origin_attributes(origin: Origin) -> dict[str, Any]:
    return {
        "gen_ai.conversation.id": origin.session,
        "gen_ai.agent.name": origin.agent,
        "gen_ai.agent.id": origin.run,
    }
