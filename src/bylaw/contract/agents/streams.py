"""Puts a streamed answer together: a stream in an HTTP reply, in a text, or as a JSON list. `replies` reads generators.

Known are the streams of OpenAI (chat, Responses), Anthropic and Gemini, events and lines with one field of text each,
plain text in events, and data streams of Vercel's AI SDK. A stream in which no text is found, or that is cut off, is a
failure: judging its raw form would pass whatever is split over two of its events.

An event of OpenAI, Anthropic or Gemini holds its text where the provider puts it. Any other holds it in one of the
usual fields. Events that report a tool, what the model thinks, or progress are not part of the answer.

A connection that breaks can look like the end of a stream: only the mark of its format tells. Formats with a mark:
OpenAI's chat completions (`finish_reason` of each choice, or `[DONE]`) and Responses (`response.completed`,
`response.incomplete`), Anthropic (`message_stop`), Gemini (`finishReason`), Ollama and others with `done`, Bedrock
(`messageStop`), Vercel's AI SDK (`text-end`, `finish`), AG-UI (`RUN_FINISHED`), Cohere (`message-end`). A stream in any
other form has none.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from bylaw.contract.agents.answers import (
    IS_METADATA,
    ReportsFailure,
    answer_text,
    excerpt,
    reported_failure,
    text_at_path,
)
from bylaw.contract.live_agent import Failure
from bylaw.wire.exchange import json_of
from bylaw.wire.formats import FORMATS
from bylaw.wire.formats.base import Event, read_events

_EVENTS = "text/event-stream"
_LINES = ("ndjson", "jsonl", "jsonlines", "json-lines", "json-seq", "stream+json")
FIELD = re.compile(rb"(?:data|event|id|retry)?:")


def read_stream(content_type: str, body: bytes, path: str | None) -> str | Failure | None:
    """The answer in a body that is a stream; None if it is not one. `path`: where each event holds its text."""
    content_type, body = content_type.lower(), body.removeprefix(codecs.BOM_UTF8)
    if content_type.startswith(_EVENTS) or _consists_of_events(body):
        return _read_events(body, path, is_declared=content_type.startswith(_EVENTS))
    is_declared = any(kind in content_type for kind in _LINES)
    whole = msgspec.UNSET if is_declared else json_of(body)
    if whole is not msgspec.UNSET:
        return read_list(whole, path) if isinstance(whole, list) else None
    text = body.decode("utf-8", "replace")
    if is_declared:
        return join_events(_lines(text), path)
    parts = _vercel_parts(text)
    if parts:
        return join_events(parts, path)
    events = _objects_in_a_row(text)
    if events:
        is_stream = _are_events(events, path)
        return join_events(events, path) if is_stream else no_text_failure(len(events), "objects")
    events = _lines(text)
    return join_events(events, path) if len(events) > 1 and _are_events(events, path) else None


def _lines(text: str) -> list[Event]:
    lines = _LINE_END.split(text.replace("\x1e", "\n"))
    return [Event(None, line, 0) for line in lines if line.strip()]


_LINE_END = re.compile(r"\r\n|\n|\r")


def _is_unread(event: Event) -> bool:
    """Whether it begins like JSON and is not."""
    return event.data.lstrip()[:1] in ("{", "[") and event.json is None


def read_list(items: list[Any], path: str | None = None) -> str | Failure | None:
    """The answer in a list of events, of messages, or of pieces of a text; None for a list of anything else."""
    if not items or not all(isinstance(item, dict) for item in items):
        are_pieces = len(items) > 1 and all(isinstance(item, str) for item in items)
        # Pieces of a text have spaces where they were cut; the names in a list have none.
        return "".join(items) if are_pieces and any(item != item.strip() for item in items) else None
    failures = [reported_failure(item) for item in items]
    if failures[0] is not None and None not in failures:
        return failures[0]
    if path is not None and not path.partition(".")[0].isdigit():
        return join_at_path([Event(None, msgspec.json.encode(item).decode(), 0) for item in items], path)
    if path is None and all(isinstance(item.get("role"), str) and "content" in item for item in items):
        return answer_text({"messages": items})
    if path is None and are_stream_events(items):
        failed = next((error for item in items if (error := error_in(None, item)) is not None), None)
        return join_values(items) if failed is None else Failure("error", f"the stream reports an error: {failed}")
    return None


def _consists_of_events(body: bytes) -> bool:
    """Whether every line is a field of an event. One line alone may be a word that looks like a field."""
    lines = [line for line in body.splitlines() if line.strip()]
    data = [line for line in lines if line.startswith(b"data:")]
    is_long = len(data) > 1 or any(line[5:].lstrip()[:1] in (b"{", b"[") for line in data)
    is_named = bool(data) and any(line.startswith(b"event:") for line in lines)
    return (is_long or is_named) and all(FIELD.match(line) for line in lines)


def _read_events(body: bytes, path: str | None, *, is_declared: bool) -> str | Failure:
    events = read_events(body)
    rest = body[events[-1].end if events else 0 :]
    last_line = re.split(rb"[\r\n]", rest)[-1]
    unended = read_events(rest + b"\n\n")
    # Whoever prints or returns a stream may leave out the last line end. A server that sends one is cut off there,
    # unless its last event is whole JSON.
    is_whole = not last_line or last_line.startswith(b":") or (unended and isinstance(unended[-1].json, dict | list))
    if is_declared and not (is_whole or (unended and unended[-1].data == _DONE)):
        return _cut_failure(f"it ends in the middle of the event `{excerpt(last_line)}`")
    return join_events([*events, *unended], path)


def _cut_failure(why: str) -> Failure:
    return Failure("bad_answer", f"the answer is cut off: {why}")


def _are_events(events: Sequence[Event], path: str | None) -> bool:
    """Whether JSON objects are a stream. The last one may be cut off. With a path, the author says that they are."""
    values = [event.json for event in (events[:-1] if _is_unread(events[-1]) else events)]
    are_objects = bool(values) and all(isinstance(one, dict) for one in values)
    return are_objects and (path is not None or are_stream_events(values))


def are_stream_events(values: Sequence[dict[str, Any]]) -> bool:
    """Whether objects are events and not data: those of a provider, or with text in one field alone."""
    if any(_provider_pieces(value) is not None for value in values):
        return True
    answer_values = [value for value in values if not _is_aside(value) and error_in(None, value) is None]
    return any(_own_piece(value, 0) is not None for value in answer_values) and not any(
        _has_other_text(one) for one in answer_values
    )


_PART = re.compile(r"([0-9a-z]):(.+)")


def _vercel_parts(text: str) -> list[Event]:
    """The parts of a data stream of Vercel's AI SDK, `0:"text"` on each line; empty for any other text."""
    lines = [line for line in _LINE_END.split(text) if line]
    found = [_PART.fullmatch(line) for line in lines]
    values = [json_of(part[2]) if part else msgspec.UNSET for part in found]
    if not any(part and part[1] == "0" for part in found) or msgspec.UNSET in values[:-1]:
        return []
    is_cut = values[-1] is msgspec.UNSET
    whole = found[:-1] if is_cut else found
    events = [_vercel_event(part[1], part[2]) for part in whole if part and part[1] in "03de"]
    return [*events, Event(None, f"{{{lines[-1]}", 0)] if is_cut and events else events


