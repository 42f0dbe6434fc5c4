"""Anthropic's Messages."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from bylaw.wire.exchange import Incoming, json_reply
from bylaw.wire.formats.base import (
    Change,
    Event,
    Json,
    ResultPlace,
    edit_user_text,
    insert_message,
    objects_in,
    retry_headers,
    words,
    write_event,
)

_REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"
"""in the form of the provider's own"""
_ERRORS = {
    429: ("rate_limit_error", "This request would exceed the rate limit"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


class AnthropicMessages:
    name = "anthropic"
    path = "/messages"

    def matches(self, request: Json) -> bool:
        return isinstance(request.get("messages"), list) and "max_tokens" in request

    # Streams

    def collect(self, events: list[Event]) -> Json | None:
        reply: Json | None = None
        blocks: dict[int, Json] = {}
        for event in events:
            data = event.json
            if not isinstance(data, dict):
                continue
            if data.get("type") == "message_start" and isinstance(data.get("message"), dict):
                reply = dict(data["message"])
            elif reply is not None and data.get("type") == "message_delta":
                reply |= data.get("delta") or {}
                reply["usage"] = (reply.get("usage") or {}) | (data.get("usage") or {})
            elif isinstance(data.get("index"), int):
                _collect(blocks, data)
        return (
            None if reply is None else {**reply, "content": [_close_block(blocks[index]) for index in sorted(blocks)]}
        )

    def stream(self, reply: Json) -> list[bytes]:
        start = {**reply, "content": [], "stop_reason": None, "stop_sequence": None}
        events: list[Json] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(_content(reply)):
            events += _block_events(index, block)
        delta = {"stop_reason": reply.get("stop_reason"), "stop_sequence": reply.get("stop_sequence")}
        usage = {"output_tokens": (reply.get("usage") or {}).get("output_tokens", 0)}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        events.append({"type": "message_stop"})
        return [write_event(event, event["type"]) for event in events]

    def text_in(self, event: Event) -> str:
        data = event.json
        delta = data.get("delta") if isinstance(data, dict) else None
        return str(delta.get("text") or "") if isinstance(delta, dict) and delta.get("type") == "text_delta" else ""

    # Replies

    def with_text(self, reply: Json, change: Change, *, cut_short: bool = False) -> Json:
        altered = copy.deepcopy(reply)
        for block in _content(altered):
            if block.get("type") == "text" and isinstance(block.get("text"), str):
                block["text"] = change(block["text"])
        if cut_short:
            altered["stop_reason"] = "max_tokens"
        return altered

    def without_content(self, reply: Json) -> Json:
        return {**reply, "content": [], "stop_reason": "end_turn"}

    def calls(self, reply: Json) -> dict[str, str]:
        named = ((block.get("id"), block.get("name")) for block in _content(reply) if block.get("type") == "tool_use")
        return {id: name for id, name in named if isinstance(id, str) and isinstance(name, str)}

    def with_broken_calls(self, reply: Json, change: Change) -> Json:
        """Arguments are an object in this format; broken ones become a text that cannot be parsed."""
        altered = copy.deepcopy(reply)
        for block in _content(altered):
            if block.get("type") == "tool_use":
                block["input"] = change(msgspec.json.encode(block.get("input")).decode())
        return altered

    def error(self, status: int, message: str | None) -> Incoming:
        kind, text = _ERRORS.get(status, ("api_error", "Internal server error"))
        body = {"type": "error", "error": {"type": kind, "message": message or text}, "request_id": _REQUEST_ID}
        return json_reply(status, body, {"request-id": _REQUEST_ID, **retry_headers(status)})

    def answer(self, reply: Json) -> Json:
        keys = ("content", "stop_reason", "model", "usage")
        return {"role": "assistant", **{key: reply[key] for key in keys if reply.get(key) is not None}}

    # Requests

    def messages(self, request: Json) -> list[Any]:
        system = request.get("system")
        first = [] if system is None else [{"role": "system", "content": system}]
        return [*first, *request["messages"]]

    def edit_prompt(self, request: Json, change: Change) -> bool:
        return edit_user_text(request["messages"], change)

    def insert(self, request: Json, place: int | None, text: str) -> None:
        insert_message(request["messages"], place, text, is_result=lambda message: bool(_results(message)))

    def results(self, request: Json) -> Iterator[ResultPlace]:
        blocks = [block for message in request["messages"] for block in _content(message)]
        names = {block.get("id"): block.get("name") for block in blocks if block.get("type") == "tool_use"}
        for message in request["messages"]:
            for block in _results(message):
                call_id = block["tool_use_id"]
                name = names.get(call_id)
                yield ResultPlace(call_id=call_id, name=name, holder=block, key="content", error_key="is_error")


def _content(message: Any) -> list[Json]:
    return objects_in(message.get("content")) if isinstance(message, dict) else []


def _results(message: Any) -> list[Json]:
    return [
        block
        for block in _content(message)
        if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
    ]


def _collect(blocks: dict[int, Json], data: Json) -> None:
    """Add one event of a block to the earlier ones."""
    index, kind, delta = data["index"], data.get("type"), data.get("delta")
    if kind == "content_block_start" and isinstance(data.get("content_block"), dict):
        blocks[index] = {**data["content_block"], "partial": ""}
    elif kind == "content_block_delta" and index in blocks and isinstance(delta, dict):
        block = blocks[index]
        if delta.get("type") == "text_delta":
            block["text"] = (block.get("text") or "") + str(delta.get("text") or "")
        elif delta.get("type") == "input_json_delta":
            block["partial"] += str(delta.get("partial_json") or "")
        elif delta.get("type") == "thinking_delta":
            block["thinking"] = (block.get("thinking") or "") + str(delta.get("thinking") or "")
        elif delta.get("type") == "signature_delta":
            block["signature"] = delta.get("signature")
    elif kind == "content_block_stop" and index in blocks:
        blocks[index]["is_stopped"] = True


def _close_block(block: Json) -> Json:
    partial_json, is_stopped = block.pop("partial"), block.pop("is_stopped", False)
    if not str(block.get("type")).endswith("tool_use"):
        return block
    if partial_json:
        try:
            block["input"] = msgspec.json.decode(partial_json)
        except (msgspec.DecodeError, RecursionError):
            block["input"] = partial_json
    elif not is_stopped and not block.get("input"):
        block["input"] = ""  # the stream was cut before the arguments: they are unknown, not none
    return block


def _block_events(index: int, block: Json) -> list[Json]:
    start, deltas = block, list[Json]()
    if block.get("type") == "text":
        start = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": word} for word in words(block["text"])]
    elif block.get("type") == "tool_use":
        arguments = block.get("input")
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        start, deltas = {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    elif block.get("type") == "thinking":
        start = {**block, "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": block.get("thinking") or ""},
                  {"type": "signature_delta", "signature": block.get("signature") or ""}]  # fmt: skip
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
