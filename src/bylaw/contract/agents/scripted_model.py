"""A model that answers from a file, for contracts that must run anywhere, offline and the same each time.

```yaml
replies:
  - when: {contains: weather, last_role: user}
    tool_calls: [{name: get_weather, arguments: {city: Bern}}]
  - when: {last_role: tool}
    text: It is sunny in Bern.
  - text: I do not know.
```

The first reply whose `when` matches is the answer. `nth: 2` matches a conversation that has one answer of the model
already. Requests are answered in the format they came in, streamed if they ask for it. Ids are computed from the
request, so they are the same each time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec import Struct

from bylaw.contract.live_agent import AgentUnreachable
from bylaw.model.canonical import prepared, short_digest
from bylaw.wire.exchange import Incoming, Outgoing, json_reply
from bylaw.wire.formats import model_call
from bylaw.wire.formats.base import Json, WireFormat
from bylaw.wire.proxy.upstream import Reply

_MOST = 1024 * 1024


class When(Struct, frozen=True, forbid_unknown_fields=True):
    contains: str | None = None
    """a text in the latest message; case is ignored"""
    last_role: Literal["user", "tool", "assistant", "system"] | None = None
    nth: int | None = None
    """1: the model has not answered in this conversation yet"""


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


class ScriptedReply(Struct, frozen=True, forbid_unknown_fields=True):
    when: When = When()
    text: str | None = None
    tool_calls: tuple[Call, ...] = ()
    usage: dict[str, int] = {}


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    replies: tuple[ScriptedReply, ...]

    def reply_to(self, wire: WireFormat, request: Json) -> ScriptedReply | None:
        messages = [message for message in wire.messages(request) if isinstance(message, dict)]
        last = messages[-1] if messages else {}
        role, text = _role(last), _text(last.get("content")).lower()
        # some formats state one answer as several messages, which count as one
        number = 1 + sum(role == "assistant" for role, _ in groupby(map(_role, messages)))
        for reply in self.replies:
            when = reply.when
            contains = when.contains is None or when.contains.lower() in text
            if contains and when.last_role in (None, role) and when.nth in (None, number):
                return reply
        return None


def _role(message: Json) -> str:
    """`tool` for a result, also in formats that send it in a message of the user."""
    content = message.get("content")
    kinds = [block.get("type") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return "tool" if "tool_result" in kinds else str(message.get("role"))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(block) for block in content)
    if isinstance(content, dict):
        return _text(content.get("text", content.get("content")))
    return ""


# The reply, as each provider sends it


def provider_reply(provider: str, reply: ScriptedReply, request: Json) -> Json:
    return _WRITERS[provider](reply, request, short_digest(request))


def _chat(reply: ScriptedReply, request: Json, key: str) -> Json:
    message: Json = {"role": "assistant", "content": _reply_text(reply), "refusal": None}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": _json(arguments)}}
            for id, name, arguments in _calls(reply, key)
        ]
    finish = "tool_calls" if reply.tool_calls else "stop"
    read, written = _counts(reply)
    return {
        "id": f"chatcmpl-{key}",
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model") or "scripted",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _responses(reply: ScriptedReply, request: Json, key: str) -> Json:
    output: list[Json] = []
    text = _reply_text(reply)
    if text is not None:
        block = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        output.append({"type": "message", "id": f"msg_{key}", "status": "completed", "role": "assistant",
                       "content": [block]})  # fmt: skip
    output += [
        {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": _json(arguments),
         "status": "completed"}
        for id, name, arguments in _calls(reply, key)
    ]  # fmt: skip
    read, written = _counts(reply)
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
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
    }


def _messages(reply: ScriptedReply, request: Json, key: str) -> Json:
    text = _reply_text(reply)
    content: list[Json] = [] if text is None else [{"type": "text", "text": text}]
    content += [
        {"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in _calls(reply, key)
    ]
    read, written = _counts(reply)
    return {
        "id": f"msg_{key}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model") or "scripted",
        "content": content,
        "stop_reason": "tool_use" if reply.tool_calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": read, "output_tokens": written},
    }


_WRITERS = {"openai": _chat, "openai_responses": _responses, "anthropic": _messages}


def _reply_text(reply: ScriptedReply) -> str | None:
    """An empty reply is an empty text. A reply that consists of calls has no text."""
    return reply.text if reply.text is not None or reply.tool_calls else ""


def _calls(reply: ScriptedReply, key: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [(f"call_{key}_{number}", call.name, call.arguments) for number, call in enumerate(reply.tool_calls)]


def _json(arguments: dict[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _counts(reply: ScriptedReply) -> tuple[int, int]:
    written = len((reply.text or "").split()) + 10 * len(reply.tool_calls)
    return reply.usage.get("input_tokens", 10), reply.usage.get("output_tokens", written)


_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class ScriptedModel:
    def __init__(self, script: Script) -> None:
        self._script = script

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Raises AgentUnreachable if the file cannot be used."""
        try:
            with path.open("rb") as file:
                text = file.read(_MOST)
            return cls(msgspec.convert(yaml.safe_load(text), prepared(Script)))
        except OSError as error:
            raise AgentUnreachable(f"the scripted model `{path}` cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise AgentUnreachable(f"the scripted model `{path}` cannot be used: {reason}") from None

    @asynccontextmanager
    async def fetch(self, request: Outgoing) -> AsyncIterator[Reply]:
        yield self.answer(request)

    def answer(self, request: Outgoing) -> ScriptedAnswer:
        asked = model_call(request)
        if asked is None:
            message = f"the scripted model does not serve `{request.method} {request.url}`"
            return ScriptedAnswer.of(json_reply(404, {"error": {"message": message, "type": "not_found_error"}}))
        wire, body = asked
        scripted = self._script.reply_to(wire, body)
        if scripted is None:
            return ScriptedAnswer.of(wire.error(400, "no reply of the script matches this request"))
        reply = provider_reply(wire.name, scripted, body)
        if body.get("stream") is True:
            return ScriptedAnswer(200, _STREAM, wire.stream(reply))
        return ScriptedAnswer(200, {"content-type": "application/json"}, [msgspec.json.encode(reply)])


class ScriptedAnswer:
    """Satisfies `wire.proxy.upstream.Reply`."""

    def __init__(self, status: int, headers: dict[str, str], parts: list[bytes]) -> None:
        self.status = status
        self.headers = list(headers.items())
        self._parts = parts

    @classmethod
    def of(cls, reply: Incoming) -> ScriptedAnswer:
        return cls(reply.status, reply.headers, [reply.body])

    async def body(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part