def _vercel_event(kind: str, data: str) -> Event:
    if kind == "0":
        return Event(None, f'{{"type":"text-start","text":{data}}}', 0)
    return Event("error", data, 0) if kind == "3" else Event(None, '{"type":"finish"}', 0)


def _objects_in_a_row(text: str) -> list[Event]:
    """JSON objects without anything between them; empty for any other text. The last one may be cut off."""
    text, at, found = text.strip(), 0, list[Event]()
    decoder = json.JSONDecoder(strict=False)
    while at < len(text) and text[at] == "{" and len(found) < _MOST_OBJECTS:
        try:
            end = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            end = len(text)
        found.append(Event(None, text[at:end], 0))
        at = end
    return found if at == len(text) and len(found) > 1 else []


_MOST_OBJECTS = 100_000


def join_events(events: list[Event], path: str | None) -> str | Failure:
    data_events = [event for event in events if event.data.strip() != _DONE]
    values = [event.json for event in data_events]
    for event, value in zip(data_events, values, strict=True):
        failed = error_in(event.name, event.data if value is None else value)
        if failed is not None:
            return Failure("error", f"the stream reports an error: {failed}")
    if not any(isinstance(value, dict | list) for value in values):
        if path is not None or not data_events:
            return no_text_failure(len(data_events), "events") if path is None else join_at_path(data_events, path)
        if len(data_events) == 1 and data_events[0].data.startswith('{"'):
            return _cut_failure(f"its only event is `{excerpt(data_events[0].data.encode())}`")
        given = zip(data_events, values, strict=True)
        return "".join(value if isinstance(value, str) else event.data for event, value in given)
    for at, event in enumerate(data_events):
        if _is_unread(event):
            if at == len(data_events) - 1:
                return _cut_failure(f"its last event is `{excerpt(event.data.encode())}`")
            return Failure("bad_answer", f"an event of the stream cannot be read: {excerpt(event.data.encode())}")
    mark = _find_missing_end(events)
    if mark is not None:
        return _cut_failure(f"the stream ends without `{mark}`")
    if path is not None:
        return join_at_path(data_events, path)
    # A value that is no object is a word of the answer, even if it could be JSON, as `7`.
    text = join_values(
        value if isinstance(value, dict | list | str) or event.data == "null" else event.data
        for event, value in zip(data_events, values, strict=True)
    )
    return text or _final_text(data_events) or ("" if text is not None else no_text_failure(len(data_events), "events"))


