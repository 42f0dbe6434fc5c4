"""The entries of a timeline, which are events of a trace put together the way people read them, and their selection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from rapidfuzz import fuzz, process
from rapidfuzz.utils import default_process

from bylaw.engine.matching import compile_names
from bylaw.model.demand import Calls
from bylaw.model.events import Event, Origin, Request, Response, ToolCall, ToolResult

PartKind: TypeAlias = Literal["text", "thinking", "call", "result", "other"]


class Part(Struct, frozen=True, kw_only=True):
    """One part of a message."""

    kind: PartKind
    text: str | None = None
    name: str | None = None
    """of the tool; for other parts their type, such as `image` or `refusal`"""
    call_id: str | None = None
    value: Any = None
    """a call's arguments, a result's content, or the part as recorded"""
    is_error: bool | None = None


class InputMessage(Struct, frozen=True):
    """One message of a request."""

    role: str
    parts: tuple[Part, ...]


class Input(Struct, frozen=True, kw_only=True):
    """The messages of a request that no earlier request of its run held."""

    messages: tuple[InputMessage, ...] = ()
    repeated: int = 0
    """messages left out: the history, and answers and results that are shown elsewhere"""
    dropped: int = 0
    """messages of the previous request that this one no longer holds"""


class CallWithResults(Struct, frozen=True):
    """A call with the results that came back during its turn."""

    call: ToolCall
    results: tuple[ToolResult, ...] = ()
    parallel: int | None = None
    """calls of a turn with the same number were issued together"""


class SessionEntry(Struct, frozen=True, kw_only=True):
    """From here on, events belong to this session."""

    session: str
    metadata: dict[str, Any] | None = None
    continued: bool = False
    """it had a heading before: sessions interleave"""
    totals: SessionTotals | None = None
    """of the whole session, if the trace is short enough to know them before it is shown"""


class TurnEntry(Struct, frozen=True, kw_only=True):
    """A turn with its calls and results."""

    response: Response
    depth: int = 0
    """how many agents stand above this one"""
    input: Input = Input()
    thoughts: tuple[Part, ...] = ()
    """parts of the answer other than its text and its calls"""
    calls: tuple[CallWithResults, ...] = ()
    other_calls: int = 0
    """calls that the selection leaves out"""
    beside: tuple[Event, ...] = ()
    """messages and annotations recorded while calls of this turn were running"""
    cost: float | None = None
    """US dollars"""
    since: float | None = None
    """seconds since the first recorded time of its session"""
    whole: bool = False
    """selected by its number, so shown in full"""

    @property
    def turn(self) -> int | None:
        return self.response.turn

    @property
    def origin(self) -> Origin:
        return self.response.origin

    @property
    def model(self) -> str | None:
        return model_of(self.response)


def model_of(response: Response) -> str | None:
    return response.model or (response.request.model if response.request else None)


class RequestEntry(Struct, frozen=True, kw_only=True):
    """A request without a response."""

    request: Request
    depth: int = 0
    input: Input = Input()


class EventEntry(Struct, frozen=True, kw_only=True):
    """An event outside of turns, or one that came after its turn had ended."""

    event: Event
    depth: int = 0


Entry: TypeAlias = SessionEntry | TurnEntry | RequestEntry | EventEntry


class KnownSum(Struct):
    """A sum over turns, and the number of turns that recorded a value."""

    total: float = 0
    turns: int = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.turns += 1

    @property
    def sum(self) -> float | None:
        """None if no turn recorded a value."""
        return self.total if self.turns else None


class _Resources(Struct, kw_only=True):
    """What sessions and whole traces have in common."""

    turns: int = 0
    calls: int = 0
    cost: KnownSum = field(default_factory=KnownSum)
    first: float | None = None
    """the earliest time recorded, in seconds since 1970"""
    last: float | None = None

    @property
    def lasted(self) -> float | None:
        """Seconds between the first and the last recorded time."""
        return None if self.first is None or self.last is None else self.last - self.first


class SessionTotals(_Resources, kw_only=True):
    """Counts of one session."""

    tokens: KnownSum = field(default_factory=KnownSum)


class Totals(_Resources, kw_only=True):
    """Counts of a whole trace."""

    events: int = 0
    sessions: int = 0
    failed: int = 0
    """results that are errors"""
    shown: int = 0
    """selected entries, without headings"""
    agents: dict[str, int] = field(default_factory=dict)
    """agent → its turns"""
    models: dict[str, int] = field(default_factory=dict)
    tools: dict[str, int] = field(default_factory=dict)
    """tool → its calls"""
    session_ids: dict[str, None] = field(default_factory=dict)
    """ids of the first sessions"""
    by_session: dict[str, SessionTotals] = field(default_factory=dict)
    """the first sessions, fewer of them"""
    input_tokens: KnownSum = field(default_factory=KnownSum)
    output_tokens: KnownSum = field(default_factory=KnownSum)
    cached_tokens: KnownSum = field(default_factory=KnownSum)
    all_tokens: KnownSum = field(default_factory=KnownSum)
    """input and output, also where only their sum was recorded"""
    latency_ms: KnownSum = field(default_factory=KnownSum)


class ShownCounts(Struct):
    """Counts of the entries that a selection shows."""

    sessions: int = 0
    turns: int = 0
    calls: int = 0

    def add(self, entry: Entry) -> Entry:
        """Count the entry, and return it."""
        if isinstance(entry, SessionEntry):
            self.sessions += not entry.continued
        elif isinstance(entry, TurnEntry):
            self.turns += 1
            self.calls += len(entry.calls)
        elif isinstance(entry, EventEntry):
            self.calls += isinstance(entry.event, ToolCall)
        return entry


# -- two traces --------------------------------------------------------------------------------------------------------

Aspect: TypeAlias = Literal["turn", "call", "arguments", "result", "text", "stop"]


class Difference(Struct, frozen=True, kw_only=True):
    """One difference between two turns."""

    aspect: Aspect
    what: str
    """`refund amount`, `stop reason`, …"""
    baseline: Any = None
    candidate: Any = None
    call: int | None = None
    """index among the pair's calls"""


