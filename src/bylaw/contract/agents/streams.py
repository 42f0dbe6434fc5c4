"""Puts a streamed answer together: the chunks that a Python agent yields, or a stream in an HTTP reply.

Known are the streams of OpenAI (chat, Responses) and Anthropic, events and lines with one field of text each, plain
text in events, and the chunks of LangChain, LangGraph, Pydantic AI and the OpenAI Agents SDK. A stream in which no text
is found is a failure: judging its raw form would pass whatever is split over two of its events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from bylaw.contract.agents.answers import NoAnswer, answer_text, at_path, excerpt, plain_value
from bylaw.contract.live_agent import Failure
from bylaw.wire.exchange import json_of
from bylaw.wire.formats import FORMATS
from bylaw.wire.formats.base import Event, read_events

_EVENTS = "text/event-stream"
_LINES = ("ndjson", "jsonl", "jsonlines", "json-lines", "json-seq", "stream+json")
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_END = "[DONE]"


def is_stream_of_events(content_type: str, body: bytes) -> bool:
    """Declared as one, or without a line that is anything else."""
    if content_type.startswith(_EVENTS):
        return True
    lines = [line for line in body.splitlines() if line]
    return any(line.startswith(b"data:") for line in lines) and all(_FIELD.match(line) for line in lines)


def read_stream(content_type: str, body: bytes, path: str | None) -> str | Failure | None:
    """The answer in a body that is a stream; None if it is not one. `path`: where each event holds its text."""
    content_type = content_type.lower()
    if is_stream_of_events(content_type, body):
        events = [event for event in read_events(body + b"\n\n") if event.data != _END]
        return _join_events(events, path)
    is_declared = any(kind in content_type for kind in _LINES)
    if not is_declared and isinstance(json_of(body), dict | list):
        return None
    if not is_declared and (parts := _vercel_parts(body) or _objects_in_a_row(body)):
        return _join_events(parts, path)
    lines = [line for line in body.replace(b"\x1e", b"\n").splitlines() if line.strip()]
    if not is_declared and (len(lines) < 2 or not all(isinstance(json_of(line), dict) for line in lines)):
        return None
    answer = _join_events([Event(None, line.decode("utf-8", "replace"), 0) for line in lines], path)
    return answer if is_declared or isinstance(answer, str) or "json" in content_type else None


_PART = re.compile(rb"([0-9a-z]):(.+)")


def _vercel_parts(body: bytes) -> list[Event]:
    """The text of a data stream of Vercel's AI SDK, `0:"text"` on each line; empty for any other body."""
    found = [_PART.fullmatch(line) for line in body.splitlines() if line]
    values = [json_of(part[2]) if part else msgspec.UNSET for part in found]
    if not any(part and part[1] == b"0" for part in found) or msgspec.UNSET in values:
        return []
    named = {b"0": None, b"3": "error"}
    return [Event(named[part[1]], part[2].decode("utf-8", "replace"), 0) for part in found if part and part[1] in named]


def _objects_in_a_row(body: bytes) -> list[Event]:
    """JSON objects without anything between them; empty for any other body."""
    text, at, found = body.decode("utf-8", "replace").strip(), 0, list[Event]()
    decoder = json.JSONDecoder(strict=False)
    while at < len(text) and text[at] == "{" and len(found) < _MOST_OBJECTS:
        try:
            end = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            return []
        found.append(Event(None, text[at:end], 0))
        at = end
    return found if at == len(text) and len(found) > 1 else []


_MOST_OBJECTS = 100_000


def _join_events(events: list[Event], path: str | None) -> str | Failure:
    for event in events:
        failed = _error_in(event.name, event.json)
        if failed is not None:
            return Failure("error", f"the stream reports an error: {failed}")
    if path is not None:
        return _join_at_path(events, path)
    values = [_value(event.json) for event in events]
    if not any(isinstance(value, dict | list) for value in values):
        texts = [value if isinstance(value, str) else event.data for value, event in zip(values, events, strict=True)]
        are_json = all(isinstance(value, str) for value in values)
        return "".join(texts if are_json else (event.data for event in events)) if events else _nothing_in(0, "events")
    text = _join_pieces(piece for value in values for piece in _pieces(value))
    return text if text is not None else _whole(events) or _nothing_in(len(events), "events")


