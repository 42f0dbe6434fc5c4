"""CrewAI: the events of its bus, one a line, as a listener writes them with `model_dump`.

A completed call of a model holds the whole conversation and the answer: text, or a list of calls. Results stand in the
conversation of the next call of the model. Models without calls of their own write them as text, which CrewAI reads:
then the events of the tools are the calls.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import ToolCall, ToolResult
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.assembly.session_buffer import SessionBuffer
from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.messages import bare_calls
from bylaw.traces.formats.pairs import Pair, PairsReader
from bylaw.traces.formats.reader import OpenedFile, remember
from bylaw.traces.formats.record import MalformedRecord, Record, text_field
from bylaw.traces.formats.spans.attributes import latency_ms, moment

_ANSWERED, _ASKED, _FAILED = "llm_call_completed", "llm_call_started", "llm_call_failed"
_RAN = ("tool_usage_finished", "tool_usage_error")


def claims(value: Any) -> bool:
    return isinstance(value, dict) and "event_id" in value and "emission_sequence" in value and "type" in value


class CrewAiReader(PairsReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._started: dict[str, Any] = {}
        """when calls of a model began, by the ids of their events"""
        self._wrote: dict[Any, SessionBuffer] = {}
        """the session of an agent whose latest answer is text, by its task and its own id"""

    def read_record(self, record: Record) -> None:
        event = record.value
        if not record.expect_object("an event"):
            return
        kind, own = text_field(event, "type"), text_field(event, "event_id")
        if kind is None or own is None:
            record.bad("wrong-type", "an event has no `type` or no `event_id`")
        elif kind == _ASKED:
            remember(self._started, own, event.get("timestamp"))
        elif kind in (_ANSWERED, _FAILED):
            self._read_answer(record, event, is_answered=kind == _ANSWERED)
        elif kind in _RAN and (buffer := self._wrote.get(_speaker(event))) is not None:
            self._read_tool(record, buffer, event, kind)

    def _read_answer(self, record: Record, event: dict[str, Any], *, is_answered: bool) -> None:
        try:
            request = read_request({"messages": event.get("messages"), "model": event.get("model")})
            began = self._started.pop(text_field(event, "started_event_id") or "", None)
            times = {"start_time": began, "end_time": event.get("timestamp")}
            pair = Pair(request, {}, _answer(event) if is_answered else None, times)
            buffer = self._read(record, pair, ())
        except MalformedRecord as error:
            record.malformed(error)
            return
        self._wrote.pop(_speaker(event), None)
        if pair.answer is not None and "tool_calls" not in pair.answer:
            remember(self._wrote, _speaker(event), buffer)

    def _read_tool(self, record: Record, buffer: SessionBuffer, event: dict[str, Any], kind: str) -> None:
        name = text_field(event, "tool_name")
        if name is None:
            record.bad("wrong-type", "a tool has no `tool_name`")
            return
        source, arguments = record.locator(), read_arguments(event.get("tool_args"))[0]
        start, began = moment(event.get("started_at"))
        end, ended = moment(event.get("finished_at", event.get("timestamp")))
        call = ToolCall(
            origin=buffer.origin, at=began, source=source, name=name, call_id=event["event_id"], arguments=arguments
        )
        self._assembler.call(buffer, None, call)
        failed = kind != _RAN[0]
        result = ToolResult(
            origin=buffer.origin,
            at=ended,
            source=source,
            call_id=call.call_id,
            name=name,
            content=event.get("error") if failed else event.get("output"),
            is_error=failed,
            latency_ms=latency_ms(start, end),
        )
        self._assembler.result(buffer, result)


def _speaker(event: dict[str, Any]) -> tuple[Any, Any]:
    return text_field(event, "task_id"), text_field(event, "agent_id")


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    said = event.get("response")
    calls = bare_calls(said)
    if calls is None and not isinstance(said, str):
        raise MalformedRecord("the answer is neither text nor a list of calls", ("response",))
    answer = {"content": said} if calls is None else {"content": None, "tool_calls": calls}
    more = {key: event[key] for key in ("finish_reason", "model", "usage") if event.get(key) is not None}
    return {"role": "assistant", **answer, **more}
