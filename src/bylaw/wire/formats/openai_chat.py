"""OpenAI's chat completions, which many other servers speak as well."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bylaw.wire.exchange import Incoming
from bylaw.wire.formats.base import (
    Json,
    ResultPlace,
    edit_text,
    json_reply,
    pieces,
    place_for,
    retry_headers,
)
from bylaw.wire.formats.sse import Event, write_event

_TEXTS = ("text",)


class OpenAiChat:
    name = "openai"
    path = "/chat/completions"

    def asks(self, request: Json) -> bool:
        return isinstance(request.get("messages"), list)

    # Streams

    def collected(self, events: list[Event]) -> Json | None:
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
            for choice in chunk["choices"]:
                _collect(choices, choice)
        if reply is None:
            return None
        return {**reply, "choices": [_closed(choices[index]) for index in sorted(choices)]}

    def streamed(self, reply: Json) -> list[bytes]:
        head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        told = [
            write_event({**head, "choices": [part]}) for choice in reply.get("choices") or () for part in _parts(choice)
        ]
        if reply.get("usage"):
            told.append(write_event({**head, "choices": [], "usage": reply["usage"]}))
        return [*told, write_event("[DONE]")]

    def texts_of(self, event: Event) -> str:
        chunk = event.json
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        deltas = [choice.get("delta") for choice in choices or () if isinstance(choice, dict)]
        return "".join(_text(delta) for delta in deltas if isinstance(delta, dict))

    # Replies

    def with_text(self, reply: Json, change: Callable[[str], str], *, cut_short: bool = False) -> Json:
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
        return any(True for message in _messages(reply) for _ in _functions(message))

    def with_broken_calls(self, reply: Json, change: Callable[[str], str]) -> Json:
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

    def edit_prompt(self, request: Json, change: Callable[[str], str]) -> bool:
        users = (message for message in reversed(request["messages"]) if _role(message) == "user")
        return any(edit_text(message, "content", change, _TEXTS) for message in users)

    def insert(self, request: Json, place: int | None, text: str) -> None:
        messages = request["messages"]
        at = place_for(messages, place, is_system=lambda message: _role(message) in ("system", "developer"))
        while at > 0 and at < len(messages) and _role(messages[at]) == "tool":
            at -= 1  # a call and its results stay together, else no provider takes the request
        said_before = any(_role(message) == "user" for message in messages[:at])
        messages.insert(at, {"role": "assistant" if said_before else "user", "content": text})

    def results(self, request: Json) -> Iterator[ResultPlace]:
        names = {
            call.get("id"): call["function"].get("name")
            for message in request["messages"]
            for call in (message.get("tool_calls") or () if isinstance(message, dict) else ())
            if isinstance(call, dict) and isinstance(call.get("function"), dict)
        }
        for message in request["messages"]:
            if _role(message) == "tool" and isinstance(message.get("tool_call_id"), str):
                call_id = message["tool_call_id"]
                yield ResultPlace(call_id, names.get(call_id), partial(_edit, message))


def openai_error(status: int, message: str | None) -> Incoming:
    if status == 429:
        error = {"message": message or "Rate limit reached for requests", "type": "requests", "param": None,
                 "code": "rate_limit_exceeded"}  # fmt: skip
    else:
        text = message or "The server had an error while processing your request"
        error = {"message": text, "type": "server_error", "param": None, "code": None}
    return json_reply(status, {"error": error}, retry_headers(status))


def _edit(message: Json, change: Callable[[str], str]) -> None:
    edit_text(message, "content", change, _TEXTS)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _messages(reply: Json) -> list[Json]:
    choices = reply.get("choices")
    found = (
        [choice.get("message") for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    )
    return [message for message in found if isinstance(message, dict)]


def _text(message: Json) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _functions(message: Json) -> Iterator[Json]:
    for call in message.get("tool_calls") or ():
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            yield call["function"]


def _parts(choice: Json) -> Iterator[Json]:
    """A choice as the choices of chunks."""
    index, message = choice.get("index", 0), choice.get("message") or {}

    def part(delta: Json, finish: Any = None) -> Json:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}

    yield part({"role": "assistant", "content": "" if isinstance(message.get("content"), str) else None})
    for piece in pieces(_text(message)):
        yield part({"content": piece})
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        opening = {"index": number, "id": call.get("id"), "type": "function",
                   "function": {"name": function.get("name"), "arguments": ""}}  # fmt: skip
        yield part({"tool_calls": [opening]})
        yield part({"tool_calls": [{"index": number, "function": {"arguments": function.get("arguments") or ""}}]})
    yield part({}, choice.get("finish_reason") or "stop")


def _collect(choices: dict[int, Json], choice: Any) -> None:
    if not isinstance(choice, dict):
        return
    given = choice.get("index")
    index = given if isinstance(given, int) else 0
    held = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}, "calls": {}})
    if choice.get("finish_reason"):
        held["finish_reason"] = choice["finish_reason"]
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return
    for key in ("content", "refusal", "reasoning_content"):
        if isinstance(delta.get(key), str):
            held["message"][key] = (held["message"].get(key) or "") + delta[key]
    for call in delta.get("tool_calls") or ():
        _collect_call(held["calls"], call)


def _collect_call(calls: dict[int, Json], call: Any) -> None:
    if not isinstance(call, dict):
        return
    number = call.get("index", len(calls))
    held = calls.setdefault(number, {"id": None, "type": "function", "function": {"name": None, "arguments": ""}})
    function = call.get("function") or {}
    held["id"] = call.get("id") or held["id"]
    held["function"]["name"] = function.get("name") or held["function"]["name"]
    held["function"]["arguments"] += function.get("arguments") or ""
    custom = call.get("custom")
    if isinstance(custom, dict):
        own = held.setdefault("custom", {"name": None, "input": ""})
        own["name"] = custom.get("name") or own["name"]
        own["input"] += custom.get("input") or ""


def _closed(held: Json) -> Json:
    calls = held.pop("calls")
    if calls:
        held["message"]["tool_calls"] = [_closed_call(calls[number]) for number in sorted(calls)]
    return {"finish_reason": None, **held}


def _closed_call(held: Json) -> Json:
    if "custom" not in held:
        return held
    return {"id": held["id"], "type": "custom", "custom": held["custom"]}
