"""Logs of proxies, clients and browsers: requests to a model's API, each with the response it got.

Both bodies are the provider's own, under the names that loggers give them, plain, as text, or streamed. A request
repeats its conversation, so it shows which one it continues and which results came since, unless the log names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Deferred, Event
from bylaw.traces.assembly.content import EVERYTHING
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.session_buffer import SessionBuffer
from bylaw.traces.assembly.sessions import UNCLEAR, SessionsBy, SessionsInOrder
from bylaw.traces.formats.bodies import RequestBody, add_repeated_results, read_answer, read_request
from bylaw.traces.formats.body_text import (
    StreamedResponses,
    decode_base64,
    is_cut,
    is_finished,
    is_stream_event,
    is_unreadable,
    read_body,
)
from bylaw.traces.formats.chat import read_recorded_usage
from bylaw.traces.formats.chat_message import ASSISTANT, item_of, read_assistant, time_of
from bylaw.traces.formats.messages import chat_message, first_answer, parse_if_json
from bylaw.traces.formats.reader import (
    LOGGED_TWICE,
    ConversationReader,
    LoggedRecords,
    OpenedFile,
    add_answer,
    remember,
)
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field
from bylaw.traces.formats.spans.attributes import latency_ms, moment

_REQUESTS = ("request", "body", "request_body", "requestBody", "input", "kwargs")
_RESPONSES = ("response", "response_body", "responseBody", "output", "completion", "result")
_WRAPPERS = ("body", "json", "parsed_body", "content", "inputBodyJson", "outputBodyJson")
_BATCH = "custom_id"
"""names the request of a row in the output of a batch, as OpenAI and Anthropic write it"""
_NOT_RUN = ("canceled", "cancelled", "expired", "errored")
_SESSIONS = ("session_id", "sessionId", "conversation_id", "thread_id")
_FAILURES = ("error", "exception", "fail", "detail")
"""how the keys of a response that is no answer begin"""
_STATUSES = ("status", "status_code", "statusCode")
_CUT = "the response ends too early, or is empty: its log cut it off"
_UNREADABLE = "this response is not read: it is no body of a known API, or encoded in an unknown way"
_CHUNK = "this is a part of a streamed response: its parts are read if they are the `response` of one record"
_STARTS, _ENDS = ("startTime", "start_time", "timestamp", "created_at"), ("endTime", "end_time")


class Pair(Struct, frozen=True):
    """A request and the answer in its response. Of a log with gaps, one of them may be None."""

    request: RequestBody | None
    body: dict[str, Any]
    """of the request"""
    answer: dict[str, Any] | None
    record: dict[str, Any]
    path: Path = ()
    is_certain: bool = True
    """both are bodies of an API, rather than messages or text, which spans and rows of other formats hold too"""

    @property
    def unread(self) -> str | None:
        """Why the response may hold more than is read: its text does not end, or it is no body that is known."""
        if self.answer is None and _is_answered(self.request):
            return None
        texts = list(_texts(self.record))
        if any(map(is_cut, texts)):
            return _CUT
        if self.answer is None:
            return _UNREADABLE if _is_unknown(self.record) else None
        is_text = self.answer.keys() == {"role", "content"} and self.answer["content"] is None
        is_lost = is_text and any(isinstance(text, str) and is_unreadable(text) for text in texts)
        return _UNREADABLE if is_lost else None


def claims(value: Any) -> bool:
    return is_stream_event(value) or _is_lone_response(value) or any(pair.is_certain for pair in _split_pair(value))


def _is_lone_response(value: Any) -> bool:
    """A response without its request: of Gemini's API or of Bedrock's Converse, or in the output of a batch."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and isinstance(first.get(_BATCH), str):
        return any(pair.answer is not None for pair in pairs_in(first))
    if not isinstance(first, dict) or read_answer(first) is None:
        return False
    return is_finished([first]) if "candidates" in first else isinstance(first.get("stopReason"), str)


def resembles(value: Any) -> bool:
    """Whether this may be a pair if no other format claims it."""
    return bool(_split_pair(value))


def _split_pair(value: Any) -> list[Pair]:
    if isinstance(value, list):
        value = value[0] if value else None
    pairs = pairs_in(value) if isinstance(value, dict) else ()
    return [pair for pair in pairs if pair.answer is not None and pair.request is not None]


