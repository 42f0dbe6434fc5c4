"""OpenAI's Responses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bylaw.wire.exchange import Incoming
from bylaw.wire.formats.base import Json, ResultPlace, edit_text, pieces, place_for
from bylaw.wire.formats.openai_chat import openai_error
from bylaw.wire.formats.sse import Event, write_event

_INPUT_TEXTS = ("input_text", "text")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class OpenAiResponses:
    name = "openai_responses"
    path = "/responses"

    def asks(self, request: Json) -> bool:
        return isinstance(request.get("input"), str | list) and "messages" not in request

    # Streams

    def collected(self, events: list[Event]) -> Json | None:
        """The last event holds the whole response; of a stream that was cut before it, what came is put together."""
        begun: Json | None = None
        items: dict[int, Json] = {}
        for event in events:
            told = event.json
            if not isinstance(told, dict):
                continue
            response = told.get("response")
            if isinstance(response, dict):
                if told.get("type") in _LAST:
                    return response
                begun = response
            elif isinstance(told.get("output_index"), int):
                _collect(items, told)
        return None if begun is None else {**begun, "output": [items[at] for at in sorted(items)]}

    def streamed(self, reply: Json) -> list[bytes]:
        begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        told: list[Json] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(_items(reply)):
            told += _item_events(index, item)
        last = "response.incomplete" if reply.get("status") == "incomplete" else "response.completed"
        told.append({"type": last, "response": reply})
        return [write_event({**event, "sequence_number": at}, event["type"]) for at, event in enumerate(told)]

    def texts_of(self, event: Event) -> str:
        told = event.json
        is_delta = isinstance(told, dict) and told.get("type") == "response.output_text.delta"
        return str(told.get("delta") or "") if is_delta else ""

    # Replies

    def with_text(self, reply: Json, change: Callable[[str], str], *, cut_short: bool = False) -> Json:
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

    def with_broken_calls(self, reply: Json, change: Callable[[str], str]) -> Json:
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
        asked = request["input"]
        if isinstance(asked, str):
            return [*first, {"role": "user", "content": asked}]
        return [*first, *(_as_message(item) for item in asked)]

    def edit_prompt(self, request: Json, change: Callable[[str], str]) -> bool:
        asked = request["input"]
        if isinstance(asked, str):
            request["input"] = change(asked)
            return True
        users = (item for item in reversed(asked) if isinstance(item, dict) and item.get("role") == "user")
        return any(edit_text(item, "content", change, _INPUT_TEXTS) for item in users)

    def insert(self, request: Json, place: int | None, text: str) -> None:
        if isinstance(request["input"], str):
            request["input"] = [{"role": "user", "content": request["input"]}]
        items = request["input"]
        at = place_for(items, place, is_system=lambda item: _role(item) in ("system", "developer"))
        while 0 < at < len(items) and isinstance(items[at], dict) and "call_id" in items[at]:
            at -= 1  # a call and its results stay together
        said_before = any(_role(item) == "user" for item in items[:at])
        items.insert(at, {"role": "assistant" if said_before else "user", "content": text})

    def results(self, request: Json) -> Iterator[ResultPlace]:
        items = [item for item in request["input"] if isinstance(item, dict)] if _is_list(request) else []
        names = {item.get("call_id"): item.get("name") for item in items if item.get("type") == "function_call"}
        for item in items:
            if item.get("type") == "function_call_output" and isinstance(item.get("call_id"), str):
                yield ResultPlace(item["call_id"], names.get(item["call_id"]), partial(_edit, item))


def _edit(item: Json, change: Callable[[str], str]) -> None:
    edit_text(item, "output", change, _INPUT_TEXTS)


def _is_list(request: Json) -> bool:
    return isinstance(request["input"], list)


def _role(item: Any) -> Any:
    return item.get("role") if isinstance(item, dict) else None


def _items(reply: Json) -> list[Json]:
    output = reply.get("output")
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def _texts(reply: Json) -> Iterator[Json]:
    for item in _items(reply):
        for block in item.get("content") or () if item.get("type") == "message" else ():
            if isinstance(block, dict) and block.get("type") == "output_text" and isinstance(block.get("text"), str):
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


def _collect(items: dict[int, Json], told: Json) -> None:
    index, kind = told["output_index"], told.get("type")
    if kind in ("response.output_item.added", "response.output_item.done") and isinstance(told.get("item"), dict):
        items[index] = copy.deepcopy(told["item"])
    elif kind == "response.output_text.delta" and index in items:
        blocks = items[index].setdefault("content", [])
        if not blocks:
            blocks.append({"type": "output_text", "text": "", "annotations": []})
        blocks[-1]["text"] += str(told.get("delta") or "")
    elif kind == "response.function_call_arguments.delta" and index in items:
        items[index]["arguments"] = (items[index].get("arguments") or "") + str(told.get("delta") or "")


def _item_events(index: int, item: Json) -> list[Json]:
    place = {"output_index": index, "item_id": item.get("id")}
    opened: Json = {**item, "status": "in_progress"}
    told: list[Json] = []
    if item.get("type") == "message":
        opened["content"] = []
        for number, block in enumerate(item.get("content") or ()):
            told += _block_events({**place, "content_index": number}, block)
    elif item.get("type") == "function_call":
        opened["arguments"] = ""
        arguments = item.get("arguments") or ""
        told.append({"type": "response.function_call_arguments.delta", **place, "delta": arguments})
        told.append({"type": "response.function_call_arguments.done", **place, "arguments": arguments,
                     "name": item.get("name")})  # fmt: skip
    first = {"type": "response.output_item.added", "output_index": index, "item": opened}
    return [first, *told, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _block_events(place: Json, block: Json) -> list[Json]:
    text = block.get("text") or ""
    told: list[Json] = [{"type": "response.content_part.added", **place, "part": {**block, "text": ""}}]
    told += [{"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in pieces(text)]
    told.append({"type": "response.output_text.done", **place, "text": text, "logprobs": []})
    return [*told, {"type": "response.content_part.done", **place, "part": block}]
