"""The messages before a turn, for formats that record a conversation once and not again with every request.

A conversation recorded as one list: each answer of the model is a turn, and its request is all that came before.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bylaw.model.events import Deferred, Origin, Request, Response, ToolCall, ToolResult, Usage
from bylaw.model.source import Locator
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.session_buffer import Lane

KEPT = 10_000
"""messages of a streamed conversation that its requests can still show"""


class Prefix(Deferred, eq=False):
    """Part of a list of messages that goes on growing: `held` is the list, where the part starts, and where it ends.

    A thousand turns of one conversation share its list. What `get` cuts out is not kept, or it would be quadratic.
    """

    def get(self) -> list[Any]:
        messages, start, end = self.held
        part: list[Any] = messages[start:end]
        return part


class Messages:
    """The messages of one conversation so far. INVARIANT: a list once shared is only appended to."""

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self._list: list[Any] = []
        self.cut = False
        """older messages were let go"""

    def append(self, message: Any) -> None:
        if self._bounded and len(self._list) >= 2 * KEPT:
            self._list = self._list[-KEPT:]
        self._list.append(message)

    def so_far(self) -> Prefix:
        start, end = 0, len(self._list)
        if self._bounded and end > KEPT:
            start, self.cut = end - KEPT, True
        return Prefix(None, (self._list, start, end))


def cut_note() -> list[str]:
    return [f"requests show only the {KEPT:,} messages before them"]


class Settings(Struct, frozen=True):
    """What a conversation says once about all of its requests."""

    model: str | None = None
    params: dict[str, Any] | None = None
    tools: list[Any] | None = None
    metadata: dict[str, Any] | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What the model answered."""

    content: list[Any] | None
    text: str | None
    calls: tuple[ToolCall, ...] = ()
    at: str | float | None = None
    source: Locator
    model: str | None = None
    stop_reason: str | None = None
    latency_ms: float | None = None
    usage: Usage | None = None


class Conversation:
    def __init__(self, assembler: Assembler, lane: Lane, settings: Settings, *, bounded: bool) -> None:
        self._assembler = assembler
        self._lane = lane
        self._settings = settings
        self._messages = Messages(bounded=bounded)
        self._asked: Locator | None = None
        """where the first message since the last answer stands"""
        self._whole: Deferred | UnsetType | None = UNSET

    @property
    def origin(self) -> Origin:
        return self._lane.origin

    @property
    def turn(self) -> int:
        """The index of the turn that the next answer makes."""
        return self._assembler.turns

    @property
    def cut(self) -> bool:
        return self._messages.cut

    def heard(self, message: Any, source: Locator) -> None:
        """A message for the model."""
        self._messages.append(message)
        self._asked = self._asked or source

    def asked(self, messages: Deferred | None, source: Locator) -> None:
        """The whole input of the next request, for formats that record it with each; None where it was left out."""
        self._whole = messages
        self._asked = source

    def result(self, result: ToolResult) -> None:
        self._assembler.result(self._lane, result)

    def answered(self, answer: Answer) -> None:
        """What the model said; its own message goes to `said`, for the requests that follow."""
        assembler, lane, origin = self._assembler, self._lane, self._lane.origin
        request = assembler.exchanged(lane, self._request(self._asked or answer.source, answer.model))
        self._asked = None
        response = Response(
            origin=origin,
            turn=assembler.turns,
            at=answer.at,
            source=answer.source,
            request=request,
            model=answer.model or self._settings.model,
            content=answer.content,
            text=answer.text,
            tool_calls=answer.calls,
            stop_reason=answer.stop_reason,
            latency_ms=answer.latency_ms,
            usage=answer.usage,
        )
        assembler.response(lane, None, response)

    def said(self, message: Any) -> None:
        self._messages.append(message)

    def so_far(self) -> Prefix:
        """All messages up to here, for another conversation that goes on from here."""
        return self._messages.so_far()

    def end(self) -> None:
        """Messages that nothing answers are a request without a response."""
        if self._asked is not None:
            self._assembler.request(self._lane, None, self._request(self._asked, None))

    def _request(self, source: Locator, model: str | None) -> Request:
        settings = self._settings
        return Request(
            origin=self._lane.origin,
            turn=self._assembler.turns,
            source=source,
            model=settings.model or model,
            held_messages=self._messages.so_far() if self._whole is UNSET else self._whole,
            params=settings.params,
            held_tools=settings.tools,
            metadata=settings.metadata,
        )
