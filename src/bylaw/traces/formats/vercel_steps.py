"""Steps of Vercel's AI SDK: what `generateText` and `streamText` return, or what `onStepFinish` got, one a line.

A step is a turn: the answer of the model, the calls in it and what they returned. Version 4 has `toolCalls` and
`toolResults` beside the text, later ones have it all in `content`. What was asked is recorded only in a request's body.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.traces.assembly.content import only_part
from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.chat import AnswerPart, GatheringReader, call_of
from bylaw.traces.formats.chat_message import results_in
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.record import MalformedRecord, Record, list_field, object_field, text_field

_CALLS, _RESULTS = "toolCalls", "toolResults"
_RETURNED = ("tool-result", "tool-error")


def claims(value: Any) -> bool:
    steps = value if isinstance(value, list) else list_field(value, "steps") or [value]
    return bool(steps) and all(map(_is_step, steps[:5]))


def _is_step(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("finishReason"), str) or "role" in value:
        return False
    if not isinstance(value.get("response"), dict) or not isinstance(value.get("usage"), dict):
        return False
    return isinstance(value.get("content"), list) or isinstance(value.get(_CALLS), list)


class VercelStepsReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        steps = value if isinstance(value, list) else value.get("steps") if isinstance(value, dict) else None
        if isinstance(steps, list):
            self.read_list(record, steps, () if steps is value else ("steps",), None)
            return
        if _is_step(value) and _answers(value) <= 1:
            self._close()  # the first step of another run
        self.read_open(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        if not _is_step(event):
            raise MalformedRecord("a step has no `finishReason`, `usage` or `response`, or neither content nor calls")
        request = read_request(parse_if_json(object_field(event, "request").get("body")))
        if request is not None and _answers(event) <= 1:
            yield from (AnswerPart(message) for message in request.chat())
        yield AnswerPart(_answer(event))
        for part in [*list_field(event, "content"), *list_field(event, _RESULTS)]:
            if isinstance(part, dict) and (part.get("type") in _RETURNED or "result" in part):
                yield AnswerPart(_result(part, event))


def _answers(step: dict[str, Any]) -> int:
    """How many answers the run has so far."""
    if isinstance(number := step.get("stepNumber"), int):
        return number + 1
    messages = list_field(object_field(step, "response"), "messages")
    return sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)


def _answer(step: dict[str, Any]) -> dict[str, Any]:
    response, about = object_field(step, "response"), object_field(step, "model")
    content = step.get("content")
    if isinstance(content, list):
        content = [part for part in content if not isinstance(part, dict) or part.get("type") not in _RETURNED]
    else:
        content = step.get("text")
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content,
        "finish_reason": text_field(step, "finishReason"),
        "usage": step.get("usage"),
        "model": text_field(response, "modelId") or text_field(about, "modelId"),
        "timestamp": response.get("timestamp"),
    }
    calls = [call for call in list_field(step, _CALLS) if isinstance(call, dict)]
    if calls and not isinstance(step.get("content"), list):
        message["tool_calls"] = [
            call_of(call.get("toolCallId"), call.get("toolName"), call.get("args", call.get("input"))) for call in calls
        ]
    return message


def _result(part: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """A result as a message. An error is no JSON, so its text is taken from the message that the model got."""
    failed = part.get("type") == "tool-error"
    call_id = text_field(part, "toolCallId")
    content = part.get("error") if failed else part.get("output", part.get("result"))
    if failed and not content:
        messages = (one for one in list_field(object_field(step, "response"), "messages") if isinstance(one, dict))
        sent = (result for message in messages for result in results_in(message) if result.call_id == call_id)
        content = next((result.content for result in sent), content)
    name = text_field(part, "toolName")
    flag = {"is_error": True} if failed else {}
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": only_part(content), **flag}
