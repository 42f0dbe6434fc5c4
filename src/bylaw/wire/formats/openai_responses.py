"""OpenAI's Responses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from bylaw.wire.exchange import Incoming
from bylaw.wire.formats.base import (
    Change,
    Event,
    Json,
    ResultPlace,
    edit_user_text,
    insert_message,
    objects_in,
    words,
    write_event,
)
from bylaw.wire.formats.openai_chat import openai_error

_INPUT_TEXTS = ("input_text", "text")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class OpenAiResponses:
    name = "openai_responses"
    path = "/responses"

    def matches(self, request: Json) -> bool:
        return isinstance(request.get("input"), str | list) and "messages" not in request

    # Streams

    def collect(self, events: list[Event]) -> Json | None:
        """The last event holds the whole response. A stream that was cut before it is assembled from its parts."""
        begun: Json | None = None
        items: dict[int, Json] = {}
        for event in events:
            data = event.json
            if not isinstance(data, dict):
                continue
            response = data.get("response")
            if isinstance(response, dict):
                if data.get("type") in _LAST:
                    return response
                begun = response
            elif isinstance(data.get("output_index"), int):
                _collect(items, data)
        return None if begun is None else {**begun, "output": [items[at] for at in sorted(items)]}

    def stream(self, reply: Json) -> list[bytes]:
        begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        events: list[Json] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(_items(reply)):
            events += _item_events(index, item)
        last = "response.incomplete" if reply.get("status") == "incomplete" else "response.completed"
        events.append({"type": last, "response": reply})
        return [write_event({**event, "sequence_number": at}, event["type"]) for at, event in enumerate(events)]

    def text_in(self, event: Event) -> str:
        data = event.json
        is_delta = isinstance(data, dict) and data.get("type") == "response.output_text.delta"
        return str(data.get("delta") or "") if is_delta else ""

    # Replies

    def with_text(self, reply: Json, change: Change, *, cut_short: bool = False) -> Json:
        altered = copy.deepcopy(reply)
        for block in _texts(altered):
            block["text"] = change(block["text"])
        if cut_short:
            altered["status"] = "incomplete"
            altered["incomplete_details"] = {"reason": "max_output_tokens"}
            for item in _items(altered):
                if item.get("type") == "message":
                    item["status"] = "incomplete"
        return altered

    def without_content(self, reply: Json) -> Json:
        altered = copy.deepcopy(reply)
        altered["output"] = [item for item in _items(altered) if item.get("type") == "message"]
        for block in _texts(altered):
            block["text"] = ""
        return altered

    def has_calls(self, reply: Json) -> bool:
        return any(item.get("type") == "function_call" for item in _items(reply))

    def calls(self, reply: Json) -> dict[str, str]:
        named = (
            (item.get("call_id"), item.get("name")) for item in _items(reply) if item.get("type") == "function_call"
        )
        return {id: name for id, name in named if isinstance(id, str) and isinstance(name, str)}

    def with_broken_calls(self, reply: Json, change: Change) -> Json:
        altered = copy.deepcopy(reply)
        for item in _items(altered):
            if item.get("type") == "function_call":
                item["arguments"] = change(str(item.get("arguments") or ""))
        return altered

    def error(self, status: int, message: str | None) -> Incoming:
        return openai_error(status, message)

    def answer(self, reply: Json) -> Json:
        calls = [_as_call(item) for item in _items(reply) if item.get("type") == "function_call"]
        text = "\n".join(block["text"] for block in _texts(reply) if block["text"])
        message: Json = {"role": "assistant", "content": text if text or not calls else None, "tool_calls": calls}
        details = reply.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        message["finish_reason"] = reason or ("tool_calls" if calls else reply.get("status"))
        return message | {key: reply[key] for key in ("model", "usage") if reply.get(key) is not None}

    # Requests

    def messages(self, request: Json) -> list[Any]:
        system = request.get("instructions")
        first = [{"role": "system", "content": system}] if isinstance(system, str) else []
        conversation = request["input"]
        if isinstance(conversation, str):
            return [*first, {"role": "user", "content": conversation}]
        return [*first, *(_as_message(item) for item in conversation)]

    def edit_prompt(self, request: Json, change: Change) -> bool:
        if isinstance(request["input"], str):
            request["input"] = change(request["input"])
            return True
        return edit_user_text(request["input"], change, _INPUT_TEXTS)

    def insert(self, request: Json, place: int | None, text: str) -> None:
        if isinstance(request["input"], str):
            request["input"] = [{"role": "user", "content": request["input"]}]
        insert_message(
            request["input"], place, text, is_result=lambda item: isinstance(item, dict) and "call_id" in item
        )

    def results(self, request: Json) -> Iterator[ResultPlace]:
        items = objects_in(request["input"])
        names = {item.get("call_id"): item.get("name") for item in items if item.get("type") == "function_call"}
        for item in items:
            call_id = item.get("call_id")
            if item.get("type") == "function_call_output" and isinstance(call_id, str):
                name = names.get(call_id)
                yield ResultPlace(call_id=call_id, name=name, holder=item, key="output", kinds=_INPUT_TEXTS)


def _items(reply: Json) -> list[Json]:
    return objects_in(reply.get("output"))


def _texts(reply: Json) -> Iterator[Json]:
    for item in _items(reply):
        for block in objects_in(item.get("content")) if item.get("type") == "message" else ():
            if block.get("type") == "output_text" and isinstance(block.get("text"), str):
                yield block


def _as_call(item: Json) -> Json:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _as_message(item: Any) -> Any:
    if isinstance(item, dict) and item.get("type") == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": [_as_call(item)]}
    if isinstance(item, dict) and item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    return item


def _collect(items: dict[int, Json], data: Json) -> None:
    index, kind = data["output_index"], data.get("type")
    if kind in ("response.output_item.added", "response.output_item.done") and isinstance(data.get("item"), dict):
        items[index] = copy.deepcopy(data["item"])
    elif kind == "response.output_text.delta" and index in items:
        blocks = items[index].setdefault("content", [])
        if not blocks:
            blocks.append({"type": "output_text", "text": "", "annotations": []})
        blocks[-1]["text"] += str(data.get("delta") or "")
    elif kind == "response.function_call_arguments.delta" and index in items:
        items[index]["arguments"] = (items[index].get("arguments") or "") + str(data.get("delta") or "")


def _item_events(index: int, item: Json) -> list[Json]:
    place = {"output_index": index, "item_id": item.get("id")}
    start: Json = {**item, "status": "in_progress"}
    events: list[Json] = []
    if item.get("type") == "message":
        start["content"] = []
        for number, block in enumerate(item.get("content") or ()):
            events += _block_events({**place, "content_index": number}, block)
    elif item.get("type") == "function_call":
        start["arguments"] = ""
        arguments = item.get("arguments") or ""
        events.append({"type": "response.function_call_arguments.delta", **place, "delta": arguments})
        events.append({"type": "response.function_call_arguments.done", **place, "arguments": arguments,
                     "name": item.get("name")})  # fmt: skip
    first = {"type": "response.output_item.added", "output_index": index, "item": start}
    return [first, *events, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _block_events(place: Json, block: Json) -> list[Json]:
    text = block.get("text") or ""
    events: list[Json] = [{"type": "response.content_part.added", **place, "part": {**block, "text": ""}}]
    events += [{"type": "response.output_text.delta", **place, "delta": word, "logprobs": []} for word in words(text)]
    events.append({"type": "response.output_text.done", **place, "text": text, "logprobs": []})
    return [*events, {"type": "response.content_part.done", **place, "part": block}]
