"""A span, and what it can be about. What a recorder left out is None, or UNSET if null could be recorded too."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bylaw.model.events import Usage
from bylaw.model.source import Locator
from bylaw.traces.formats.spans.attributes import latency_ms
from bylaw.traces.formats.spans.messages import RecordedInput


class ModelCall(Struct, kw_only=True):
    """A request to a model, usually with its answer."""

    model: str | None = None
    messages: RecordedInput | None = None
    """the input"""
    params: dict[str, Any] | None = None
    tools: list[Any] | None = None
    answer: dict[str, Any] | None = None
    """the output, as an assistant's chat message"""
    stop_reason: str | None = None
    usage: Usage | None = None


class ToolRun(Struct, kw_only=True):
    """The execution of a tool."""

    name: str
    namespace: str | None = None
    call_id: str | None = None
    arguments: Any = None
    raw_arguments: str | None = None
    result: Any | UnsetType = UNSET
    is_error: bool | None = None


class AgentRun(Struct, kw_only=True):
    """The run of an agent: all spans below belong to it."""

    name: str | None = None
    whole: ModelCall | None = None
    """its input and output, for recordings without spans of models"""


class Mark(Struct, kw_only=True):
    """Anything else that becomes an annotation: a hand-off, the answer of a guardrail."""

    label: str
    data: Any = None


class Span(Struct, kw_only=True, eq=False):
    id: str
    parent: str | None = None
    trace: str = ""
    name: str = ""
    session: str | None = None
    agent: str | None = None
    """the agent that the span names, used if no agent's span is above it"""
    start: float | None = None
    """seconds since 1970 …"""
    end: float | None = None
    at: str | float | None = None
    """… and the start as it was recorded …"""
    ended_at: str | float | None = None
    """… and the end"""
    attributes: dict[str, Any] = {}
    events: list[tuple[str, dict[str, Any]]] = []
    """the span's events, by name"""
    error: str | None = None
    source: Locator
    about: ModelCall | ToolRun | AgentRun | Mark | None = None

    @property
    def latency_ms(self) -> float | None:
        return latency_ms(self.start, self.end)