def _value(value: Any) -> Any:
    """`7` may be JSON, but in a stream it is a word of the answer."""
    return value if isinstance(value, dict | list | str) else None


def _join_at_path(events: list[Event], path: str) -> str | Failure:
    found = [at_path(event.json, path) for event in events if isinstance(event.json, dict | list)]
    texts = [text for text in found if isinstance(text, str)]
    if texts:
        return _join_pieces(texts) or ""
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


def _nothing_in(count: int, what: str) -> Failure:
    return Failure(
        "bad_answer",
        f"the answer is a stream of {count} {what} in which no text is found; `response_path` says where each holds it",
    )


def _error_in(name: str | None, value: Any) -> str | None:
    is_error = name == "error" or (isinstance(value, dict) and value.get("type") in ("error", "response.failed"))
    error = value.get("error") if isinstance(value, dict) else None
    if not is_error and not isinstance(error, dict):
        return None
    return excerpt(msgspec.json.encode(error or value))


# The text of one event or chunk

_KEYS = ("delta", "token", "text", "content", "content_delta", "chunk", "part", "answer", "response", "output",
         "result", "reply", "message", "data", "value")  # fmt: skip
"""the fields in which streams hold text, the most specific first"""
_KINDS = ("type", "event_kind", "part_kind", "part_delta_kind", "kind", "event", "role")
_NOT_SAID = re.compile(
    r"(?i:tool|function|reason|think|status|debug|usage|meta|heartbeat|^ping|^(?:human|user|system)(?:$|[_ -]?"
    r"(?:message|prompt|input|turn)))|(?:^|[^A-Za-z])[Ee]nd$|[a-z]End$|END$"
)
"""kinds of events that are not part of the answer; `append` and `user_facing` are"""
_MOST_DEPTH = 4


def _pieces(value: Any) -> Iterator[str]:
    """The pieces of the answer in one event: one at most, or one for each message of a list."""
    if isinstance(value, list):
        for item in value:
            yield from _pieces(item)
        return
    piece = _provider_piece(value) if isinstance(value, dict) else None
    piece = _own_piece(value, 0) if piece is None else piece
    if piece is not None:
        yield piece


def _provider_piece(event: dict[str, Any]) -> str | None:
    """The text in an event of a provider, which may be empty; None for any other event."""
    kind = str(event.get("type"))
    if isinstance(event.get("choices"), list):
        choice = next((one for one in event["choices"] if isinstance(one, dict)), {})
        delta = choice.get("delta") or choice.get("message") or choice
        texts = [delta.get(key) for key in ("content", "refusal", "text")] if isinstance(delta, dict) else []
        return "".join(text for text in texts if isinstance(text, str))
    if kind.startswith("response."):
        is_said = kind in ("response.output_text.delta", "response.refusal.delta")
        return str(event.get("delta") or "") if is_said else ""
    if kind.startswith(("content_block_", "message_")):
        part = event.get("delta") or event.get("content_block")
        is_text = isinstance(part, dict) and part.get("type") in ("text_delta", "text")
        return str(part.get("text") or "") if is_text and isinstance(part, dict) else ""
    return None


def _own_piece(value: Any, depth: int) -> str | None:
    if isinstance(value, str):
        return value
    if depth > _MOST_DEPTH or not isinstance(value, dict | list):
        return None
    if isinstance(value, list):
        found = [piece for item in value if (piece := _own_piece(item, depth + 1)) is not None]
        return "".join(found) if found else None
    if any(_NOT_SAID.search(value[kind]) for kind in _KINDS if isinstance(value.get(kind), str)):
        return None
    if isinstance(value.get("messages"), list):
        return answer_text(value)
    inner = (_own_piece(value[key], depth + 1) for key in _KEYS if value.get(key) is not None)
    return next((piece for piece in inner if piece is not None), None)


