"""One chat message: what an assistant's says as content blocks, and which results any message carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.adapters.importers.assembly.arguments import read_arguments
from bylaw.adapters.importers.formats.reader import a_type, near

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
ASSISTANT = "assistant"
_TIMES = ("timestamp", "created_at", "created", "ts", "at")
Path = tuple[str | int, ...]


def item_of(path: Path) -> str:
    """A path as a locator shows it, such as `.messages[3]`."""
    if len(path) == 2 and type(path[1]) is int:
        return f".{path[0]}[{path[1]}]"  # nearly always, and asked of every message
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


class Misshapen(ValueError):
    """A message that cannot be read, and the part of it that is to blame."""

    def __init__(self, message: str, path: Path = (), *, code: str = "wrong-type", help: str | None = None) -> None:
        super().__init__(message)
        self.message, self.path, self.code, self.help = message, path, code, help


class Result(Struct, frozen=True):
    """What a tool returned, in whatever kind of message."""

    call_id: str | None
    name: str | None
    content: Any
    is_error: bool | None


def role_of(message: Any) -> str:
    if not isinstance(message, dict):
        raise Misshapen(f"a message is an object, not {a_type(message)}")
    role = message.get("role")
    if not isinstance(role, str):
        raise Misshapen("a message has no `role`", ("role",) if role is not None else ())
    if role not in ROLES:
        raise Misshapen(f"unknown role `{role}`", ("role",), code="unknown-kind", help=near(role, ROLES))
    return role


def unwrap(message: Any) -> Any:
    """An assistant's message inside the whole answer of OpenAI's API becomes that message."""
    choices = message.get("choices") if isinstance(message, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return message
    inner = choices[0].get("message")
    if not isinstance(inner, dict):
        return message
    outer = {key: message[key] for key in ("model", "usage", "created") if key in message}
    return {**outer, "finish_reason": choices[0].get("finish_reason"), **inner}


def time_of(message: dict[str, Any]) -> str | float | None:
    for key in _TIMES:
        value = message.get(key)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return value
    return None


def text_field(message: dict[str, Any], *keys: str) -> str | None:
    for key in keys:  # a loop, for this is asked several times a message
        value = message.get(key)
        if isinstance(value, str):
            return value
    return None


# An assistant's message


class Said(Struct):
    """The content of an assistant's message."""

    blocks: list[Any] | None
    uses: list[dict[str, Any]]
    """the blocks that are calls …"""
    arguments: list[tuple[Any, str | None]]
    """… and the arguments of each, parsed and as text"""


def said(message: dict[str, Any]) -> Said:
    """Content blocks of one shape, with `tool_calls` as blocks too. Null content is empty where calls are recorded."""
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise Misshapen(f"`content` must be text or a list, not {a_type(content)}", ("content",))
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    if isinstance(content, list):
        blocks = [_block(block) for block in content]
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        blocks.insert(0, {"type": "thinking", "text": reasoning})
    if isinstance(message.get("refusal"), str):
        blocks.append({"type": "refusal", "refusal": message["refusal"]})
    out = Said(blocks, [], [])
    for at, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
            if not isinstance(block.get("name"), str):
                raise Misshapen("this call has no `name`", ("content", at))
            out.uses.append(block)
            out.arguments.append(read_arguments(block.get("input")))
    for path, call in _calls(message):
        _add_call(out, call, path)
    if content is None and not blocks:
        out.blocks = None
    return out


def _block(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        if block.get("type") == "output_text":
            return {**block, "type": "text"}
        if block.get("type") == "thinking" and "text" not in block:
            return {"type": "thinking", "text": block.get("thinking"), **block}
    return block


def _calls(message: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise Misshapen(f"`tool_calls` must be a list, not {a_type(calls)}", ("tool_calls",))
    for index, call in enumerate(calls or ()):
        yield ("tool_calls", index), call
    if message.get("function_call") is not None:
        yield ("function_call",), {"function": message["function_call"]}


def _add_call(out: Said, call: Any, path: Path) -> None:
    function = call.get("function", call.get("custom")) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Misshapen("this call has no function name", path)
    arguments, raw = read_arguments(function.get("arguments", function.get("input")))
    given = raw if arguments is None else arguments
    block = {"type": "tool_use", "id": call.get("id"), "name": function["name"], "input": given}
    assert out.blocks is not None
    out.blocks.append(block)
    out.uses.append(block)
    out.arguments.append((arguments, raw))


# Results, in any message


def results_in(message: dict[str, Any]) -> Iterator[Result]:
    role, content = message.get("role"), message.get("content")
    if role in ("tool", "function"):
        yield Result(text_field(message, "tool_call_id"), text_field(message, "name"), content, _flag(message))
        return
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind.endswith("tool_result"):
            yield Result(text_field(block, "tool_use_id"), None, block.get("content"), _flag(block))


def _flag(message: dict[str, Any]) -> bool | None:
    flag = message.get("is_error")
    return flag if isinstance(flag, bool) else None
