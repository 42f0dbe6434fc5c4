"""Converts one call to a model into lines of a recording: a turn, new tool results, or why there is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, Struct, json

from bylaw.traces.assembly.content import AssistantContent, Result
from bylaw.traces.formats.bodies import PARAMS
from bylaw.traces.formats.bylaw.lines import AnnotationLine, HandwrittenResponseLine, Line, RequestLine, ToolResultLine
from bylaw.traces.formats.chat_message import read_assistant, results_in
from bylaw.traces.formats.record import MalformedRecord, text_field
from bylaw.traces.formats.responses_items import add_output, inline_result, is_output, kind_of, messages_of
from bylaw.wire.formats.base import Json, WireFormat

_RESPONSES = "openai_responses"
_ENDED = ("completed", "incomplete", "failed", "cancelled")
"""states of an OpenAI response that is final"""
_LINKS = ("previous_response_id", "conversation")


class ModelCall(Struct, frozen=True):
    """One attempt to ask a model, as it was observed."""

    wire: WireFormat
    request: Json
    reply: Json | None
    """the answer, or as much of it as was read; None: no answer that can be read"""
    began: float
    ended: float
    """seconds since 1970"""
    latency_ms: float
    is_whole: bool = True
    """False: the answer is cut off"""
    status: int | None = None
    error: str | None = None
    attempt: int | None = None
    """1 is the first; None if the client does not say"""


class Answer(Struct):
    """The answer of a model, independent of its wire format."""

    content: list[Any] | None
    stop_reason: str | None
    results: list[Result]
    """of calls that the provider executed itself"""
    problem: str | None = None

    @property
    def call_ids(self) -> list[str]:
        uses = (block for block in self.content or () if isinstance(block, dict) and "name" in block)
        return [block["id"] for block in uses if isinstance(block.get("id"), str)]


def lines_of(call: ModelCall, known: set[str]) -> list[Line]:
    """The lines of one call. `known` are the calls whose results were written already; it is updated."""
    messages = _messages(call)
    results = [_result_line(result, call.began) for result in _new_results(messages, known)]
    if call.reply is None:
        return [*results, _note("model_error", call, {"error": call.error or "no answer that can be read"})]
    answer = _answer(call)
    known.difference_update(answer.call_ids)
    lines = [*results, _request_line(call, messages), _response_line(call, answer)]
    lines += [_result_line(result, call.ended) for result in answer.results]
    if answer.problem is not None:
        lines.append(_note("unreadable_answer", call, {"error": answer.problem}))
    if not call.is_whole:
        lines.append(_note("incomplete_response", call, {"error": call.error or "the agent stopped reading"}))
    return lines


# The request


def _messages(call: ModelCall) -> list[Any]:
    if call.wire.name != _RESPONSES:
        return call.wire.messages(call.request)
    system = call.request.get("instructions")
    first = [{"role": "system", "content": system}] if isinstance(system, str) else []
    return [*first, *(messages_of(call.request["input"]) or ())]


def _new_results(messages: list[Any], known: set[str]) -> Iterator[Result]:
    """The results that this request is the first to contain: those after the last message of the model."""
    last = max((at for at, one in enumerate(messages) if _role(one) == "assistant"), default=-1)
    for message in messages[last + 1 :]:
        for result in results_in(message) if isinstance(message, dict) else ():
            if result.call_id is None or result.call_id not in known:
                if result.call_id is not None:
                    known.add(result.call_id)
                yield result


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _request_line(call: ModelCall, messages: list[Any]) -> RequestLine:
    request, tools = call.request, call.request.get("tools")
    params = {key: request[key] for key in (*PARAMS, "max_output_tokens", "stream", "text") if key in request}
    own = request.get("metadata")
    metadata = {"provider": call.wire.name, **(own if isinstance(own, dict) else {})}
    metadata |= {key: request[key] for key in _LINKS if request.get(key) is not None}
    line = RequestLine(model=text_field(request, "model"), params=params, metadata=metadata)
    line.at = _time(call.began)
    line.messages = Raw(json.encode(messages))
    line.tools = Raw(json.encode(tools if isinstance(tools, list) else []))  # the request was seen whole
    return line


def _result_line(result: Result, at: float) -> ToolResultLine:
    line = ToolResultLine(call_id=result.call_id, name=result.name, content=result.content, is_error=result.is_error)
    line.at = _time(at)
    return line


# The response


def _response_line(call: ModelCall, answer: Answer) -> HandwrittenResponseLine:
    assert call.reply is not None
    line = HandwrittenResponseLine(
        model=text_field(call.reply, "model"),
        content=answer.content,
        stop_reason=answer.stop_reason if call.is_whole else None,
        latency_ms=round(call.latency_ms, 3),
        usage=call.reply.get("usage"),
    )
    line.at = _time(call.ended)
    return line


def is_ended(wire: WireFormat, reply: Json) -> bool:
    """Whether a streamed reply states why it ended."""
    if wire.name == _RESPONSES:
        return reply.get("status") in _ENDED
    return text_field(wire.answer(reply), "finish_reason", "stop_reason") is not None


def _answer(call: ModelCall) -> Answer:
    assert call.reply is not None
    if call.wire.name == _RESPONSES:
        return _of_items(call.reply)
    message = call.wire.answer(call.reply)
    reason = text_field(message, "finish_reason", "stop_reason")
    try:
        blocks = read_assistant(message).blocks
    except MalformedRecord as error:
        return Answer(None, reason, [], error.message)
    return Answer(blocks, reason, list(results_in({"role": "assistant", "content": blocks})))


def _of_items(reply: Json) -> Answer:
    blocks: list[Any] = []
    content, results, problem = AssistantContent(blocks=blocks), [], None
    output = reply.get("output")
    for item in output if isinstance(output, list) else ():
        try:
            kind = kind_of(item)
            if not is_output(item, kind):
                blocks.append(item)
                continue
            add_output(item, kind, content)
            result = inline_result(item, kind)
        except MalformedRecord as error:
            problem = error.message
            continue
        if result is not None:
            results.append(result)
    details = reply.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return Answer(blocks, reason if isinstance(reason, str) else text_field(reply, "status"), results, problem)


# Notes


def _note(label: str, call: ModelCall, more: dict[str, Any]) -> AnnotationLine:
    data = {
        "provider": call.wire.name,
        "model": text_field(call.request, "model"),
        "status": call.status,
        "attempt": call.attempt,
        "latency_ms": round(call.latency_ms, 3),
        **more,
    }
    line = AnnotationLine(label=label, data={key: value for key, value in data.items() if value is not None})
    line.at = _time(call.ended)
    return line


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