def _join_pieces(pieces: Iterable[str]) -> str | None:
    """The pieces as one text. Streams that repeat what they have said, piece by piece or at the end, say it once."""
    found = list(pieces)
    texts = [piece for piece in found if piece]
    if len(texts) > 1 and all(len(left) < len(right) and right.startswith(left) for left, right in pairwise(texts)):
        return texts[-1]
    if len(texts) > 2 and "".join(texts[:-1]).strip() == texts[-1].strip():
        return texts[-1]
    if len(texts) == 2 and texts[0] == texts[1] and " " in texts[0].strip():  # a message, and the same as the result
        return texts[0]
    return "".join(texts) if found else None


# Chunks of a Python agent


class Chunks(list[Any]):
    """What an agent yielded, one item a chunk."""

    returned: Any = None
    """what a generator returned at its end"""
    size = 0
    """of the texts, in characters"""


def join_chunks(chunks: Chunks) -> str | Failure:
    """What a generator returns is a part of its answer too, unless it repeats what was yielded."""
    yielded = _join_yielded(chunks)
    if chunks.returned is None or (isinstance(yielded, Failure) and chunks):
        return yielded
    try:
        returned = answer_text(chunks.returned)
    except NoAnswer as problem:
        return Failure("bad_answer", f"the agent returned {problem}")
    if returned is None or isinstance(yielded, Failure):
        return yielded if returned is None else returned
    if returned.strip() in yielded:
        return yielded
    return returned if yielded.strip() in returned else f"{yielded}\n{returned}"


def _join_yielded(chunks: Chunks) -> str | Failure:
    if not chunks:
        return Failure("bad_answer", "the agent yielded nothing")
    values: list[Any] = []
    for chunk in chunks:
        try:
            values.append(_chunk_value(chunk))
        except NoAnswer as problem:
            return Failure("bad_answer", f"the agent yielded {problem}")
    if all(isinstance(value, bytes) for value in values):
        return b"".join(values).decode("utf-8", "replace")
    values = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    failed = next((error for value in values if (error := _error_in(None, value)) is not None), None)
    if failed is not None:
        return Failure("error", f"the agent yielded an error: {failed}")
    states = [text for value in values if (text := _graph_text(value)) is not None]
    if states:
        return states[-1]
    text = _join_pieces(piece for value in values for piece in _pieces(value))
    return text if text is not None else _nothing_in(len(chunks), "chunks")


def _chunk_value(chunk: Any) -> Any:
    """The chunk in JSON types; an empty list for one that is not part of the answer. Raises NoAnswer."""
    if chunk is None or isinstance(chunk, str | bytes):
        return [] if chunk is None else chunk
    if isinstance(chunk, bytearray | memoryview):
        return bytes(chunk)
    if isinstance(chunk, tuple) and len(chunk) == 2:  # LangGraph: a message with its metadata, or a mode with its chunk
        return _chunk_value(chunk[1] if isinstance(chunk[0], str) else chunk[0])
    kind = getattr(chunk, "type", None)
    if kind == "raw_response_event":
        return _chunk_value(chunk.data)
    if kind in ("run_item_stream_event", "agent_updated_stream_event", "tool", "human", "system"):
        return []
    if kind in ("ai", "AIMessageChunk"):
        return answer_text({"messages": [chunk]}) or ""
    return plain_value(chunk)


def _graph_text(value: Any) -> str | None:
    """The latest text in a state of LangGraph, or in the update of a node."""
    states = [value, *value.values()] if isinstance(value, Mapping) else []
    for state in states:
        if isinstance(state, Mapping) and isinstance(state.get("messages"), list):
            text = answer_text(state)
            if text:
                return text
    return None
