"""A span, and what it can be about. What a recorder left out is None, or UNSET where null could be recorded too."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bylaw.model.events import Usage
from bylaw.model.source import Locator
from bylaw.traces.formats.spans.messages import RecordedInput


class ModelCall(Struct, kw_only=True):
    """A model was asked, and mostly answered."""

    model: str | None = None
    messages: RecordedInput | None = None
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