class PairEntry(Struct, frozen=True, kw_only=True):
    """A turn and its counterpart in the other trace."""

    baseline: TurnEntry | None
    candidate: TurnEntry | None
    differences: tuple[Difference, ...] = ()
    calls: tuple[tuple[int | None, int | None], ...] = ()
    """indices of calls that are counterparts"""
    other_input: bool = False
    """the two requests hold different messages"""
    first: bool = False
    """the first pair that differs"""
    whole: bool = False

    @property
    def turn(self) -> int | None:
        """As in `diff`: the baseline's index, or the candidate's for an added turn."""
        one = self.baseline or self.candidate
        return None if one is None else one.turn


class SessionPair(Struct, frozen=True, kw_only=True):
    """Two sessions that are counterparts; None where a side has none."""

    baseline: str | None
    candidate: str | None
    pairs: tuple[PairEntry, ...] = ()


class SideBySide(Struct, frozen=True, kw_only=True):
    """Two traces, turn by turn."""

    names: tuple[str, str]
    totals: tuple[Totals, Totals]
    notes: tuple[str, ...] = ()
    sessions: tuple[SessionPair, ...] = ()
    """selected sessions, with their selected pairs"""
    pairs: int = 0
    """pairs of turns in the whole traces, which `differing`, `first` and `input_differs_at` are about too"""
    differing: int = 0
    """pairs that differ"""
    first: PairEntry | None = None
    first_session: str | None = None
    input_differs_at: int | None = None
    """the first turn whose requests hold different messages"""
    shown: int = 0
    """selected pairs"""


# -- the selection -----------------------------------------------------------------------------------------------------


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
        yield from _find_missing("tool", self.tools, totals.tools)
        yield from _find_missing("session", self.sessions, totals.session_ids)
        yield from _find_missing("agent", self.agents, totals.agents)


def _find_missing(noun: str, patterns: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, str]]:
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