def join_at_path(events: list[Event], path: str) -> str | Failure:
    found = [text_at_path(event.json, path) for event in events if isinstance(event.json, dict | list)]
    texts = [text for text in found if isinstance(text, str)]
    if texts:
        return join_pieces(texts)
    for wire in FORMATS:
        reply = wire.collect(events)
        whole = text_at_path(reply, path) if reply is not None else None
        if isinstance(whole, str):
            return whole
    return Failure("bad_answer", f"none of the {len(events)} events of the stream has `{path}`")


def _final_text(events: list[Event]) -> str | None:
    """The answer of a stream whose last event alone holds the text."""
    for wire in FORMATS:
        reply = wire.collect(events)
        text = wire.answer(reply).get("content") if reply is not None else None
        if isinstance(text, str) and text:
            return text
    return None


def no_text_failure(count: int, what: str) -> Failure:
    return Failure(
        "bad_answer",
        f"the answer is a stream of {count} {what} in which no text is found; `response_path` says where each holds it",
    )


# The text of one event, and of all of them

Piece: TypeAlias = tuple[str, str]
"""a piece of text, after the name of the part of the answer that it continues: streams may interleave several"""

_KEYS = ("delta", "contentBlockDelta", "token", "text", "content", "content_delta", "chunk", "part", "answer",
         "response", "output", "result", "reply", "message", "data", "value")  # fmt: skip
"""the fields in which streams hold text, the most specific first"""
_KINDS = ("type", "event_kind", "part_kind", "part_delta_kind", "kind", "event", "role")
_NOT_SAID = re.compile(
    r"(?i:tool|function|reason|think|status|debug|usage|meta|heartbeat|^ping|^(?:human|user|system)(?:$|[_ -]?"
    r"(?:message|prompt|input|turn)))|(?:^|[^A-Za-z])[Ee]nd$|[a-z]End$|END$"
)
"""kinds of events that are not part of the answer; `append` and `user_facing` are"""
_MOST_DEPTH = 4


def join_values(values: Iterable[Any]) -> str | None:
    """The text of events, part by part; None if there is none."""
    parts: dict[str, list[str]] = {}
    for value in values:
        for part, text in _pieces_of_event(value):
            parts.setdefault(part, []).append(text)
    return "".join(map(join_pieces, parts.values())) if parts else None


