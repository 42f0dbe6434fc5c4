"""A conversation recorded as one list: each answer of the model is a turn, and its request is all that came before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from bylaw.model.events import Deferred, Locator, Origin, Request, Response, ToolCall, ToolResult, Usage
from bylaw.model.messages import MessageList, MessageSlice
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import Result
from bylaw.traces.assembly.session_buffer import SessionBuffer, fits_name

MOST_MESSAGES = 10_000
"""messages of a streamed conversation that its requests can show"""


class Prefix(Deferred, eq=False):
    """A slice of a list of messages that keeps growing: `held` is the list, and the start and the end of the slice.

    A thousand turns of one conversation share its list. `get` does not store its copy, or memory would be quadratic.
    """

    def get(self) -> list[Any]:
        messages, start, end = self.held
        copied: list[Any] = messages[start:end]
        return copied

    def message_slice(self) -> MessageSlice:
        found: MessageSlice = self.held
        return found


class Settings(Struct, frozen=True):
    """The data that a conversation records once for all of its requests."""

    model: str | None = None
    params: dict[str, Any] | None = None
    tools: list[Any] | None = None
    metadata: dict[str, Any] | None = None
    others: dict[str, Any] | None = None


class Conversation:
    """INVARIANT: a list of messages that a request shares is only appended to."""

    def __init__(self, assembler: Assembler, buffer: SessionBuffer, settings: Settings, *, bounded: bool) -> None:
        self._assembler = assembler
        self._buffer = buffer
        self._settings = settings
        self._bounded = bounded
        self._messages = MessageList()
        self._input_source: Locator | None = None
        """where the first message since the last answer stands"""
        self._whole_input: Deferred | UnsetType | None = UNSET
        self._is_bare = not bounded and settings == Settings()
        """requests have messages and nothing else"""
        self.is_truncated = False
        """older messages were dropped"""

    @property
    def origin(self) -> Origin:
        return self._buffer.origin

    @property
    def turn(self) -> int:
        """The index of the turn that the next answer makes."""
        return self._assembler.turns

    def speak_as(self, agent: str | None, run: str | None = None, above: Origin | None = None) -> None:
        """What follows is by this agent: several may share one conversation. `above`: the agent that called it."""
        origin = Origin(
            self.origin.session,
            run=run,
            parent_run=None if above is None else above.run,
            agent=agent,
            parent_agent=None if above is None else above.agent,
        )
        if origin != self.origin:
            self._buffer = self._assembler.buffer_for(origin)

    def add_message(self, message: Any) -> None:
        """A message that later requests show: the model's own, or one that asks for no answer."""
        if self._bounded and len(self._messages) >= 2 * MOST_MESSAGES:
            self._messages = MessageList(self._messages[-MOST_MESSAGES:])
        self._messages.append(message)

    def continue_from(self, before: Prefix) -> None:
        """What follows continues from these messages, not from the latest ones."""
        messages, start, end = before.held
        self._messages = messages if end == len(messages) else messages.branch(start, end)

    def add_input(self, message: Any, source: Locator) -> None:
        """A message for the model."""
        if self._bounded:
            self.add_message(message)
        else:
            self._messages.append(message)
        if self._input_source is None:
            self._input_source = source

    def set_input(self, messages: Deferred | None, source: Locator) -> None:
        """The whole input of the next request, for formats that repeat it; None if it was left out."""
        self._whole_input = messages
        self._is_bare = False
        self._input_source = source

    def add_result(
        self,
        source: Locator,
        at: str | float | None,
        call_id: str | None,
        content: Any,
        *,
        name: str | None = None,
        is_error: bool | None = None,
        latency_ms: float | None = None,
        arguments: Any = None,
    ) -> None:
        """What a call returned. `arguments`: those of the call, in formats that repeat them with the result."""
        buffer = self._buffer
        known = None if call_id is None else buffer.calls.get(call_id)
        call = None if known is None or known.call.origin is not buffer.origin else known.call
        if call_id in buffer.shared or (call is not None and not fits_name(call, name)):
            call = None
        result = ToolResult(
            origin=buffer.origin,
            turn=None if call is None else call.turn,
            at=at,
            source=source,
            call_id=call_id,
            name=name if name or call is None else call.name,
            content=content,
            is_error=is_error,
            latency_ms=latency_ms,
            call=call,
        )
        if known is None or call is None:
            self._assembler.result(buffer, result, arguments)
        else:
            self._assembler.paired_result(buffer, known, result)

    def add_read_result(self, result: Result, source: Locator, at: str | float | None) -> None:
        """The same for a result as a message holds it."""
        self.add_result(
            source,
            at,
            result.call_id,
            result.content,
            name=result.name,
            is_error=result.is_error,
            arguments=result.arguments,
        )

    def add_answer(
        self,
        source: Locator,
        content: list[Any] | None,
        text: str | None,
        calls: tuple[ToolCall, ...],
        *,
        unread: tuple[str, ...] = (),
        is_checked: bool = False,
        at: str | float | None = None,
        model: str | None = None,
        stop_reason: str | None = None,
        latency_ms: float | None = None,
        usage: Usage | None = None,
        shared: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Add an answer of the model. Its message for later requests goes to `add_message`."""
        assembler, buffer = self._assembler, self._buffer
        request = assembler.exchanged(buffer, self._request(self._input_source or source, model))
        self._input_source = None
        response = Response(
            origin=buffer.origin,
            turn=assembler.turns,
            at=at,
            source=source,
            request=request,
            model=model or self._settings.model,
            content=content,
            text=text,
            tool_calls=calls,
            unread=unread,
            stop_reason=stop_reason,
            latency_ms=latency_ms,
            usage=usage,
        )
        assembler.response(buffer, None, response, shared=shared, is_checked=is_checked)

    def add_plain_answer(
        self, source: Locator, message: Any, content: list[Any], text: str, calls: tuple[ToolCall, ...]
    ) -> None:
        """`add_answer` and `add_message` for an answer that says nothing else: the hot path of chats in lists."""
        assembler, buffer = self._assembler, self._buffer
        if not self._is_bare or buffer.open or buffer.pending:
            self.add_answer(source, content, text, calls, is_checked=True)
            self.add_message(message)
            return
        messages, turn, origin = self._messages, assembler.turns, buffer.origin
        request = Request(
            origin=origin,
            turn=turn,
            source=self._input_source or source,
            held_messages=Prefix(None, (messages, 0, len(messages))),
        )
        self._input_source = None
        assembler.requests += 1
        response = Response(
            origin=origin, turn=turn, source=source, request=request, content=content, text=text, tool_calls=calls
        )
        assembler.response(buffer, None, response, is_checked=True)
        messages.append(message)

    def place_calls(self, ids: Iterable[str]) -> None:
        """The calls of the latest answer with these ids were recorded after the results so far."""
        for call_id in ids:
            self._assembler.place_call(self._buffer, call_id, claims=False)

    def prefix(self) -> Prefix:
        """All messages so far."""
        start, end = 0, len(self._messages)
        if self._bounded and end > MOST_MESSAGES:
            start, self.is_truncated = end - MOST_MESSAGES, True
        return Prefix(None, (self._messages, start, end))

    def end_session(self) -> None:
        """No more of this session follows, if there was any of it."""
        if self._buffer.used:
            self._assembler.end_session(self._buffer)

    def resume(self) -> None:
        """More follows after `end`: what waited for an answer then may get it now."""
        if self._input_source is not None:
            self._assembler.take_back(self._buffer)

    def end(self) -> None:
        """Messages without an answer are a request without a response."""
        if self._input_source is not None:
            self._assembler.request(self._buffer, None, self._request(self._input_source, None))

    def _request(self, source: Locator, model: str | None) -> Request:
        settings = self._settings
        return Request(
            origin=self._buffer.origin,
            turn=self._assembler.turns,
            source=source,
            model=settings.model or model,
            held_messages=self.prefix() if self._whole_input is UNSET else self._whole_input,
            params=settings.params,
            held_tools=settings.tools,
            metadata=settings.metadata,
            held_others=settings.others,
        )


def truncation_notes(is_truncated: bool) -> list[str]:
    return [f"requests show only the {MOST_MESSAGES:,} messages before them"] if is_truncated else []
