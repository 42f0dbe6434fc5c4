"""Anthropic's Messages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from bylaw.wire.exchange import Incoming
from bylaw.wire.formats.base import Json, ResultPlace, edit_text, json_reply, pieces, place_for, retry_headers
from bylaw.wire.formats.sse import Event, write_event

_TEXTS = ("text",)
_ERRORS = {
    429: ("rate_limit_error", "This request would exceed the rate limit"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


class AnthropicMessages:
    name = "anthropic"
    path = "/messages"

    def asks(self, request: Json) -> bool:
        return isinstance(request.get("messages"), list) and "max_tokens" in request

    # Streams

    def collected(self, events: list[Event]) -> Json | None:
        reply: Json | None = None
        blocks: dict[int, Json] = {}
        for event in events:
            told = event.json
            if not isinstance(told, dict):
                continue
            if told.get("type") == "message_start" and isinstance(told.get("message"), dict):
                reply = dict(told["message"])
            elif reply is not None and told.get("type") == "message_delta":
                reply |= told.get("delta") or {}
                reply["usage"] = (reply.get("usage") or {}) | (told.get("usage") or {})
            elif isinstance(told.get("index"), int):
                _collect(blocks, told)
        return None if reply is None else {**reply, "content": [_closed(blocks[index]) for index in sorted(blocks)]}

    def streamed(self, reply: Json) -> list[bytes]:
        usage = reply.get("usage") or {}
        begun = {**reply, "content": [], "stop_reason": None, "stop_sequence": None}
        told: list[Json] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(_blocks(reply)):
            told += _block_events(index, block)
        delta = {"stop_reason": reply.get("stop_reason"), "stop_sequence": reply.get("stop_sequence")}
        told.append(
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage.get("output_tokens", 0)}}
        )
        told.append({"type": "message_stop"})
        return [write_event(event, event["type"]) for event in told]

    def texts_of(self, event: Event) -> str:
        told = event.json
        delta = told.get("delta") if isinstance(told, dict) else None
        return str(delta.get("text") or "") if isinstance(delta, dict) and delta.get("type") == "text_delta" else ""

    # Replies

    def with_text(self, reply: Json, change: Callable[[str], str], *, cut_short: bool = False) -> Json:
        altered = copy.deepcopy(reply)
        for block in _texts(altered):
            block["text"] = change(block["text"])
        if cut_short:
            altered["stop_reason"] = "max_tokens"
        return altered

    def without_content(self, reply: Json) -> Json:
        return {**reply, "content": [], "stop_reason": "end_turn"}

    def has_calls(self, reply: Json) -> bool:
        return any(block.get("type") == "tool_use" for block in _blocks(reply))

    def with_broken_calls(self, reply: Json, change: Callable[[str], str]) -> Json:
        """Here arguments are an object: broken ones are the text of it that cannot be parsed."""
        altered = copy.deepcopy(reply)
        for block in _blocks(altered):
            if block.get("type") == "tool_use":
                block["input"] = change(msgspec.json.encode(block.get("input")).decode())
        return altered

    def error(self, status: int, message: str | None) -> Incoming:
        kind, text = _ERRORS.get(status, ("api_error", "Internal server error"))
        body = {"type": "error", "error": {"type": kind, "message": message or text}, "request_id": "req_bylaw"}
        return json_reply(status, body, {"request-id": "req_bylaw", **retry_headers(status)})

    def answer(self, reply: Json) -> Json:
        kept = ("content", "stop_reason", "model", "usage")
        return {"role": "assistant", **{key: reply[key] for key in kept if reply.get(key) is not None}}

    # Requests

    def messages(self, request: Json) -> list[Any]:
        system = request.get("system")
        first = [] if system is None else [{"role": "system", "content": system}]
        return [*first, *request["messages"]]

    def edit_prompt(self, request: Json, change: Callable[[str], str]) -> bool:
        users = (message for message in reversed(request["messages"]) if _role(message) == "user")
        return any(edit_text(message, "content", change, _TEXTS) for message in users)

    def insert(self, request: Json, place: int | None, text: str) -> None:
        messages = request["messages"]
        at = place_for(messages, place, is_system=lambda message: False)
        while 0 < at < len(messages) and any(True for _ in _result_blocks(messages[at])):
            at -= 1  # a call and its results stay together
        said_before = any(_role(message) == "user" for message in messages[:at])
        messages.insert(at, {"role": "assistant" if said_before else "user", "content": text})

    def results(self, request: Json) -> Iterator[ResultPlace]:
        names = {
            block.get("id"): block.get("name")
            for message in request["messages"]
            for block in _content(message)
            if block.get("type") == "tool_use"
        }
        for message in request["messages"]:
            for block in _result_blocks(message):
                yield ResultPlace(block["tool_use_id"], names.get(block["tool_use_id"]), partial(_edit, block))


def _edit(block: Json, change: Callable[[str], str]) -> None:
    edit_text(block, "content", change, _TEXTS)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _content(message: Any) -> list[Json]:
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _result_blocks(message: Any) -> Iterator[Json]:
    for block in _content(message):
        if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            yield block


def _blocks(reply: Json) -> list[Json]:
    return _content(reply)


def _texts(reply: Json) -> list[Json]:
    return [block for block in _blocks(reply) if block.get("type") == "text" and isinstance(block.get("text"), str)]


def _collect(blocks: dict[int, Json], told: Json) -> None:
    index, kind, delta = told["index"], told.get("type"), told.get("delta")
    if kind == "content_block_start" and isinstance(told.get("content_block"), dict):
        blocks[index] = {**told["content_block"], "partial": ""}
    elif kind == "content_block_delta" and index in blocks and isinstance(delta, dict):
        held = blocks[index]
        if delta.get("type") == "text_delta":
            held["text"] = (held.get("text") or "") + str(delta.get("text") or "")
        elif delta.get("type") == "input_json_delta":
            held["partial"] += str(delta.get("partial_json") or "")
        elif delta.get("type") == "thinking_delta":
            held["thinking"] = (held.get("thinking") or "") + str(delta.get("thinking") or "")
        elif delta.get("type") == "signature_delta":
            held["signature"] = delta.get("signature")


def _closed(held: Json) -> Json:
    partial_json = held.pop("partial")
    if str(held.get("type")).endswith("tool_use") and partial_json:
        try:
            held["input"] = msgspec.json.decode(partial_json)
        except (msgspec.DecodeError, RecursionError):
            held["input"] = partial_json
    return held


def _block_events(index: int, block: Json) -> list[Json]:
    opened, deltas = _opened(block)
    told: list[Json] = [{"type": "content_block_start", "index": index, "content_block": opened}]
    told += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [*told, {"type": "content_block_stop", "index": index}]


def _opened(block: Json) -> tuple[Json, list[Json]]:
    """A block as it begins, and what is told of it then."""
    if block.get("type") == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    if block.get("type") == "tool_use":
        given = block.get("input")
        text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    if block.get("type") == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block.get("thinking") or ""}]
        deltas.append({"type": "signature_delta", "signature": block.get("signature") or ""})
        return {**block, "thinking": "", "signature": ""}, deltas
    return block, []
