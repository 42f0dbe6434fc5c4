"""A span, and what it can be about. What a recorder left out is None, or UNSET if null could be recorded too."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bylaw.model.events import Deferred, Usage
from bylaw.model.source import Locator
from bylaw.traces.formats.spans.attributes import latency_ms
from bylaw.traces.formats.spans.recorded_input import RecordedInput
from bylaw.traces.formats.spans.tool_values import tool_arguments, tool_result


class ModelCall(Struct, kw_only=True):
    """A request to a model, usually with its answer."""

    model: str | None = None
    messages: RecordedInput | None = None
    """the input"""
    params: dict[str, Any] | None = None
    tools: list[Any] | Deferred | None = None
    answer: dict[str, Any] | None = None
    """the output, as an assistant's chat message"""
    stop_reason: str | None = None
    usage: Usage | None = None
    response_id: str | None = None
    """the provider's id of the answer: two spans with the same one recorded one call"""


class ToolRun(Struct, kw_only=True):
    """The execution of a tool."""

    name: str
    namespace: str | None = None
    call_id: str | None = None
    arguments: Any = None
    raw_arguments: str | None = None
    result: Any | UnsetType = UNSET
    is_error: bool | None = None

    @property
    def given(self) -> Any:
        """The arguments, or their text if they could not be parsed."""
        return self.raw_arguments if self.arguments is None else self.arguments

    @classmethod
    def recorded(
        cls, name: str, arguments: Any, result: Any, *, call_id: str | None, failed: bool, namespace: str | None = None
    ) -> ToolRun:
        """From what a span says, in whatever it is wrapped. The result may name the call that it answers."""
        given, raw = tool_arguments(arguments)
        found = tool_result(result)
        is_error = None if found is None else found.is_error
        return cls(
            name=name,
            namespace=namespace,
            call_id=call_id or (found.call_id if found is not None else None),
            arguments=given,
            raw_arguments=raw,
            result=UNSET if found is None else found.content,
            is_error=True if failed or is_error else is_error,
        )


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
    links: tuple[str, ...] = ()
    """spans that it names as related, apart from its parent"""
    events: list[tuple[str, dict[str, Any]]] = []
    """the span's events, by name"""
    error: str | None = None
    dropped: int = 0
    """attributes and events that the recorder left out, because there were too many"""
    source: Locator
    about: ModelCall | ToolRun | AgentRun | Mark | None = None

    @property
    def latency_ms(self) -> float | None:
        return latency_ms(self.start, self.end)