def _pieces_of_event(value: Any) -> Iterator[Piece]:
    """The pieces of the answer in one event."""
    if isinstance(value, list):
        for item in value:
            yield from _pieces_of_event(item)
        return
    pieces = _provider_pieces(value) if isinstance(value, dict) else None
    if pieces is not None:
        yield from pieces
    elif (piece := _own_piece(value, 0)) is not None:
        yield "", piece


def _provider_pieces(event: dict[str, Any]) -> list[Piece] | None:
    """The texts in an event of a provider, none of which may say anything; None for any other event."""
    kind = str(event.get("type"))
    if isinstance(event.get("choices"), list):
        return [piece for choice in event["choices"] if isinstance(choice, dict) for piece in _choice_piece(choice)]
    if isinstance(event.get("candidates"), list):
        return [piece for one in event["candidates"] if isinstance(one, dict) for piece in _candidate_piece(one)]
    if _RESPONSES.match(kind):
        is_said = kind in ("response.output_text.delta", "response.refusal.delta")
        return [(f"{event.get('output_index')}.{event.get('content_index')}", _text(event.get("delta")))] * is_said
    if kind in ("message_start", "message_delta", "message_stop") or kind.startswith("content_block_"):
        part = event.get("delta") or event.get("content_block") or {}
        is_own = not isinstance(part, dict) or isinstance(event.get("content") or event.get("text"), str)
        is_text = not is_own and part.get("type") in ("text_delta", "text")
        return None if is_own else [(f"block {event.get('index')}", _text(part.get("text")))] * is_text
    return None


_RESPONSES = re.compile(
    r"response\.(?:created|queued|in_progress|completed|incomplete|failed|(?:output_item|content_part|output_text|refusal"
    r"|function_call|reasoning|file_search|web_search|code_interpreter|image_generation|mcp|custom_tool|audio)\w*)\b"
)


def _choice_piece(choice: dict[str, Any]) -> list[Piece]:
    """Its text, which may be empty; none if it has no text at all, as one that calls a tool."""
    delta = choice.get("delta") or choice.get("message") or choice
    texts = [delta.get(key) for key in ("content", "refusal", "text")] if isinstance(delta, dict) else []
    has_text = any(isinstance(text, str | list) for text in texts)
    return [(f"choice {choice.get('index') or 0}", "".join(map(_text, texts)))] * has_text


def _candidate_piece(candidate: dict[str, Any]) -> list[Piece]:
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    text_parts = [part for part in parts or () if isinstance(part, dict) and "text" in part and not part.get("thought")]
    return [(f"candidate {candidate.get('index') or 0}", "".join(_text(part["text"]) for part in text_parts))] * bool(
        text_parts
    )


def _text(value: Any) -> str:
    if isinstance(value, list):  # content blocks
        return "".join(_text(block.get("text")) for block in value if isinstance(block, dict))
    return value if isinstance(value, str) else ""


def _kinds(event: Mapping[str, Any]) -> list[str]:
    return [event[kind] for kind in _KINDS if isinstance(event.get(kind), str)]


def _is_aside(event: Mapping[str, Any]) -> bool:
    """Whether an event is not part of the answer: it reports a tool, what the model thinks, or progress."""
    return any(_NOT_SAID.search(kind) for kind in _kinds(event))


def _own_piece(value: Any, depth: int) -> str | None:
    if isinstance(value, str):
        return value
    if depth > _MOST_DEPTH or not isinstance(value, dict | list):
        return None
    if isinstance(value, list):
        found = [piece for item in value if (piece := _own_piece(item, depth + 1)) is not None]
        return "".join(found) if found else None
    if _is_aside(value):
        return None
    if isinstance(value.get("messages"), list):
        try:
            return answer_text({"messages": value["messages"]})
        except ReportsFailure:
            return None
    inner = (_own_piece(value[key], depth + 1) for key in _KEYS if value.get(key) is not None)
    return next((piece for piece in inner if piece is not None), None)


