"""Puts together what a recorder was told: the same assembly of turns that the readers of recorded traces use."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Annotation, Message, Request, Response, ToolCall, ToolResult
from bylaw.model.trace import Trace
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.blocks import read_content
from bylaw.traces.assembly.calls import calls_in
from bylaw.traces.assembly.lane import Known, same_call
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.chat.message import Misshapen, results_in, said, text_field
from bylaw.traces.formats.chat.reader import PARAMS
from bylaw.traces.records.problems import Problems
from bylaw.wire.formats import wire_named
from bylaw.wire.values import plain


class Recording:
    """One run, assembled in the order in which things happened."""

    def __init__(self, run: str, prompt: str) -> None:
        self._run = run
        self._prompt = prompt
        self._problems = Problems(run, skip_bad=True)
        self._assembler = Assembler(self._problems)
        self._lane = self._assembler.lane(run)
        self._ids: dict[int, str] = {}
        """the id of the call behind each token"""
        self._asked = False
        self._said: str | None = None
        """the text of the latest response"""

    def model_turn(
        self,
        at: float,
        request: dict[str, Any],
        reply: dict[str, Any] | None,
        latency_ms: float | None,
        provider: str,
    ) -> None:
        wire = wire_named(provider)
        messages = wire.messages(request)
        self._results_handed_on(at, messages)
        if reply is None:
            self.noted(at, "model_error", {"provider": provider, "model": request.get("model")})
            return
        self._ask(at, request, messages)
        self._answer(at, wire.answer(reply), latency_ms)

    def called(self, at: float, token: int, name: str, arguments: Any, call_id: str | None) -> None:
        if not self._asked:
            self._ask(at, {}, [{"role": "user", "content": self._prompt}])
        call = ToolCall(
            origin=self._lane.origin, at=at, name=name, call_id=call_id or f"call-{token}", arguments=plain(arguments)
        )
        issued = self._issued(call, call_id)
        if issued is not None:
            issued.claimed = True
            self._ids[token] = issued.call.call_id
            return
        self._ids[token] = call.call_id
        self._assembler.call(self._lane, None, call)

    def returned(self, at: float, token: int, content: Any, is_error: bool, latency_ms: float | None) -> None:
        result = ToolResult(
            origin=self._lane.origin,
            at=at,
            call_id=self._ids.get(token),
            content=plain(content),
            is_error=is_error,
            latency_ms=latency_ms,
        )
        self._assembler.result(self._lane, result)

    def noted(self, at: float, label: str, data: dict[str, Any]) -> None:
        self._assembler.add(Annotation(origin=self._lane.origin, at=at, label=label, data=plain(data)))

    def finish(self, answer: str | None, *, complete: bool) -> Trace:
        """`answer` is what the agent said in the end, which need not be what a model said."""
        if not self._asked:
            self._ask(None, {}, [{"role": "user", "content": self._prompt}])
        if answer is not None and self._lane.open:
            self._answer(None, {"role": "assistant", "content": answer}, None)
        elif answer is not None and answer != self._said:
            self._assembler.add(Message(origin=self._lane.origin, role="assistant", content=answer))
        events = tuple(self._assembler.take_all())
        return Trace(
            name=self._run,
            format="live",
            events=events,
            complete=complete,
            problems=tuple(self._problems.listed),
            skipped=self._problems.skipped,
        )

    # One turn

    def _ask(self, at: float | None, request: dict[str, Any], messages: list[Any]) -> None:
        tools = request.get("tools")
        params = {key: request[key] for key in PARAMS if key in request}
        self._asked = True
        self._assembler.request(
            self._lane,
            None,
            Request(
                origin=self._lane.origin,
                turn=self._assembler.turns,
                at=at,
                model=text_field(request, "model"),
                held_messages=messages,
                params=params or None,
                held_tools=tools if isinstance(tools, list) else None,
            ),
        )

    def _answer(self, at: float | None, message: dict[str, Any], latency_ms: float | None) -> None:
        assembler, origin = self._assembler, self._lane.origin
        try:
            told = said(message)
        except Misshapen as error:  # what a broken model says is kept as far as it can be read
            self.noted(at or 0, "unreadable_answer", {"reason": error.message})
            told = said({"content": None})
        content, text, _ = read_content(told.blocks)
        calls, _ = calls_in(told.uses, origin, assembler.turns, at, None, told.arguments)
        self._said = text
        assembler.response(
            self._lane,
            None,
            Response(
                origin=origin,
                turn=assembler.turns,
                at=at,
                request=assembler.answered(self._lane, None),
                model=text_field(message, "model"),
                content=content,
                text=text,
                tool_calls=calls,
                stop_reason=text_field(message, "stop_reason", "finish_reason"),
                latency_ms=latency_ms,
                usage=read_usage(message.get("usage"), text_field(message, "model"))[0],
            ),
        )

    def _results_handed_on(self, at: float, messages: list[Any]) -> None:
        """A request repeats the whole conversation: of its results only those that nobody told yet are news."""
        for message in messages:
            for result in results_in(message) if isinstance(message, dict) else ():
                known = self._lane.calls.get(result.call_id or "")
                if known is not None and not known.answered:
                    self._assembler.result(
                        self._lane,
                        ToolResult(
                            origin=self._lane.origin,
                            at=at,
                            call_id=result.call_id,
                            name=result.name,
                            content=result.content,
                            is_error=result.is_error,
                        ),
                    )

    def _issued(self, call: ToolCall, call_id: str | None) -> Known | None:
        """The call of the model's that a tool now executes: by its id, else by name and equal arguments."""
        if call_id is not None and call_id in self._lane.calls:
            return self._lane.calls[call_id]
        waiting = (known for known in self._lane.calls.values() if not known.claimed and not known.answered)
        return next((known for known in waiting if same_call(known.call, call)), None)
