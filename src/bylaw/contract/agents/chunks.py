"""Puts together what a Python agent yields: texts, which may be a stream themselves, or the chunks of its framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bylaw.contract.agents.answers import NoAnswer, ReportsFailure, answer_text, plain_value
from bylaw.contract.agents.event_text import error_in, join_pieces, join_values
from bylaw.contract.agents.streams import FIELD, join_at_path, nothing_in, read_stream, read_text
from bylaw.contract.live_agent import Failure
from bylaw.wire.formats.base import Event


class Chunks(list[Any]):
    """What an agent yielded, one item a chunk."""

    returned: Any = None
    """what a generator returned at its end"""
    size = 0
    """of the texts, in characters"""


def join_chunks(chunks: Chunks, path: str | None = None) -> str | Failure:
    """What a generator returns is a part of its answer too, unless it repeats what was yielded.

    `path`: where each chunk holds its text.
    """
    try:
        yielded = _join_yielded(chunks, path)
    except NoAnswer as problem:
        return Failure("bad_answer", f"the agent yielded {problem}")
    except ReportsFailure as reported:
        return reported.failure
    if chunks.returned is None or (isinstance(yielded, Failure) and chunks):
        return yielded
    try:
        text = answer_text(chunks.returned)
        returned = None if text is None else read_text(text, path)
    except NoAnswer as problem:
        return Failure("bad_answer", f"the agent returned {problem}")
    except ReportsFailure as reported:
        return reported.failure
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
    return nothing_in(len(chunks), "chunks") if text is None else text


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
