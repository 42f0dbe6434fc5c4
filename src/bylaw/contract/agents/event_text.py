"""The text of one event of a stream, and of all of them.

An event of OpenAI, Anthropic or Gemini holds its text where the provider puts it. Any other holds it in one of the
usual fields. Events that report a tool, what the model thinks, or progress are not part of the answer.

A connection that breaks can look like the end of a stream: only the mark of its format tells. Formats with a mark:
OpenAI's chat completions (`finish_reason` of each choice, or `[DONE]`) and Responses (`response.completed`,
`response.incomplete`), Anthropic (`message_stop`), Gemini (`finishReason`), Ollama and others with `done`, Bedrock
(`messageStop`), Vercel's AI SDK (`text-end`, `finish`), AG-UI (`RUN_FINISHED`), Cohere (`message-end`). A stream in any
other form has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from bylaw.contract.agents.answers import IS_METADATA, ReportsFailure, answer_text, excerpt, reported_failure
from bylaw.wire.formats.base import Event

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
        for part, text in _pieces(value):
            parts.setdefault(part, []).append(text)
    return "".join(map(join_pieces, parts.values())) if parts else None


def _pieces(value: Any) -> Iterator[Piece]:
    """The pieces of the answer in one event."""
    if isinstance(value, list):
        for item in value:
            yield from _pieces(item)
        return
    pieces = provider_pieces(value) if isinstance(value, dict) else None
    if pieces is not None:
        yield from pieces
    elif (piece := own_piece(value, 0)) is not None:
        yield "", piece


def provider_pieces(event: dict[str, Any]) -> list[Piece] | None:
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
    said = [part for part in parts or () if isinstance(part, dict) and "text" in part and not part.get("thought")]
    return [(f"candidate {candidate.get('index') or 0}", "".join(_text(part["text"]) for part in said))] * bool(said)


def _text(value: Any) -> str:
    if isinstance(value, list):  # content blocks
        return "".join(_text(block.get("text")) for block in value if isinstance(block, dict))
    return value if isinstance(value, str) else ""


def _kinds(event: Mapping[str, Any]) -> list[str]:
    return [event[kind] for kind in _KINDS if isinstance(event.get(kind), str)]


def is_aside(event: Mapping[str, Any]) -> bool:
    """Whether an event is not part of the answer: it reports a tool, what the model thinks, or progress."""
    return any(_NOT_SAID.search(kind) for kind in _kinds(event))


def own_piece(value: Any, depth: int) -> str | None:
    if isinstance(value, str):
        return value
    if depth > _MOST_DEPTH or not isinstance(value, dict | list):
        return None
    if isinstance(value, list):
        found = [piece for item in value if (piece := own_piece(item, depth + 1)) is not None]
        return "".join(found) if found else None
    if is_aside(value):
        return None
    if isinstance(value.get("messages"), list):
        try:
            return answer_text({"messages": value["messages"]})
        except ReportsFailure:
            return None
    inner = (own_piece(value[key], depth + 1) for key in _KEYS if value.get(key) is not None)
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


def has_other_text(event: dict[str, Any]) -> bool:
    """Whether text would be lost if only the text of the event were read."""
    read = next((key for key in _KEYS if event.get(key) is not None), None)
    inner = event.get(read) if read is not None else None
    if isinstance(inner, dict) and has_other_text(inner):
        return True
    others = (value for key, value in event.items() if key != read and key not in _KEYS and not IS_METADATA(key))
    return any(isinstance(value, str | list | dict) and value for value in others)


def error_in(name: str | None, value: Any) -> str | None:
    is_object = isinstance(value, dict)
    is_error = name == "error" or (is_object and any(_ERROR_KIND.search(kind) for kind in _kinds(value)))
    error = value.get("error") if is_object else None
    if is_error:
        return excerpt(msgspec.json.encode(error or value))
    if not is_object or is_aside(value):  # a tool has failed, which the agent may handle
        return None
    if isinstance(error, dict) and error:
        return excerpt(msgspec.json.encode(error))
    failure = reported_failure(value)
    return None if failure is None else failure.reason


_ERROR_KIND = re.compile(r"(?i)^(?!.*tool)(?:.*[._ -])?(?:error|failed|failure|exception|abort(?:ed)?)$")


# The ends of streams


DONE = "[DONE]"
_MARKS = {
    # kind of event: (what it opens or ends, whether it ends it)
    "message_start": ("message_stop", False),
    "content_block_start": ("message_stop", False),
    "content_block_delta": ("message_stop", False),
    "message_stop": ("message_stop", True),
    "message_end": ("message_stop", True),
    "response.created": ("response.completed", False),
    "response.output_text.delta": ("response.completed", False),
    "response.completed": ("response.completed", True),
    "response.incomplete": ("response.completed", True),
    "text-start": ("text-end", False),
    "text-delta": ("text-end", False),
    "text-end": ("text-end", True),
    "finish": ("text-end", True),
    "RUN_STARTED": ("RUN_FINISHED", False),
    "RUN_FINISHED": ("RUN_FINISHED", True),
    "message-start": ("message-end", False),
    "message-end": ("message-end", True),
}


def missing_end(events: Iterable[Event]) -> str | None:
    """The mark that is missing at the end of a stream; None if it has ended, or if its format has no mark."""
    missing: dict[str, str] = {}
    for event in events:
        if event.data.strip() == DONE:
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
    """What an event opens or ends: a key, the mark that ends it, and whether this is the mark."""
    kind = event.get("type")
    if isinstance(kind, str) and kind in _MARKS:
        mark, is_end = _MARKS[kind]
        yield mark, mark, is_end
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
