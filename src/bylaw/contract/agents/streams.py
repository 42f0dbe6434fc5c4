"""Puts a streamed answer together: a stream in an HTTP reply, in a text, or as a JSON list. `replies` reads generators.

Known are the streams of OpenAI (chat, Responses), Anthropic and Gemini, events and lines with one field of text each,
plain text in events, and data streams of Vercel's AI SDK. A stream in which no text is found, or that is cut off, is a
failure: judging its raw form would pass whatever is split over two of its events.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from bylaw.contract.agents.answers import answer_text, at_path, excerpt, reported_failure
from bylaw.contract.agents.event_text import (
    DONE,
    error_in,
    has_other_text,
    is_aside,
    join_pieces,
    join_values,
    missing_end,
    own_piece,
    provider_pieces,
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
        return _join_events(_lines(text), path)
    parts = _vercel_parts(text)
    if parts:
        return _join_events(parts, path)
    events = _objects_in_a_row(text)
    if events:
        is_stream = _are_events(events, path)
        return _join_events(events, path) if is_stream else nothing_in(len(events), "objects")
    events = _lines(text)
    return _join_events(events, path) if len(events) > 1 and _are_events(events, path) else None


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
    if path is None and _are_said(items):
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
    if is_declared and not (is_whole or (unended and unended[-1].data == DONE)):
        return _cut(f"it ends in the middle of the event `{excerpt(last_line)}`")
    return _join_events([*events, *unended], path)


def _cut(why: str) -> Failure:
    return Failure("bad_answer", f"the answer is cut off: {why}")


def _are_events(events: Sequence[Event], path: str | None) -> bool:
    """Whether JSON objects are a stream. The last one may be cut off. With a path, the author says that they are."""
    values = [event.json for event in (events[:-1] if _is_unread(events[-1]) else events)]
    return bool(values) and all(isinstance(one, dict) for one in values) and (path is not None or _are_said(values))


def _are_said(values: Sequence[dict[str, Any]]) -> bool:
    """Whether objects are events and not data: those of a provider, or with text in one field alone."""
    if any(provider_pieces(value) is not None for value in values):
        return True
    said = [value for value in values if not is_aside(value) and error_in(None, value) is None]
    return any(own_piece(value, 0) is not None for value in said) and not any(has_other_text(one) for one in said)


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


def _join_events(events: list[Event], path: str | None) -> str | Failure:
    said = [event for event in events if event.data.strip() != DONE]
    values = [event.json for event in said]
    for event, value in zip(said, values, strict=True):
        failed = error_in(event.name, event.data if value is None else value)
        if failed is not None:
            return Failure("error", f"the stream reports an error: {failed}")
    if not any(isinstance(value, dict | list) for value in values):
        if path is not None or not said:
            return nothing_in(len(said), "events") if path is None else join_at_path(said, path)
        if len(said) == 1 and said[0].data.startswith('{"'):
            return _cut(f"its only event is `{excerpt(said[0].data.encode())}`")
        given = zip(said, values, strict=True)
        return "".join(value if isinstance(value, str) else event.data for event, value in given)
    for at, event in enumerate(said):
        if _is_unread(event):
            if at == len(said) - 1:
                return _cut(f"its last event is `{excerpt(event.data.encode())}`")
            return Failure("bad_answer", f"an event of the stream cannot be read: {excerpt(event.data.encode())}")
    mark = missing_end(events)
    if mark is not None:
        return _cut(f"the stream ends without `{mark}`")
    if path is not None:
        return join_at_path(said, path)
    # What is no object is a word of the answer, also if it could be JSON, as `7`.
    text = join_values(
        value if isinstance(value, dict | list | str) or event.data == "null" else event.data
        for event, value in zip(said, values, strict=True)
    )
    return text or _whole(said) or ("" if text is not None else nothing_in(len(said), "events"))


def join_at_path(events: list[Event], path: str) -> str | Failure:
    found = [at_path(event.json, path) for event in events if isinstance(event.json, dict | list)]
    texts = [text for text in found if isinstance(text, str)]
    if texts:
        return join_pieces(texts)
    for wire in FORMATS:
        reply = wire.collect(events)
        whole = at_path(reply, path) if reply is not None else None
        if isinstance(whole, str):
            return whole
    return Failure("bad_answer", f"none of the {len(events)} events of the stream has `{path}`")


def _whole(events: list[Event]) -> str | None:
    """The answer of a stream whose last event alone holds the text."""
    for wire in FORMATS:
        reply = wire.collect(events)
        text = wire.answer(reply).get("content") if reply is not None else None
        if isinstance(text, str) and text:
            return text
    return None


def nothing_in(count: int, what: str) -> Failure:
    return Failure(
        "bad_answer",
        f"the answer is a stream of {count} {what} in which no text is found; `response_path` says where each holds it",
    )


def read_text(text: str, path: str | None = None) -> str | Failure:
    """The answer in a text of an agent: the text itself, unless it is a stream or JSON that reports a failure.

    `path`: where the text, which must be JSON, or each event of it, holds the answer.
    """
    text = text.removeprefix("\ufeff")
    streamed = read_stream("", text.encode("utf-8", "replace"), path)
    if streamed is not None:
        return streamed
    value = json_of(text) if path is not None or text.lstrip()[:1] == "{" else None
    if path is None:
        if isinstance(value, dict) and _is_one_piece(value):
            return _join_events([Event(None, text, 0)], path)
        return (reported_failure(value) if isinstance(value, dict) else _read_after_log(text)) or text
    if value is msgspec.UNSET:
        return Failure("bad_answer", f"the answer is not JSON, so it has no `{path}`: {excerpt(text.encode())}")
    return read_at(value, path)


def _is_one_piece(value: dict[str, Any]) -> bool:
    """Whether an object is the only event of a stream, which is cut off unless the event ends it."""
    is_event = value.get("done") is False or value.get("object") == "chat.completion.chunk"
    return is_event and _are_said([value])


_LOG_LINE = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d|(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR)\b)")
_EVENT_LINE = re.compile(r'(?m)^(?:(?:event|id|retry):[^\r\n]*[\r\n]+){0,4}(?:data: ?)?\{ *"')


def _read_after_log(text: str) -> str | Failure | None:
    """The answer in a text whose first lines are no events and whose others are; None for any other text.

    The first lines stay a part of the answer: whether they are a log or said to the user cannot be known.
    """
    first = _EVENT_LINE.search(text)
    if first is None or first.start() == 0:
        return None
    log, rest = text[: first.start()], text[first.start() :]
    value = json_of(rest)
    if isinstance(value, dict):  # prose may quote an error
        is_log = all(_LOG_LINE.match(line) for line in log.splitlines() if line.strip())
        return reported_failure(value) if is_log else None
    if value is not msgspec.UNSET or len(_EVENT_LINE.findall(rest)) < 2:
        return None
    streamed = read_stream("", rest.encode("utf-8", "replace"), None)
    return log + streamed if isinstance(streamed, str) else streamed


def read_at(value: Any, path: str) -> str | Failure:
    """The answer at this path of data, which may be a stream; a failure that the data reports in place of an answer."""
    failure = reported_failure(value) if isinstance(value, dict) else None
    found = at_path(value, path) if failure is None else failure
    return read_text(found) if isinstance(found, str) else found