def pairs_in(value: dict[str, Any]) -> list[Pair]:
    """The pair that a record is, or all those that it holds by name, in their order."""
    found = _pair(value, ())
    if found is not None:
        return [found]
    parts = [(key, part) for key, part in value.items() if isinstance(part, dict)]
    if not parts or len(parts) < len(value):
        return []
    pairs = [_pair(part, (key,)) for key, part in parts]
    return sorted((pair for pair in pairs if pair is not None), key=_order) if None not in pairs else []


def _pair(record: dict[str, Any], path: Path) -> Pair | None:
    bodies = [body for key in _RESPONSES if key in record for body in _bodies(record[key])]
    answer = next((found for body in bodies if (found := read_answer(body)) is not None), None)
    is_certain = answer is not None
    if answer is None:
        # the message of an answer, logged without its body
        bare = [body for body in bodies if isinstance(body, dict) and body.get("role") == ASSISTANT]
        answer = next(filter(None, (first_answer(chat_message(body, ASSISTANT)) for body in bare)), None)
    if answer is None and (not any(key in record for key in _RESPONSES) or "object" in record):
        alone = read_answer(record)
        if alone is None or path:
            return None
        request = read_request(record)  # some loggers add the fields of the response to those of the request
        return Pair(request, {} if request is None else record, alone, {"response": record, **record})
    for body in (*(body for key in _REQUESTS if key in record for body in _bodies(record[key])), record):
        is_list = isinstance(body, list) and all(isinstance(one, dict) and "role" in one for one in body)
        request = read_request({"messages": body} if is_list else body)
        if request is not None:
            fields = object_field({"": body}, "")
            is_certain = is_certain and not is_list
            return Pair(request, fields, answer or _text_answer(record, request), record, path, is_certain)
    return None if answer is None or path else Pair(None, {}, answer, record)


def _text_answer(record: dict[str, Any], request: RequestBody) -> dict[str, Any] | None:
    """An answer of which only the text was logged. A list that ends with an answer holds it already."""
    if _is_answered(request):
        return None
    text = text_field(record, *_RESPONSES)
    return None if text is None else {"role": ASSISTANT, "content": None if is_unreadable(text) else text}


def _is_unknown(record: dict[str, Any]) -> bool:
    """Whether there is a response, and it does not say that the request failed."""
    found = [value for key in _RESPONSES if isinstance(value := record.get(key), (dict, list)) and value]
    fields = [*record.items(), *(item for value in found if isinstance(value, dict) for item in value.items())]
    return bool(found) and not any(
        (value and key.lower().startswith(_FAILURES))
        or (key in _STATUSES and isinstance(value, int) and value >= 400)
        or (key == "type" and value in _NOT_RUN)
        for key, value in fields
    )


def _is_answered(request: RequestBody | None) -> bool:
    last = None if request is None else request.messages[-1]
    return isinstance(last, dict) and last.get("role") == ASSISTANT


def _bodies(value: Any) -> Iterator[Any]:
    """A body, or what it is wrapped in."""
    value = read_body(value)
    yield value
    for key in _WRAPPERS if isinstance(value, dict) else ():
        if key in value:
            yield read_body(value[key])


def _texts(record: dict[str, Any]) -> Iterator[str | list[Any]]:
    """The responses of a record that are text, or the events of a stream."""
    for value in (record[key] for key in _RESPONSES if key in record):
        wrapped = [value[key] for key in _WRAPPERS if key in value] if isinstance(value, dict) else ()
        yield from (one for one in (value, *wrapped) if isinstance(one, (str, list)))


def _order(pair: Pair) -> tuple[float, int]:
    at = moment(time_of(pair.answer or {}))[0]
    return (0.0 if at is None else at, 0 if pair.request is None else len(pair.request.messages))


