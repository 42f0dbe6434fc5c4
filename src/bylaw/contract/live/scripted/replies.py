"""A scripted reply as the object that each provider answers. Ids come from the request: the same each time."""

from __future__ import annotations

from typing import Any

import msgspec

from bylaw.contract.live.scripted.script import ScriptedReply
from bylaw.model.canonical import short_digest
from bylaw.wire.formats.base import Json


def written(provider: str, reply: ScriptedReply, request: Json) -> Json:
    return _WRITERS[provider](reply, request, short_digest(request))


def _chat(reply: ScriptedReply, request: Json, key: str) -> Json:
    message: Json = {"role": "assistant", "content": _text(reply), "refusal": None}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": _arguments(given)}}
            for id, name, given in _calls(reply, key)
        ]
    finish = "tool_calls" if reply.tool_calls else "stop"
    read, wrote = _counts(reply)
    return {
        "id": f"chatcmpl-{key}",
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model") or "scripted",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote},
    }


def _responses(reply: ScriptedReply, request: Json, key: str) -> Json:
    output: list[Json] = []
    text = _text(reply)
    if text is not None:
        block = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        output.append({"type": "message", "id": f"msg_{key}", "status": "completed", "role": "assistant",
                       "content": [block]})  # fmt: skip
    output += [
        {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": _arguments(given),
         "status": "completed"}
        for id, name, given in _calls(reply, key)
    ]  # fmt: skip
    read, wrote = _counts(reply)
    return {
        "id": f"resp_{key}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": request.get("model") or "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": request.get("tools") or [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": wrote,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + wrote,
        },
    }


def _messages(reply: ScriptedReply, request: Json, key: str) -> Json:
    text = _text(reply)
    content: list[Json] = [] if text is None else [{"type": "text", "text": text}]
    content += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in _calls(reply, key)]
    read, wrote = _counts(reply)
    return {
        "id": f"msg_{key}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model") or "scripted",
        "content": content,
        "stop_reason": "tool_use" if reply.tool_calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": wrote},
    }


_WRITERS = {"openai": _chat, "openai_responses": _responses, "anthropic": _messages}


def _text(reply: ScriptedReply) -> str | None:
    """A reply that says nothing at all is an empty text; one of calls alone has none."""
    return reply.text if reply.text is not None or reply.tool_calls else ""


def _calls(reply: ScriptedReply, key: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [(f"call_{key}_{number}", call.name, call.arguments) for number, call in enumerate(reply.tool_calls)]


def _arguments(given: dict[str, Any]) -> str:
    return msgspec.json.encode(given).decode()


def _counts(reply: ScriptedReply) -> tuple[int, int]:
    wrote = len((reply.text or "").split()) + 10 * len(reply.tool_calls)
    return reply.usage.get("input_tokens", 10), reply.usage.get("output_tokens", wrote)
