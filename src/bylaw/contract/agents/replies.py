"""The answer inside an HTTP reply, in what a command printed, or in what a Python agent yielded.

With a `response_path` the answer is there or nowhere. Without one, a reply that is not JSON is the
answer. In a JSON object it is the first of `REPLY_KEYS` that is not null, else the value of the only key, else the
whole object; a whole reply of a model provider, and a list of content blocks, are their text. `streams` reads one that
comes in pieces. What is no answer is a failure: a redirect, no body, null, parts, JSON that cannot be read.

A Python agent yields texts, which may be a stream themselves, or the chunks of its framework.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from bylaw.contract.agents.answers import (
    NoAnswer,
    answer_text,
    block_text,
    excerpt,
    plain_value,
    provider_text,
    reported_failure,
    text_at_path,
)
from bylaw.contract.agents.streams import (
    FIELD,
    are_stream_events,
    error_in,
    join_at_path,
    join_events,
    join_pieces,
    join_values,
    no_text_failure,
    read_stream,
)
from bylaw.contract.faults.texts import as_text
from bylaw.contract.live_agent import Failure
from bylaw.wire.exchange import json_of
from bylaw.wire.formats.base import Event
from bylaw.wire.values import without_surrogates

REPLY_KEYS = (
    "output", "response", "result", "data", "content", "text", "message", "answer", "reply", "queries", "query",
    "results",
)  # fmt: skip


def read_reply(
    status: int, body: bytes, response_path: str | None, content_type: str = "", *, is_delimited: bool = True
) -> str | Failure:
    """`is_delimited`: the body has a length or is chunked; else only its content can tell whether it is cut off."""
    if status >= 300:
        return Failure("error", f"HTTP {status}: {excerpt(body)}")
    kind = content_type.lower()
    body = _convert_to_utf8(body, kind)
    if kind.startswith("multipart/"):
        return Failure("bad_answer", f"the reply consists of several parts, which are not read: {excerpt(body)}")
    streamed = read_stream(content_type, body, response_path)
    if streamed is not None:
        return streamed
    if not body.strip():
        return Failure("bad_answer", f"the reply has no body (HTTP {status})")
    value = json_of(body)
    if value is msgspec.UNSET and "json" in kind and body.lstrip()[:1] in (b"{", b"[", b'"'):
        value = _lenient(body)
        if value is msgspec.UNSET:
            return Failure("bad_answer", f"the reply is no JSON that can be read: {excerpt(body)}")
    if response_path is not None:
        if value is msgspec.UNSET:
            return Failure("bad_answer", f"the reply is not JSON, so it has no `{response_path}`: {excerpt(body)}")
        return read_at(value, response_path)
    if value is msgspec.UNSET:
        text = body.decode("utf-8", "replace")
        is_cut = not is_delimited and _is_cut_json(text)
        return Failure("bad_answer", f"the answer is cut off: {excerpt(body)}") if is_cut else text
    if value is None:
        return Failure("bad_answer", "the reply is null")
    return _guess_answer(value) if isinstance(value, dict) else _text(value)


def read_output(output: bytes) -> str | Failure:
    """The answer that a command printed: its text without colours, put together if it is a stream."""
    text = _ANSI.sub("", _convert_to_utf8(output, "").decode("utf-8", "replace")).rstrip("\r\n")
    return read_text(text) if text.strip() else Failure("bad_answer", "the command printed nothing")


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def _convert_to_utf8(body: bytes, content_type: str) -> bytes:
    """The body in UTF-8 and without a mark of the byte order; other encodings are those that the reply names."""
    named = _CHARSET.search(content_type)
    name = named[1] if named else "utf-16" if body[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
    try:
        is_other = codecs.lookup(name).name not in ("utf-8", "ascii")
        text = body.decode(name, "replace") if is_other else None
    except (LookupError, ValueError):  # not the name of an encoding
        text = None
    return (
        body.removeprefix(codecs.BOM_UTF8) if text is None else text.removeprefix("\ufeff").encode("utf-8", "replace")
    )


_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)")


def _lenient(body: bytes) -> Any:
    """JSON with `NaN`, or with line breaks inside a text, as some libraries write it."""
    try:
        return without_surrogates(json.loads(body, strict=False))
    except (ValueError, RecursionError):
        return msgspec.UNSET


def _is_cut_json(text: str) -> bool:
    """Whether a text begins as JSON and ends in the middle of it."""
    if not re.match(r'\s*(?:\{\s*"|\[\s*[\[{"])', text):
        return False
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip())
    except RecursionError:
        return False
    return False


def _text(value: Any) -> str | Failure:
    blocks = block_text(value)
    return read_text(as_text(value)) if blocks is None else blocks


def _guess_answer(reply: dict[str, Any]) -> str | Failure:
    failure = reported_failure(reply)
    provided = provider_text(reply) if failure is None else None
    if failure is not None or provided is not None:
        return failure or provided or ""
    answer = next((reply[key] for key in REPLY_KEYS if reply.get(key) is not None), None)
    if answer is None and len(reply) == 1:
        answer = next(iter(reply.values()))
    if answer is None and any(key in reply for key in REPLY_KEYS):
        return Failure("bad_answer", f"the answer is null: {excerpt(msgspec.json.encode(reply))}")
    return _text(reply if answer is None else answer)


# An answer that is a text, and may hold a stream or report a failure


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
            return join_events([Event(None, text, 0)], path)
        return (reported_failure(value) if isinstance(value, dict) else _read_after_log(text)) or text
    if value is msgspec.UNSET:
        return Failure("bad_answer", f"the answer is not JSON, so it has no `{path}`: {excerpt(text.encode())}")
    return read_at(value, path)


def _is_one_piece(value: dict[str, Any]) -> bool:
    """Whether an object is the only event of a stream, which is cut off unless the event ends it."""
    is_event = value.get("done") is False or value.get("object") == "chat.completion.chunk"
    return is_event and are_stream_events([value])


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
    found = text_at_path(value, path) if failure is None else failure
    return read_text(found) if isinstance(found, str) else found


# Chunks that a Python agent yields


class Chunks(list[Any]):
    """The chunks that an agent yielded."""

    returned: Any = None
    """the return value of a generator"""
    size = 0
    """of the texts, in characters"""


def join_chunks(chunks: Chunks, path: str | None = None) -> str | Failure:
    """The return value of a generator is a part of its answer too, unless it repeats the chunks.

    `path`: where each chunk holds its text.
    """
    try:
        yielded = _join_yielded(chunks, path)
    except NoAnswer as problem:
        return problem.failure("yielded")
    if chunks.returned is None or (isinstance(yielded, Failure) and chunks):
        return yielded
    try:
        text = answer_text(chunks.returned)
        returned = None if text is None else read_text(text, path)
    except NoAnswer as problem:
        return problem.failure("returned")
    if not isinstance(returned, str) or isinstance(yielded, Failure):
        return yielded if returned is None else returned
    if returned.strip() in yielded:
        return yielded
    return returned if yielded.strip() in returned else f"{yielded}\n{returned}"


def _join_yielded(chunks: Chunks, path: str | None) -> str | Failure:
    """Raises NoAnswer, ReportsFailure."""
    if not chunks:
        return Failure("bad_answer", "the agent yielded nothing")
    values: list[Any] = [_chunk_value(chunk) for chunk in chunks]
    if all(isinstance(value, bytes) for value in values):
        return read_text(b"".join(values).decode("utf-8", "replace"), path)
    values = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    texts = [value for value in values if value != []]
    if texts and all(isinstance(value, str) for value in texts):
        return _join_texts(texts, path)
    failed = next((error for value in values if (error := error_in(None, value)) is not None), None)
    if failed is not None:
        return Failure("error", f"the agent yielded an error: {failed}")
    if path is not None:
        return join_at_path([Event(None, msgspec.json.encode(value).decode(), 0) for value in values], path)
    states = [text for value in values if (text := _graph_text(value)) is not None]
    if states:
        return states[-1]
    text = join_values(values)
    return no_text_failure(len(chunks), "chunks") if text is None else text


def _join_texts(texts: list[str], path: str | None) -> str | Failure:
    """Texts that are yielded may be a stream, cut anywhere, or one event each without a line end."""
    are_events = all(FIELD.match(text.encode("utf-8", "replace")) and not text.endswith("\n") for text in texts)
    joined = ("\n\n" if are_events else "").join(texts)
    streamed = read_stream("", joined.encode("utf-8", "replace"), path)
    return read_text(joined if path is not None else join_pieces(texts), path) if streamed is None else streamed


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
