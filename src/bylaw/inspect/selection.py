"""The selection of turns, tools, sessions and agents, and advice where a selected name is not in the trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rapidfuzz import fuzz, process
from rapidfuzz.utils import default_process

from bylaw.engine.matching import compile_names
from bylaw.inspect.model import Totals
from bylaw.model.demand import Calls
from bylaw.model.events import Event, Origin, Request, Response, ToolCall, ToolResult

_LEAST_SCORE = 70
"""similarity of a name to suggest"""
_MOST_NAMED = 12
"""names listed in a message"""


class Selection:
    """Kinds of names are combined with `and`, several names of one kind with `or`."""

    def __init__(
        self,
        *,
        turns: Sequence[tuple[int, int]] = (),
        tools: Sequence[str] = (),
        sessions: Sequence[str] = (),
        agents: Sequence[str] = (),
    ) -> None:
        self.turns, self.tools, self.sessions, self.agents = turns, tools, sessions, agents
        self._tool = compile_names(Calls(tuple(tools)))
        self._session = compile_names(Calls(tuple(sessions)))
        self._agent = compile_names(Calls(tuple(agents)))

    @property
    def is_all(self) -> bool:
        return not (self.turns or self.tools or self.sessions or self.agents)

    @property
    def whole(self) -> bool:
        """Turns selected by number are shown in full."""
        return bool(self.turns)

    def takes_turn(self, response: Response | Request) -> bool:
        """Whether its origin and index are selected; its calls are not looked at."""
        return self.takes_origin(response.origin) and self.takes_index(response.turn)

    def takes_tool(self, call: ToolCall | ToolResult) -> bool:
        if not self.tools:
            return True
        name = call.name
        if name is None and isinstance(call, ToolResult) and call.call is not None:
            name = call.call.name
        return name is not None and self._tool(name)

    def takes_event(self, event: Event) -> bool:
        """For an event outside of turns."""
        if not self.takes_origin(event.origin) or not self.takes_index(event.turn):
            return False
        if isinstance(event, ToolCall | ToolResult):
            return self.takes_tool(event)
        return not self.tools

    def takes_origin(self, origin: Origin) -> bool:
        if self.sessions and not self._session(origin.session):
            return False
        return not self.agents or (origin.agent is not None and self._agent(origin.agent))

    def takes_index(self, turn: int | None) -> bool:
        return not self.turns or (turn is not None and any(low <= turn <= high for low, high in self.turns))

    def missing(self, totals: Totals) -> Iterator[tuple[str, str]]:
        """Each selected name that is not in the trace, with advice."""
        if self.turns:
            last = totals.turns - 1
            advice = f"turns: 0 to {last}" if last >= 0 else "the trace holds no turn"
            for low, high in self.turns:
                if low > last:
                    yield (f"turn {low}" if low == high else f"turns {low}-{high}"), advice
        yield from _missing("tool", self.tools, totals.tools)
        yield from _missing("session", self.sessions, totals.session_ids)
        yield from _missing("agent", self.agents, totals.agents)


def _missing(noun: str, patterns: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, str]]:
    names = list(known)
    for pattern in patterns:
        fits = compile_names(Calls((pattern,)))
        if not any(fits(name) for name in names):
            yield f"{noun} `{pattern}`", _advice(noun, pattern, names)


def _advice(noun: str, pattern: str, names: list[str]) -> str:
    if not names:
        return f"the trace names no {noun}"
    near = process.extractOne(pattern, names, scorer=fuzz.WRatio, processor=default_process, score_cutoff=_LEAST_SCORE)
    if near is not None:
        return f"did you mean `{near[0]}`?"
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{noun}s: {', '.join(f'`{name}`' for name in names[:_MOST_NAMED])}{more}"
