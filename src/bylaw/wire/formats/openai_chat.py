"""OpenAI's chat completions, which many other servers offer as well."""

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


class OpenAiChat:
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
        return {**reply, "choices": [_closed(choices[index]) for index in sorted(choices)]}

    def stream(self, reply: Json) -> list[bytes]:
        head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        events = [
            write_event({**head, "choices": [part]}) for choice in reply.get("choices") or () for part in _parts(choice)
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

    def has_calls(self, reply: Json) -> bool:
        return any(_functions(message) for message in _messages(reply))

    def calls(self, reply: Json) -> dict[str, str]:
        calls = [call for message in _messages(reply) for call in objects_in(message.get("tool_calls"))]
        named = ((call.get("id"), (call.get("function") or {}).get("name")) for call in calls)
        return {id: name for id, name in named if isinstance(id, str) and isinstance(name, str)}

    def with_broken_calls(self, reply: Json, change: Change) -> Json:
        altered = copy.deepcopy(reply)
        for message in _messages(altered):
            for function in _functions(message):
                function["arguments"] = change(str(function.get("arguments") or ""))
        return altered

    def error(self, status: int, message: str | None) -> Incoming:
        return openai_error(status, message)

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


def openai_error(status: int, message: str | None) -> Incoming:
    if status == 429:
        error = {"message": message or "Rate limit reached for requests", "type": "requests", "param": None,
                 "code": "rate_limit_exceeded"}  # fmt: skip
    else:
        text = message or "The server had an error while processing your request"
        error = {"message": text, "type": "server_error", "param": None, "code": None}
    return json_reply(status, {"error": error}, retry_headers(status))


def _messages(reply: Json) -> list[Json]:
    return objects_in([choice.get("message") for choice in objects_in(reply.get("choices"))])


def _text(message: Json) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _functions(message: Json) -> list[Json]:
    return objects_in([call.get("function") for call in objects_in(message.get("tool_calls"))])


def _parts(choice: Json) -> Iterator[Json]:
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
    """Add one chunk of a choice to what came before."""
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


def _closed(choice: Json) -> Json:
    calls = choice.pop("calls")
    if calls:
        calls.sort(key=lambda call: int(call.pop("index")))
        choice["message"]["tool_calls"] = [
            {"id": call["id"], "type": "custom", "custom": call["custom"]} if "custom" in call else call
            for call in calls
        ]
    return {"finish_reason": None, **choice}
