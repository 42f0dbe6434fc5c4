"""A trace as it is looked at: the same events, put together the way people read them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from bylaw.model.events import Event, Origin, Request, Response, ToolCall, ToolResult

PartKind: TypeAlias = Literal["text", "thinking", "call", "result", "other"]


class Part(Struct, frozen=True, kw_only=True):
    """One thing that a message holds."""

    kind: PartKind
    text: str | None = None
    name: str | None = None
    """the tool's, or for other parts what they are: `image`, `refusal`"""
    call_id: str | None = None
    value: Any = None
    """a call's arguments, a result's content, or the part as recorded"""
    is_error: bool | None = None


class Heard(Struct, frozen=True):
    """One message of a request."""

    role: str
    parts: tuple[Part, ...]


class Input(Struct, frozen=True, kw_only=True):
    """What a request told the model that no earlier one of its run did."""

    heard: tuple[Heard, ...] = ()
    repeated: int = 0
    """messages that are left out: the history, and what is shown already as an answer or a result"""
    dropped: int = 0
    """messages of the request before that this one no longer holds"""


class Called(Struct, frozen=True):
    """A call with what came back while its turn lasted."""

    call: ToolCall
    results: tuple[ToolResult, ...] = ()
    parallel: int | None = None
    """calls of one turn with the same number were issued together"""


class SessionEntry(Struct, frozen=True, kw_only=True):
    """From here on, events belong to this session."""

    session: str
    metadata: dict[str, Any] | None = None
    continued: bool = False
    """it was met before: sessions interleave"""


class TurnEntry(Struct, frozen=True, kw_only=True):
    """A turn with all that belongs to it."""

    response: Response
    depth: int = 0
    """how many agents stand above this one"""
    input: Input = Input()
    thoughts: tuple[Part, ...] = ()
    """what the answer holds besides its text and its calls"""
    calls: tuple[Called, ...] = ()
    other_calls: int = 0
    """calls that were not asked for"""
    beside: tuple[Event, ...] = ()
    """messages and annotations that were recorded while calls of this turn were running"""
    cost: float | None = None
    """US dollars"""
    since: float | None = None
    """seconds since the first time of its session"""
    whole: bool = False
    """asked for by its number: nothing of it is folded"""

    @property
    def turn(self) -> int | None:
        return self.response.turn

    @property
    def origin(self) -> Origin:
        return self.response.origin


class RequestEntry(Struct, frozen=True, kw_only=True):
    """A request that nothing answers."""

    request: Request
    depth: int = 0
    input: Input = Input()


class EventEntry(Struct, frozen=True, kw_only=True):
    """Anything that belongs to no turn, or came after its turn was over."""

    event: Event
    depth: int = 0


Entry: TypeAlias = SessionEntry | TurnEntry | RequestEntry | EventEntry


class Known(Struct):
    """A sum over turns, and over how many of them it is known."""

    total: float = 0
    turns: int = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.total += value
            self.turns += 1


class Totals(Struct, kw_only=True):
    """What a trace holds in all."""

    events: int = 0
    turns: int = 0
    sessions: int = 0
    calls: int = 0
    failed: int = 0
    """results that are errors"""
    shown: int = 0
    """entries with something in them that were asked for"""
    agents: dict[str, int] = field(default_factory=dict)
    """turns of each"""
    models: dict[str, int] = field(default_factory=dict)
    tools: dict[str, int] = field(default_factory=dict)
    """calls of each"""
    session_ids: dict[str, None] = field(default_factory=dict)
    """the first of them"""
    input_tokens: Known = field(default_factory=Known)
    output_tokens: Known = field(default_factory=Known)
    cached_tokens: Known = field(default_factory=Known)
    all_tokens: Known = field(default_factory=Known)
    """input and output, also where only their sum was recorded"""
    latency_ms: Known = field(default_factory=Known)
    cost: Known = field(default_factory=Known)
    first: float | None = None
    """the earliest time recorded, in seconds since 1970"""
    last: float | None = None


# -- two traces --------------------------------------------------------------------------------------------------------

Aspect: TypeAlias = Literal["turn", "call", "arguments", "result", "text", "stop"]


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that two turns do not share."""

    aspect: Aspect
    what: str
    """`refund amount`, `stop reason`, …"""
    baseline: Any = None
    candidate: Any = None
    call: int | None = None
    """which of the pair's calls"""


class PairEntry(Struct, frozen=True, kw_only=True):
    """A turn of the one trace and the turn of the other that answers to it."""

    baseline: TurnEntry | None
    candidate: TurnEntry | None
    differences: tuple[Difference, ...] = ()
    calls: tuple[tuple[int | None, int | None], ...] = ()
    """which call of the one answers to which of the other"""
    other_input: bool = False
    """the two requests told the model different things"""
    first: bool = False
    """the first pair that differs"""
    whole: bool = False

    @property
    def turn(self) -> int | None:
        """As `diff` counts: the baseline's index, or the candidate's for an insertion."""
        one = self.baseline or self.candidate
        return None if one is None else one.turn


class SessionPair(Struct, frozen=True, kw_only=True):
    """Two sessions that answer to each other; None where one side has none."""

    baseline: str | None
    candidate: str | None
    pairs: tuple[PairEntry, ...] = ()


class SideBySide(Struct, frozen=True, kw_only=True):
    """Two traces, turn against turn."""

    names: tuple[str, str]
    totals: tuple[Totals, Totals]
    notes: tuple[str, ...] = ()
    sessions: tuple[SessionPair, ...] = ()
    pairs: int = 0
    differing: int = 0
    """pairs that differ"""
    first: PairEntry | None = None
    first_session: str | None = None
    input_differs_at: int | None = None
    """the first turn whose requests tell the model different things"""
    shown: int = 0
    """pairs that were asked for"""
