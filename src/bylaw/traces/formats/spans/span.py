"""A span, and what it can be about. What a recorder left out is None, or UNSET where null could be recorded too."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bylaw.model.events import Usage
from bylaw.model.source import Locator
from bylaw.traces.formats.spans.messages import Asked


class ModelCall(Struct, kw_only=True):
    """A model was asked, and mostly answered."""

    model: str | None = None
    messages: Asked | None = None
    """what it was asked"""
    params: dict[str, Any] | None = None
    tools: list[Any] | None = None
    answer: dict[str, Any] | None = None
    """what it answered, as an assistant's chat message"""
    stop_reason: str | None = None
    usage: Usage | None = None


class ToolRun(Struct, kw_only=True):
    """A tool was run."""

    name: str
    namespace: str | None = None
    call_id: str | None = None
    arguments: Any = None
    raw_arguments: str | None = None
    result: Any | UnsetType = UNSET
    is_error: bool | None = None

    @property
    def has_arguments(self) -> bool:
        return self.arguments is not None or self.raw_arguments is not None


class AgentRun(Struct, kw_only=True):
    """An agent was at work: whatever stands below is its own."""

    name: str | None = None
    whole: ModelCall | None = None
    """what went in and came out, for recordings that hold nothing finer"""


class Mark(Struct, kw_only=True):
    """Something else worth keeping: a hand-off, a guardrail's answer."""

    label: str
    data: Any = None


class Span(Struct, kw_only=True, eq=False):
    id: str
    parent: str | None = None
    trace: str = ""
    name: str = ""
    session: str | None = None
    agent: str | None = None
    """the agent it names as its own, where no span of an agent stands above it"""
    start: float | None = None
    """seconds since 1970 …"""
    end: float | None = None
    at: str | float | None = None
    """… and the start as it was recorded …"""
    ended_at: str | float | None = None
    """… and the end"""
    attributes: dict[str, Any] = {}
    events: list[tuple[str, dict[str, Any]]] = []
    """what was recorded along the way, by name"""
    error: str | None = None
    source: Locator
    about: ModelCall | ToolRun | AgentRun | Mark | None = None

    @property
    def latency_ms(self) -> float | None:
        if self.start is None or self.end is None or self.end < self.start:
            return None
        return round((self.end - self.start) * 1000, 3)


def tokens(
    recorded: dict[str, Any],
    *,
    input: Any = None,
    output: Any = None,
    read: Any = None,
    written: Any = None,
    reasoning: Any = None,
) -> Usage | None:
    """Usage by the numbers themselves: a part that is larger than its whole was recorded beside it."""
    if input is output is read is written is reasoning is None:
        return None
    counts = [count_of(value) for value in (input, output, read, written, reasoning)]
    if counts == _NO_COUNTS:
        return None
    whole, out, cached, wrote, thought = counts
    beside = (cached or 0) + (wrote or 0)
    if whole is not None and beside > whole:
        whole += beside
    if out is not None and thought is not None and thought > out:
        out += thought
    return Usage(whole, out, cached, wrote, thought, recorded)


_NO_COUNTS = [None] * 5


def count_of(value: Any) -> int | None:
    """A whole number of tokens, also where it was recorded as text."""
    if value is None or (type(value) is int and value >= 0):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None
