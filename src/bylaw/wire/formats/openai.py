"""OpenAI's two formats: chat completions, which many other servers offer as well, and Responses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

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
    role_of,
    words,
    write_event,
)


class _OpenAi:
    def error(self, status: int, message: str | None) -> Incoming:
        if status == 429:
            error = {"message": message or "Rate limit reached for requests", "type": "requests", "param": None,
                     "code": "rate_limit_exceeded"}  # fmt: skip
        else:
            text = message or "The server had an error while processing your request"
            error = {"message": text, "type": "server_error", "param": None, "code": None}
        return json_reply(status, {"error": error}, retry_headers(status))


class OpenAiChat(_OpenAi):
    name = "openai"
    path = "/chat/completions"

    def matches(self, request: Json) -> bool:
        return isinstance(request.get("messages"), list)

    # Streams

    def collect(self, events: list[Event]) -> Json | None:
        reply: Json | None = None
        choices: dict[int, Json] = {}
        for event in events:
            chunk = event.json
            if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
                continue
            if reply is None:
                reply = {**chunk, "object": "chat.completion"}
            if chunk.get("usage"):
                reply["usage"] = chunk["usage"]
            for choice in objects_in(chunk["choices"]):
                _collect(choices, choice)
        if reply is None:
            return None
        return {**reply, "choices": [_close_choice(choices[index]) for index in sorted(choices)]}

    def stream(self, reply: Json) -> list[bytes]:
        head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        events = [
            write_event({**head, "choices": [part]})
            for choice in reply.get("choices") or ()
            for part in _split_choice(choice)
        ]
        if reply.get("usage"):
            events.append(write_event({**head, "choices": [], "usage": reply["usage"]}))
        return [*events, write_event("[DONE]")]

    def text_in(self, event: Event) -> str:
        chunk = event.json
        choices = objects_in(chunk.get("choices")) if isinstance(chunk, dict) else []
        deltas = [choice.get("delta") for choice in choices]
        return "".join(_text(delta) for delta in deltas if isinstance(delta, dict))

    # Replies

    def with_text(self, reply: Json, change: Change, *, cut_short: bool = False) -> Json:
        altered = copy.deepcopy(reply)
        for choice, message in zip(altered.get("choices") or (), _messages(altered), strict=False):
            if isinstance(message.get("content"), str) and message["content"]:
                message["content"] = change(message["content"])
                if cut_short:
                    choice["finish_reason"] = "length"
        return altered

    def without_content(self, reply: Json) -> Json:
        altered = copy.deepcopy(reply)
        for choice, message in zip(altered.get("choices") or (), _messages(altered), strict=False):
            message["content"] = ""
            message.pop("tool_calls", None)
            choice["finish_reason"] = "stop"
        return altered

    def calls(self, reply: Json) -> dict[str, str]:
        calls = [call for message in _messages(reply) for call in objects_in(message.get("tool_calls"))]
        named = ((call.get("id"), (call.get("function") or {}).get("name")) for call in calls)
        return {id: name for id, name in named if isinstance(id, str) and isinstance(name, str)}

    def with_broken_calls(self, reply: Json, change: Change) -> Json:
        altered = copy.deepcopy(reply)
        calls = [call for message in _messages(altered) for call in objects_in(message.get("tool_calls"))]
        for function in objects_in([call.get("function") for call in calls]):
            function["arguments"] = change(str(function.get("arguments") or ""))
        return altered

    def answer(self, reply: Json) -> Json:
        outer = {key: reply[key] for key in ("model", "usage") if key in reply}
        choices = reply.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message = choice.get("message")
        inner = message if isinstance(message, dict) else {}
        return {**outer, "finish_reason": choice.get("finish_reason"), **inner, "role": "assistant"}

    # Requests

    def messages(self, request: Json) -> list[Any]:
        return list(request["messages"])

    def edit_prompt(self, request: Json, change: Change) -> bool:
        return edit_user_text(request["messages"], change)

    def insert(self, request: Json, place: int | None, text: str) -> None:
        insert_message(request["messages"], place, text, is_result=lambda message: role_of(message) == "tool")

    def results(self, request: Json) -> Iterator[ResultPlace]:
        messages = objects_in(request["messages"])
        calls = [call for message in messages for call in objects_in(message.get("tool_calls"))]
        names = {c.get("id"): c["function"].get("name") for c in calls if isinstance(c.get("function"), dict)}
        for message in messages:
            call_id = message.get("tool_call_id")
            if message.get("role") == "tool" and isinstance(call_id, str):
                yield ResultPlace(call_id=call_id, name=names.get(call_id), holder=message, key="content")


def _messages(reply: Json) -> list[Json]:
    return objects_in([choice.get("message") for choice in objects_in(reply.get("choices"))])


def _text(message: Json) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _split_choice(choice: Json) -> Iterator[Json]:
    """A choice as the choices of chunks."""
    index, message = choice.get("index", 0), choice.get("message") or {}

    def part(delta: Json, finish: Any = None) -> Json:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}

    yield part({"role": "assistant", "content": "" if isinstance(message.get("content"), str) else None})
    for word in words(_text(message)):
        yield part({"content": word})
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        first = {"index": number, "id": call.get("id"), "type": "function",
                 "function": {"name": function.get("name"), "arguments": ""}}  # fmt: skip
        yield part({"tool_calls": [first]})
        yield part({"tool_calls": [{"index": number, "function": {"arguments": function.get("arguments") or ""}}]})
    yield part({}, choice.get("finish_reason") or "stop")


def _collect(choices: dict[int, Json], choice: Json) -> None:
    """Add one chunk of a choice to the earlier ones."""
    index = choice["index"] if isinstance(choice.get("index"), int) else 0
    known = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}, "calls": []})
    if choice.get("finish_reason"):
        known["finish_reason"] = choice["finish_reason"]
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return
    for key in ("content", "refusal", "reasoning_content"):
        if isinstance(delta.get(key), str):
            known["message"][key] = (known["message"].get(key) or "") + delta[key]
    for call in delta.get("tool_calls") or ():
        if isinstance(call, dict):
            _collect_call(known["calls"], call)


def _collect_call(calls: list[Json], call: Json) -> None:
    known = _call_of(calls, call)
    if known is None:
        known = {"id": None, "type": "function", "function": {"name": None, "arguments": ""}}
        known["index"] = call["index"] if isinstance(call.get("index"), int) else len(calls)
        calls.append(known)
    function = call.get("function") or {}
    known["id"] = known["id"] or call.get("id")
    known["function"]["name"] = function.get("name") or known["function"]["name"]
    known["function"]["arguments"] += function.get("arguments") or ""
    custom = call.get("custom")
    if isinstance(custom, dict):
        own = known.setdefault("custom", {"name": None, "input": ""})
        own["name"] = custom.get("name") or own["name"]
        own["input"] += custom.get("input") or ""


def _call_of(calls: list[Json], call: Json) -> Json | None:
    """The call that a chunk goes on with; None if it begins one.

    Some servers give each call the same index, or none. Others give each chunk an id of its own, but no name then.
    """
    index, id = call.get("index"), call.get("id")
    same = [one for one in calls if not isinstance(index, int) or one["index"] == index]
    known = next((one for one in same if id and one["id"] == id), same[-1] if same else None)
    if known is None or (id and known["id"] == id):
        return known
    is_named = any((call.get(key) or {}).get("name") for key in ("function", "custom"))
    is_other = not isinstance(index, int) or (id and known["id"])
    return None if is_named and is_other else known


def _close_choice(choice: Json) -> Json:
    calls = choice.pop("calls")
    if calls:
        calls.sort(key=lambda call: int(call.pop("index")))
        choice["message"]["tool_calls"] = [
            {"id": call["id"], "type": "custom", "custom": call["custom"]} if "custom" in call else call
            for call in calls
        ]
    return {"finish_reason": None, **choice}


# Responses


_INPUT_TEXTS = ("input_text", "text")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class OpenAiResponses(_OpenAi):
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
                _collect_item(items, data)
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

    def answer(self, reply: Json) -> Json:
        calls = [_make_call(item) for item in _items(reply) if item.get("type") == "function_call"]
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
        return [*first, *(_make_message(item) for item in conversation)]

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


def _make_call(item: Json) -> Json:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _make_message(item: Any) -> Any:
    if isinstance(item, dict) and item.get("type") == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": [_make_call(item)]}
    if isinstance(item, dict) and item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    return item


def _collect_item(items: dict[int, Json], data: Json) -> None:
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
