"""Records what an agent did in one run, as the events of a trace.

Three sources report the same things: requests to the model, tools that are called by name, and HTTP requests. So each
item is stored as it comes, from any thread, and the trace is assembled once, after the run. A call that a model issued
and a tool executed is one call. A result that a tool returned and the next request repeats is one result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from bylaw.model.events import Annotation, Message, Request, Response, ToolCall, ToolResult, Trace
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import calls_in, read_content
from bylaw.traces.assembly.session_buffer import KnownCall, is_same_call
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bodies import PARAMS, answer_of_items
from bylaw.traces.formats.chat_message import read_assistant, results_in
from bylaw.traces.formats.record import MalformedRecord, text_field
from bylaw.traces.formats.responses_items import conversation_of
from bylaw.traces.records.problems import Problems
from bylaw.wire.formats import format_named
from bylaw.wire.values import plain

_RESPONSES = "openai_responses"
_Item: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""a method of `_Assembly`, and its arguments"""


class Recorder:
    """The record of one run. Thread-safe."""

    def __init__(self, run: str, prompt: str) -> None:
        self.run = run
        self.prompt = prompt
        self._lock = threading.RLock()  # re-entrant: the garbage collector may end a discarded reply anywhere
        self._items: list[_Item] = []
        self._calls = 0

    @property
    def knows_tools(self) -> bool:
        """Whether a tool was called by name."""
        return self._calls > 0

    def model_turn(
        self, request: dict[str, Any], reply: dict[str, Any] | None, latency_ms: float | None, provider: str
    ) -> None:
        """The model was asked. `provider` is the wire format; no `reply` means no answer that can be read."""
        self._add(_Assembly.model_turn, request, reply, latency_ms, provider)

    def tool_called(self, name: str, arguments: Any, call_id: str | None = None) -> int:
        """A tool was called; the number is for `tool_returned`."""
        with self._lock:
            self._calls += 1
            number = self._calls
            self._add(_Assembly.tool_called, number, name, arguments, call_id)
        return number

    def tool_returned(self, number: int, content: Any, is_error: bool = False, latency_ms: float | None = None) -> None:
        self._add(_Assembly.tool_returned, number, content, is_error, latency_ms)

    def said(self, role: str, text: str) -> None:
        """An answer or a message of the user in the middle of a conversation."""
        self._add(_Assembly.said, role, text)

    def note(self, label: str, data: dict[str, Any]) -> None:
        """Anything else, such as an HTTP request of a tool."""
        self._add(_Assembly.note, label, data)

    def trace(self, answer: str | None, complete: bool) -> Trace:
        """The trace of the run; `answer` is the agent's final answer."""
        with self._lock:
            items = list(self._items)
        assembly = _Assembly(self.run, self.prompt)
        for method, arguments in items:
            method(assembly, *arguments)
        return assembly.finish(answer, complete=complete)

    def _add(self, method: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            self._items.append((method, (time.time(), *arguments)))


class _Assembly:
    """Assembles one run with the assembler that the readers of recorded traces use."""

    def __init__(self, run: str, prompt: str) -> None:
        self._run = run
        self._prompt = prompt
        self._problems = Problems(run, skip_bad=True)
        self._assembler = Assembler(self._problems)
        self._buffer = self._assembler.session(run)
        self._ids: dict[int, str] = {}
        """the id of each numbered call"""
        self._has_request = False
        self._latest_text: str | None = None
        """the text of the latest response"""

    def model_turn(
        self, at: float, request: dict[str, Any], reply: dict[str, Any] | None, latency_ms: float | None, provider: str
    ) -> None:
        wire = format_named(provider)
        is_responses = provider == _RESPONSES
        messages = conversation_of(request) if is_responses else wire.messages(request)
        self._add_new_results(at, messages)
        if reply is None:
            self.note(at, "model_error", {"provider": provider, "model": request.get("model")})
            return
        self._add_request(at, request, messages)
        message = wire.answer(reply)
        if is_responses and isinstance(reply.get("output"), list):  # with the calls that the provider has run itself
            message = {**message, **answer_of_items(reply["output"]), "tool_calls": []}
        self._add_response(at, message, latency_ms)
        self._add_new_results(at, [message])

    def tool_called(self, at: float, number: int, name: str, arguments: Any, call_id: str | None) -> None:
        if not self._has_request:
            self._add_request(at, {}, [{"role": "user", "content": self._prompt}])
        call = ToolCall(
            origin=self._buffer.origin,
            at=at,
            name=name,
            call_id=call_id or f"call-{number}",
            arguments=plain(arguments),
        )
        issued = self._issued(call, call_id)
        if issued is not None:
            issued.claimed = True
            self._ids[number] = issued.call.call_id
            return
        self._ids[number] = call.call_id
        self._assembler.call(self._buffer, None, call)

    def tool_returned(self, at: float, number: int, content: Any, is_error: bool, latency_ms: float | None) -> None:
        result = ToolResult(
            origin=self._buffer.origin,
            at=at,
            call_id=self._ids.get(number),
            content=plain(content),
            is_error=is_error,
            latency_ms=latency_ms,
        )
        self._assembler.result(self._buffer, result)

    def said(self, at: float, role: str, text: str) -> None:
        if role == "user" or text != self._latest_text:
            self._assembler.add(Message(origin=self._buffer.origin, at=at, role=role, content=text))

    def note(self, at: float, label: str, data: dict[str, Any]) -> None:
        self._assembler.add(Annotation(origin=self._buffer.origin, at=at, label=label, data=plain(data)))

    def finish(self, answer: str | None, *, complete: bool) -> Trace:
        """`answer` is the agent's final answer, which may differ from what a model answered."""
        if not self._has_request:
            self._add_request(None, {}, [{"role": "user", "content": self._prompt}])
        if answer is not None and self._buffer.open:
            self._add_response(None, {"role": "assistant", "content": answer}, None)
        elif answer is not None and answer != self._latest_text:
            self._assembler.add(Message(origin=self._buffer.origin, role="assistant", content=answer))
        events = tuple(self._assembler.take_all())
        return Trace(
            name=self._run,
            format="live",
            events=events,
            complete=complete,
            problems=tuple(self._problems.listed),
            skipped=self._problems.skipped,
        )

    def _add_request(self, at: float | None, request: dict[str, Any], messages: list[Any]) -> None:
        tools, metadata = request.get("tools"), request.get("metadata")
        params = {key: request[key] for key in PARAMS if key in request}
        self._has_request = True
        self._assembler.request(
            self._buffer,
            None,
            Request(
                origin=self._buffer.origin,
                turn=self._assembler.turns,
                at=at,
                model=text_field(request, "model"),
                held_messages=messages,
                params=params,  # the request was seen whole: what it does not have is empty, not unknown
                held_tools=tools if isinstance(tools, list) else [],
                metadata=metadata if isinstance(metadata, dict) else {},
            ),
        )

    def _add_response(self, at: float | None, message: dict[str, Any], latency_ms: float | None) -> None:
        assembler, origin = self._assembler, self._buffer.origin
        try:
            parts = read_assistant(message)
        except MalformedRecord as error:  # the answer of a broken model is kept as far as it can be read
            self.note(at or 0, "unreadable_answer", {"reason": error.message})
            parts = read_assistant({"content": None})
        content, text, _ = read_content(parts.blocks)
        calls, _ = calls_in(parts.uses, origin, assembler.turns, at, None, parts.arguments)
        self._latest_text = text
        assembler.response(
            self._buffer,
            None,
            Response(
                origin=origin,
                turn=assembler.turns,
                at=at,
                request=assembler.answered(self._buffer, None),
                model=text_field(message, "model"),
                content=content,
                text=text,
                tool_calls=calls,
                stop_reason=text_field(message, "stop_reason", "finish_reason"),
                latency_ms=latency_ms,
                usage=read_usage(message.get("usage"), text_field(message, "model"))[0],
            ),
        )

    def _add_new_results(self, at: float, messages: list[Any]) -> None:
        """A request repeats the whole conversation: only results that were not reported yet are added."""
        for message in messages:
            for result in results_in(message) if isinstance(message, dict) else ():
                known = self._buffer.calls.get(result.call_id or "")
                if known is not None and not known.answered:
                    self._assembler.result(
                        self._buffer,
                        ToolResult(
                            origin=self._buffer.origin,
                            at=at,
                            call_id=result.call_id,
                            name=result.name,
                            content=result.content,
                            is_error=result.is_error,
                        ),
                    )

    def _issued(self, call: ToolCall, call_id: str | None) -> KnownCall | None:
        """The call of the model that a tool now executes: by its id, else by name and equal arguments."""
        if call_id is not None and call_id in self._buffer.calls:
            return self._buffer.calls[call_id]
        waiting = (known for known in self._buffer.calls.values() if not known.claimed and not known.answered)
        return next((known for known in waiting if is_same_call(known.call, call)), None)