class PairsReader(ConversationReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._sessions = SessionsInOrder(self._assembler, SessionsBy.HISTORY)
        self._chains: dict[str, SessionBuffer] = {}
        """the session of each response, by its id"""
        self._traces: dict[str | None, SessionBuffer] = {}
        """the session of each trace of LiteLLM, which makes a new trace for each request unless it is given one"""
        self._is_unclear = False
        self._logged = LoggedRecords()
        self._streamed = StreamedResponses()
        self._last: Record | None = None
        """the latest event of a stream"""

    def finish(self) -> list[Event]:
        if self._last is not None:
            self._read_bodies(self._last, self._streamed.end())
            self.complete = self.complete and not self._streamed.is_cut
        return super().finish()

    def _read_bodies(self, record: Record, bodies: list[Any]) -> None:
        for body in bodies:
            answer = read_answer(body)
            if answer is None:
                record.bad("wrong-type", "the events of this response are not read")
                continue
            try:
                self._read(record, Pair(None, {}, answer, {}), ())
            except MalformedRecord as error:
                record.malformed(error)

    def read_record(self, record: Record) -> None:
        if is_stream_event(record.value):
            self._last = record
            self._read_bodies(record, self._streamed.add(record.value))
            return
        listed = record.value if isinstance(record.value, list) else [record.value]
        for index, value in enumerate(listed):
            path: Path = (index,) if listed is record.value else ()
            pairs = pairs_in(value) if isinstance(value, dict) else []
            if any(pair.request is None for pair in pairs) and "candidates" in value and not is_finished([value]):
                record.bad("wrong-type", _CHUNK, path)
                continue
            for pair in pairs:
                if self._is_logged(record, pair, (*path, *pair.path)):
                    continue
                try:
                    self._read(record, pair, (*path, *pair.path))
                except MalformedRecord as error:
                    record.malformed(error, (*path, *pair.path))
            if not pairs and not (isinstance(value, dict) and _BATCH in value and not _is_unknown(value)):
                record.bad("wrong-type", "this is no request to a model with its response", path)

    def notes(self) -> list[str]:
        cut = ["a streamed response is cut off, and read as far as it goes"] if self._streamed.is_cut else []
        return [*self._sessions.notes(), *super().notes(), *cut]

    def _is_logged(self, record: Record, pair: Pair, path: Path) -> bool:
        """Whether a pair with the same id of a call and the same request was read before."""
        id = text_field(pair.record, "litellm_call_id") or text_field(pair.record, "id")
        if id is None or pair.answer is None:
            return False
        asked = pair.answer if pair.request is None else pair.request.messages  # some servers give all one id
        same = self._logged.repeats((id, hash(msgspec.json.encode(asked))), pair.answer)
        if same is False:
            record.warn("unread-content", LOGGED_TWICE.format(id), path)
            self._assembler.lack_call(self._sessions.current, EVERYTHING[0])
        return same is not None

    def _read(self, record: Record, pair: Pair, path: Path) -> SessionBuffer:
        request, message, source = pair.request, pair.answer, record.locator(item_of(path))
        messages = request.chat() if request is not None else []
        buffer = self._session(record, pair, messages, path)
        settings = Settings()
        if request is not None:
            settings = Settings(model=request.model, params=request.params, tools=request.tools)
        conversation = Conversation(self._assembler, buffer, settings, bounded=True)
        add_repeated_results(self._assembler, buffer, messages, source)
        conversation.set_input(None if request is None else Deferred(RequestBody.chat, request), source)
        unread = pair.unread
        if unread is not None:
            record.warn("unread-content", unread, path)
            self.complete = False
        if message is None:
            conversation.end()
            return buffer
        answer = read_assistant(message)
        (start, began), (end, ended) = (_moment(pair.record, keys) for keys in (_STARTS, _ENDS))
        at = began if ended is None else ended
        add_answer(
            conversation,
            record,
            answer,
            source,
            path=path,
            unread=() if unread is None else EVERYTHING,
            at=time_of(message) if at is None else at,
            model=text_field(message, "model"),
            stop_reason=text_field(message, "finish_reason", "stop_reason"),
            latency_ms=latency_ms(start, end),
            usage=read_recorded_usage(record, message, (*path, "response", "usage")),
        )
        if buffer is self._sessions.current:
            self._sessions.response(answer.blocks, None, text_field(message, "finish_reason", "stop_reason"))
        own = text_field(object_field(pair.record, "response"), "id")
        if own is not None:
            remember(self._chains, own, buffer)
        return buffer

    def _session(self, record: Record, pair: Pair, messages: list[Any], path: Path) -> SessionBuffer:
        """The session that the log names, or that the request continues."""
        response = object_field(pair.record, "response")
        before = text_field(pair.body, "previous_response_id") or text_field(response, "previous_response_id")
        if before is not None and before in self._chains:
            return self._chains[before]
        metadata = object_field(pair.record, "metadata"), object_field(pair.body, "metadata")
        named = next(filter(None, (text_field(place, *_SESSIONS) for place in (pair.record, *metadata))), None)
        if named:
            return self._assembler.session(named)
        trace = text_field(pair.record, "trace_id") if "litellm_call_id" in pair.record else None
        if trace in self._traces:
            return self._traces[trace]
        buffer = self._continued(record, messages, path)
        if trace:
            remember(self._traces, trace, buffer)
        return buffer

    def _continued(self, record: Record, messages: list[Any], path: Path) -> SessionBuffer:
        """The session that the request continues by its messages, or a new one."""
        if not messages:  # all responses of a stream belong together
            return self._sessions.current if self._last is not None else self._sessions.start()
        if not self._sessions.request(msgspec.json.encode(messages), None) and not self._is_unclear:
            self._is_unclear = True  # once is enough
            record.warn("unclear-session", UNCLEAR.format(self._sessions.current.origin.session), path)
        return self._sessions.current


def _moment(record: dict[str, Any], keys: tuple[str, ...]) -> tuple[float | None, str | float | None]:
    return next((found for key in keys if (found := moment(record.get(key)))[1] is not None), (None, None))


# HAR: what a browser or a debugging proxy recorded of HTTP. Requests to a model are read as a log of pairs is.


_SUCCEEDED = range(200, 300)
_MESSAGES = frozenset(("messages", "contents", "input"))
_NO_ANSWER = "the response to this request is not in the file, or cannot be read"


def claims_har(value: Any) -> bool:
    log = object_field(value, "log")
    return isinstance(log.get("version"), str) and isinstance(log.get("entries"), list)


class HarReader(PairsReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._others = 0
        """requests that are not to a model"""

    def read_record(self, record: Record) -> None:
        entries = list_field(object_field(record.value, "log"), "entries")
        if not entries and record.expect_object("a recording"):
            return
        order = sorted(range(len(entries)), key=lambda index: (_start_time(entries[index]), index))
        for index in order:
            path = ("log", "entries", index)
            exchange = _exchange(entries[index])
            pairs = [] if exchange is None else pairs_in(exchange) or _unanswered_request(exchange)
            self._others += not pairs
            if pairs and pairs[0].answer is None and _status(entries[index]) in _SUCCEEDED:
                record.warn("unread-content", _NO_ANSWER, path)
                self.complete = False
            for pair in pairs:
                try:
                    self._read(record, pair, path)
                except MalformedRecord as error:
                    record.malformed(error, path)

    def notes(self) -> list[str]:
        noun = "request is" if self._others == 1 else "requests are"
        return [*super().notes(), *([f"{self._others:,} {noun} not to a model"] if self._others else [])]


def _exchange(entry: Any) -> dict[str, Any] | None:
    """One entry in the shape of a proxy's log."""
    posted = text_field(object_field(object_field(entry, "request"), "postData"), "text")
    if posted is None:
        return None
    content = object_field(object_field(entry, "response"), "content")
    text = text_field(content, "text") if _status(entry) in _SUCCEEDED else None  # an error is no answer
    if text is not None and content.get("encoding") == "base64":
        text = decode_base64(text)
    exchange = {"request": posted, "response": text, "start_time": entry.get("startedDateTime")}
    return {key: value for key, value in {**exchange, "end_time": _end_time(entry)}.items() if value is not None}


def _unanswered_request(exchange: dict[str, Any]) -> list[Pair]:
    """A request to a model whose response failed, or is not in the file."""
    body = parse_if_json(exchange["request"])
    if (
        isinstance(parse_if_json(exchange.get("response")), dict)
        and isinstance(body, dict)
        and _MESSAGES & body.keys() == {"input"}
    ):
        return []  # other interfaces take an `input` too, such as that for embeddings
    request = read_request(body) if isinstance(body, dict) and not _MESSAGES.isdisjoint(body) else None
    return [] if request is None else [Pair(request, body, None, exchange)]


def _status(entry: dict[str, Any]) -> Any:
    return object_field(entry, "response").get("status")


def _start_time(entry: Any) -> str:
    return (text_field(entry, "startedDateTime") or "") if isinstance(entry, dict) else ""


def _end_time(entry: dict[str, Any]) -> str | None:
    took = entry.get("time")
    if not isinstance(took, (int, float)) or took < 0:
        return None
    try:
        return (datetime.fromisoformat(_start_time(entry)) + timedelta(milliseconds=took)).isoformat()
    except (ValueError, OverflowError):
        return None
