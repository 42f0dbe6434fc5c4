"""One call to a model: observed, then converted into lines of a recording.

The lines are a turn, new tool results, or why there is no answer. Observing an exchange changes and delays nothing.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, Struct, json

from bylaw.traces.assembly.content import AssistantContent, Result
from bylaw.traces.formats.bodies import PARAMS
from bylaw.traces.formats.bylaw.lines import AnnotationLine, HandwrittenResponseLine, Line, RequestLine, ToolResultLine
from bylaw.traces.formats.chat_message import read_assistant, results_in
from bylaw.traces.formats.record import MalformedRecord, text_field
from bylaw.traces.formats.responses_items import MARKS, add_item, conversation_of, is_item
from bylaw.wire.exchange import MOST_KEPT, Exchange, Incoming, decompress, is_stream, json_of
from bylaw.wire.formats.base import Json, WireFormat, read_events

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
    marks: list[dict[str, Any]] = []
    """items beside the answer, such as a request for an approval"""

    @property
    def call_ids(self) -> list[str]:
        uses = (block for block in self.content or () if isinstance(block, dict) and "name" in block)
        return [block["id"] for block in uses if isinstance(block.get("id"), str)]


def lines_of(call: ModelCall, known: set[str]) -> list[Line]:
    """The lines of one call. `known` are the calls whose results were written already; it is updated."""
    is_responses = call.wire.name == _RESPONSES
    messages = conversation_of(call.request) if is_responses else call.wire.messages(call.request)
    results = [_result_line(result, call.began) for result in _new_results(messages, known)]
    if call.reply is None:
        return [*results, _note("model_error", call, {"error": call.error or "no answer that can be read"})]
    answer = _answer(call)
    known.difference_update(answer.call_ids)
    lines = [*results, _request_line(call, messages), _response_line(call, answer)]
    lines += [_result_line(result, call.ended) for result in answer.results]
    lines += [AnnotationLine(at=_time(call.ended), label=item["type"], data=item) for item in answer.marks]
    if answer.problem is not None:
        lines.append(_note("unreadable_answer", call, {"error": answer.problem}))
    if not call.is_whole:
        lines.append(_note("incomplete_response", call, {"error": call.error or "the agent stopped reading"}))
    return lines


# The request


def _new_results(messages: list[Any], known: set[str]) -> Iterator[Result]:
    """The results that this request is the first to contain: those after the last message of the model."""
    answers = (at for at, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == "assistant")
    last = max(answers, default=-1)
    for message in messages[last + 1 :]:
        for result in results_in(message) if isinstance(message, dict) else ():
            if result.call_id is None or result.call_id not in known:
                if result.call_id is not None:
                    known.add(result.call_id)
                yield result


def _request_line(call: ModelCall, messages: list[Any]) -> RequestLine:
    request, tools = call.request, call.request.get("tools")
    params = {key: request[key] for key in (*PARAMS, "max_output_tokens", "stream", "text") if key in request}
    own = request.get("metadata")
    metadata = {"provider": call.wire.name, **(own if isinstance(own, dict) else {})}
    metadata |= {key: request[key] for key in _LINKS if request.get(key) is not None}
    return RequestLine(
        at=_time(call.began),
        model=text_field(request, "model"),
        params=params,
        metadata=metadata,
        messages=Raw(json.encode(messages)),
        tools=Raw(json.encode(tools if isinstance(tools, list) else [])),  # the request was seen whole
    )


def _result_line(result: Result, at: float) -> ToolResultLine:
    return ToolResultLine(
        at=_time(at), call_id=result.call_id, name=result.name, content=result.content, is_error=result.is_error
    )


# The response


def _response_line(call: ModelCall, answer: Answer) -> HandwrittenResponseLine:
    assert call.reply is not None
    return HandwrittenResponseLine(
        at=_time(call.ended),
        model=text_field(call.reply, "model"),
        content=answer.content,
        stop_reason=answer.stop_reason if call.is_whole else None,
        latency_ms=round(call.latency_ms, 3),
        usage=call.reply.get("usage"),
    )


def is_ended(wire: WireFormat, reply: Json) -> bool:
    """Whether a streamed reply states why it ended."""
    if wire.name == _RESPONSES:
        return reply.get("status") in _ENDED
    return text_field(wire.answer(reply), "finish_reason", "stop_reason") is not None


def _answer(call: ModelCall) -> Answer:
    assert call.reply is not None
    if call.wire.name == _RESPONSES:
        return _answer_from_items(call.reply)
    message = call.wire.answer(call.reply)
    reason = text_field(message, "finish_reason", "stop_reason")
    try:
        blocks = read_assistant(message).blocks
    except MalformedRecord as error:
        return Answer(None, reason, [], error.message)
    return Answer(blocks, reason, list(results_in({"role": "assistant", "content": blocks})))


def _answer_from_items(reply: Json) -> Answer:
    blocks: list[Any] = []
    content, marks = AssistantContent(blocks=blocks), []
    output = reply.get("output")
    for item in output if isinstance(output, list) else ():
        if is_item(item) and item["type"] in MARKS:
            marks.append(item)
        else:
            add_item(item, content)
    results = results_in({"role": "assistant", "content": blocks})
    details = reply.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    reason = reason if isinstance(reason, str) else text_field(reply, "status")
    return Answer(blocks, reason, results, marks=marks)


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
    data = {key: value for key, value in data.items() if value is not None}
    return AnnotationLine(at=_time(call.ended), label=label, data=data)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Observing an exchange


_RETRIES = "x-stainless-retry-count"
"""the header in which the clients of both providers count retries"""
_COUNT = re.compile(r"[0-9]{1,9}")
_LAST = re.compile(rb"data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|incomplete|failed))\n")
"""the start of the event that ends a stream"""


class RecordedExchange(Exchange):
    """Wraps another exchange, which decides what happens."""

    def __init__(
        self, inner: Exchange, wire: WireFormat, request: Json, over: Callable[[RecordedExchange, str | None], None]
    ) -> None:
        # INVARIANT: the attributes of Exchange are read from `inner`, so they are not set here
        self._inner = inner
        self._wire = wire
        self._request = request
        self._over = deque([over])
        """the thread that pops it reports the end; no lock, because a fork might leave it locked"""
        self._began = time.time()
        self._clock = time.perf_counter()
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._has_ended = False
        """the server has ended the body; else the agent stopped reading it, or the connection broke"""
        self._length: str | None = None
        """of a body in pieces, as the server announced it; as text, because it may be a number of any size"""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._inner.head(status, headers)
        self._status, self._headers = status, headers
        length = headers.get("content-length", "")
        self._length = (length.lstrip("0") or "0") if length.isascii() and length.isdigit() else None

    def answer(self, reply: Incoming) -> Incoming:
        answered = self._inner.answer(reply)
        self._status, self._headers = answered.status, answered.headers
        self._store(answered.body[: self._inner.cut_after])
        self._has_ended = True
        return answered

    def chunk(self, data: bytes) -> None:
        self._inner.chunk(data)
        self._store(data)
        if self._is_last(data):
            self._has_ended = True
            self.end()  # before the reader gets it: a caller that has the answer finds it in the file

    def body_end(self) -> None:
        self._inner.body_end()
        self._has_ended = True

    def _store(self, data: bytes) -> None:
        if len(self._body) <= MOST_KEPT:
            self._body += data

    def end(self, *, error: str | None = None) -> None:
        self._inner.end(error=error)
        self.finish(error=error)

    def finish(self, *, error: str | None = None) -> None:
        """Report the end to the recording, even if the exchange itself continues."""
        try:
            over = self._over.pop()
        except IndexError:
            return
        over(self, error)

    def _is_last(self, data: bytes) -> bool:
        """Whether this piece is known to be the last."""
        if self._length is not None:
            return self._length == str(len(self._body))
        if not data.endswith(b"\n\n"):
            return False
        event = self._body.rfind(b"\n\n", 0, -2)
        return _LAST.match(self._body, 0 if event < 0 else event + 2) is not None

    # The call

    def call(self, error: str | None) -> ModelCall:
        """The observed answer, read. It may have any shape, so reading it may raise any exception."""
        injected = self._inner.reply
        if self._status is None and injected is not None:  # a fault answered instead of the server
            self._status, self._headers, self._body = injected.status, injected.headers, bytearray(injected.body)
        reply, is_whole, unread = self._read()
        retries = self._inner.request.headers.get(_RETRIES, "")
        return ModelCall(
            wire=self._wire,
            request=self._request,
            reply=reply,
            began=self._began,
            ended=time.time(),
            latency_ms=(time.perf_counter() - self._clock) * 1000,
            is_whole=is_whole and (error is None or is_stream(self._headers)),  # a stream has a mark at its end
            status=self._status,
            error=error or unread,
            attempt=int(retries) + 1 if _COUNT.fullmatch(retries) else None,
        )

    def _read(self) -> tuple[Json | None, bool, str | None]:
        """The answer, whether it is complete, and what was read instead of it."""
        if self._status is None:
            return None, False, None
        if len(self._body) > MOST_KEPT:
            return None, False, f"the answer is larger than {MOST_KEPT >> 20} MB"
        body = decompress(Incoming(self._status, self._headers, bytes(self._body)))
        if body is None:
            encoding = self._headers.get("content-encoding", "")
            return None, False, f"the answer is compressed in a way that cannot be read: `{encoding[:50]}`"
        if self._status >= 400:
            return None, False, _error_in(body)
        if is_stream(self._headers) or body.lstrip()[:6] in (b"data: ", b"event:"):
            return self._read_stream(body)
        reply = json_of(body)
        if isinstance(reply, dict) and "error" in reply and not _is_answer(reply):
            return None, False, _error_in(body)
        if not isinstance(reply, dict):
            return None, False, None
        # The client of a body that is shorter than announced gets an error, also if all of the JSON has come.
        is_short = self._length is not None and self._length != str(len(self._body))
        return reply, not is_short, "the connection was broken off" if is_short else None

    def _read_stream(self, body: bytes) -> tuple[Json | None, bool, str | None]:
        events = read_events(body)
        reply = self._wire.collect(events)
        failed = next((event.data for event in events if _is_error(event.json)), None)
        error = None if failed is None else _error_in(failed.encode())
        if reply is None:
            return None, False, error
        is_whole = is_ended(self._wire, reply) or any(event.data.strip() == "[DONE]" for event in events)
        if not is_whole and error is None and self._inner.cut_after is not None:
            error = "the connection was broken off"
        elif not is_whole and error is None and self._has_ended:
            error = "the server ended the stream before the answer was complete"
        return reply, error is None and is_whole, error


def _is_answer(reply: Json) -> bool:
    """OpenAI's Responses have an `error` in every answer, which is usually null."""
    return any(key in reply for key in ("choices", "output", "content"))


def _is_error(data: Any) -> bool:
    return isinstance(data, dict) and (data.get("type") == "error" or isinstance(data.get("error"), dict))


def _error_in(body: bytes) -> str | None:
    """The error that a provider reports, such as `rate_limit_error: too many requests`."""
    data = json_of(body)
    error = data.get("error", data) if isinstance(data, dict) else None
    if isinstance(error, dict):
        parts = (error.get("type") or error.get("code"), error.get("message"))
        text = ": ".join(part for part in parts if isinstance(part, str) and part)
    else:
        text = error if isinstance(error, str) else body.decode("utf-8", "replace")
    return " ".join(text.split()) or None
