"""Counts of a whole trace, whatever part of it is shown. Names are kept up to a bound, so that memory is."""

from __future__ import annotations

from bylaw.inspect.model import Totals
from bylaw.model.events import Event, Response, SessionEnd, ToolCall, ToolResult
from bylaw.text.prices import Prices, cost_of

MOST_NAMES = 1_000
MOST_SESSIONS = 100_000
"""sessions that are kept in mind at once; a session that has ended is not"""


class Tally:
    def __init__(self, prices: Prices | None = None) -> None:
        self.totals = Totals()
        self._prices = prices
        self._begun: dict[str, float | None] = {}
        """sessions met so far, with their first time"""

    def add(self, event: Event) -> None:
        totals, time = self.totals, event.time
        totals.events += 1
        self._meet(event.origin.session, time)
        if time is not None:
            totals.first = time if totals.first is None else min(totals.first, time)
            totals.last = time if totals.last is None else max(totals.last, time)
        if isinstance(event, Response):
            self._add_turn(event)
        elif isinstance(event, ToolCall):
            totals.calls += 1
            _count(totals.tools, event.name)
        elif isinstance(event, ToolResult):
            totals.failed += bool(event.is_error)
        elif isinstance(event, SessionEnd):
            self._begun.pop(event.origin.session, None)

    def cost(self, response: Response) -> float | None:
        return cost_of(response, prices=self._prices)

    def since(self, event: Event) -> float | None:
        """Seconds since the first time of its session."""
        time, begun = event.time, self._begun.get(event.origin.session)
        return None if time is None or begun is None else time - begun

    def _add_turn(self, response: Response) -> None:
        totals, usage = self.totals, response.usage
        totals.turns += 1
        model = response.model or (response.request.model if response.request else None)
        _count(totals.models, model)
        _count(totals.agents, response.origin.agent)
        totals.latency_ms.add(response.latency_ms)
        totals.cost.add(self.cost(response))
        if usage is not None:
            totals.input_tokens.add(usage.input_tokens)
            totals.output_tokens.add(usage.output_tokens)
            totals.cached_tokens.add(usage.cached_input_tokens)
            totals.all_tokens.add(usage.total)

    def _meet(self, session: str, time: float | None) -> None:
        begun = self._begun
        if session in begun:
            if time is not None and begun[session] is None:
                begun[session] = time
            return
        begun[session] = time
        self.totals.sessions += 1
        if len(self.totals.session_ids) < MOST_NAMES:
            self.totals.session_ids[session] = None
        if len(begun) > MOST_SESSIONS:
            del begun[next(iter(begun))]


def _count(names: dict[str, int], name: str | None) -> None:
    if name is not None and (name in names or len(names) < MOST_NAMES):
        names[name] = names.get(name, 0) + 1