def join_pieces(pieces: Iterable[str]) -> str:
    """The pieces as one text. Streams that repeat what they have said, piece by piece or at the end, say it once."""
    texts = [piece for piece in pieces if piece]
    if len(texts) > 1 and all(len(left) < len(right) and right.startswith(left) for left, right in pairwise(texts)):
        return texts[-1]
    if len(texts) > 2 and "".join(texts[:-1]).strip() == texts[-1].strip():
        return texts[-1]
    if len(texts) == 2 and texts[0] == texts[1] and " " in texts[0].strip():  # a message, and the same as the result
        return texts[0]
    return "".join(texts)


def _has_other_text(event: dict[str, Any]) -> bool:
    """Whether text would be lost if only the text of the event were read."""
    read = next((key for key in _KEYS if event.get(key) is not None), None)
    inner = event.get(read) if read is not None else None
    if isinstance(inner, dict) and _has_other_text(inner):
        return True
    others = (value for key, value in event.items() if key != read and key not in _KEYS and not IS_METADATA(key))
    return any(isinstance(value, str | list | dict) and value for value in others)


def error_in(name: str | None, value: Any) -> str | None:
    is_object = isinstance(value, dict)
    is_error = name == "error" or (is_object and any(_ERROR_KIND.search(kind) for kind in _kinds(value)))
    error = value.get("error") if is_object else None
    if is_error:
        return excerpt(msgspec.json.encode(error or value))
    if not is_object or _is_aside(value):  # a tool has failed, which the agent may handle
        return None
    if isinstance(error, dict) and error:
        return excerpt(msgspec.json.encode(error))
    failure = reported_failure(value)
    return None if failure is None else failure.reason


_ERROR_KIND = re.compile(r"(?i)^(?!.*tool)(?:.*[._ -])?(?:error|failed|failure|exception|abort(?:ed)?)$")


# The ends of streams


_DONE = "[DONE]"
_MARKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # the mark of a format: the kinds of events that open what it ends, and those that end it
    "message_stop": (
        ("message_start", "content_block_start", "content_block_delta"),
        ("message_stop", "message_end"),
    ),
    "response.completed": (
        ("response.created", "response.output_text.delta"),
        ("response.completed", "response.incomplete"),
    ),
    "text-end": (("text-start", "text-delta"), ("text-end", "finish")),
    "RUN_FINISHED": (("RUN_STARTED",), ("RUN_FINISHED",)),
    "message-end": (("message-start",), ("message-end",)),
}
_KIND_MARKS = {kind: (mark, kind in ends) for mark, (opens, ends) in _MARKS.items() for kind in opens + ends}


def _find_missing_end(events: Iterable[Event]) -> str | None:
    """The mark that is missing at the end of a stream; None if it has ended, or if its format has no mark."""
    missing: dict[str, str] = {}
    for event in events:
        if event.data.strip() == _DONE:
            missing.clear()
            continue
        value = event.json
        for one in value if isinstance(value, list) else [value]:
            for key, mark, is_end in _steps(one) if isinstance(one, dict) else ():
                if is_end:
                    missing.pop(key, None)
                else:
                    missing[key] = mark
    return next(iter(missing.values()), None)


def _steps(event: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """The part of a stream that an event opens or ends: a key, its end mark, and whether this is the mark."""
    kind = event.get("type")
    if isinstance(kind, str) and kind in _KIND_MARKS:
        yield _KIND_MARKS[kind][0], *_KIND_MARKS[kind]
    for name, is_end in (("messageStart", False), ("messageStop", True)):
        if isinstance(event.get(name), dict):
            yield "messageStop", "messageStop", is_end
    if isinstance(event.get("done"), bool):
        yield "done", "done: true", event["done"]
    for name, reasons in (("choices", ("finish_reason",)), ("candidates", ("finishReason", "finish_reason"))):
        parts = event.get(name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and "message" not in part:
                yield f"{name}.{part.get('index') or 0}", reasons[0], any(part.get(reason) for reason in reasons)
