"""One chat message: what an assistant's says as content blocks, and which results any message carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.traces.assembly.content import CALL_BLOCKS, read_arguments
from bylaw.traces.formats.record import a_type, near

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
    if message.keys().isdisjoint(_TIMES):
        return None
    for key in _TIMES:
        value = message.get(key)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return value
    return None


def text_field(message: dict[str, Any], key: str, *others: str) -> str | None:
    """The first of these that is text. Mostly one key is asked for, several times a message."""
    value = message.get(key)
    if isinstance(value, str):
        return value
    for other in others:
        value = message.get(other)
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
    blocks: list[Any] = []
    out = Said(blocks, [], [])
    if type(content) is list:
        _add_blocks(out, blocks, content)
    elif type(content) is str:
        if content:
            blocks.append({"type": "text", "text": content})
    elif content is not None:
        raise Misshapen(f"`content` must be text or a list, not {a_type(content)}", ("content",))
    reasoning, refusal = message.get("reasoning_content"), message.get("refusal")
    if type(reasoning) is str:
        blocks.insert(0, {"type": "thinking", "text": reasoning})
    if type(refusal) is str:
        blocks.append({"type": "refusal", "refusal": refusal})
    if message.get("tool_calls") is not None or message.get("function_call") is not None:
        for path, call in _calls(message):
            _add_call(out, call, path)
    if content is None and not blocks:
        out.blocks = None
    return out


def _add_blocks(out: Said, blocks: list[Any], content: list[Any]) -> None:
    for block in content:
        if type(block) is str:
            block = {"type": "text", "text": block}
        elif type(block) is dict and (kind := block.get("type")) != "text":
            if kind == "output_text":
                block = {**block, "type": "text"}
            elif kind == "thinking" and "text" not in block:
                block = {"type": "thinking", "text": block.get("thinking"), **block}
            elif type(kind) is str and kind in CALL_BLOCKS:
                if type(block.get("name")) is not str:
                    raise Misshapen("this call has no `name`", ("content", len(blocks)))
                given = block.get("input")
                out.uses.append(block)
                out.arguments.append((given, None) if type(given) is dict else read_arguments(given))
        blocks.append(block)


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
    name = function.get("name") if isinstance(function, dict) else None
    if function is None or not isinstance(name, str):
        raise Misshapen("this call has no function name", path)
    add_use(out, call.get("id"), name, function.get("arguments", function.get("input")))


def add_use(out: Said, id: Any, name: str, recorded: Any) -> None:
    """One more call, as a block."""
    arguments, raw = read_arguments(recorded)
    block = {"type": "tool_use", "id": id, "name": name, "input": raw if arguments is None else arguments}
    if out.blocks is None:
        out.blocks = []
    out.blocks.append(block)
    out.uses.append(block)
    out.arguments.append((arguments, raw))


# Results, in any message


def results_in(message: dict[str, Any]) -> list[Result]:
    role, content = message.get("role"), message.get("content")
    if role in ("tool", "function"):
        return [Result(text_field(message, "tool_call_id"), text_field(message, "name"), content, _flag(message))]
    found: list[Result] = []
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind.endswith("tool_result"):
            found.append(Result(text_field(block, "tool_use_id"), None, block.get("content"), _flag(block)))
    return found


def _flag(message: dict[str, Any]) -> bool | None:
    flag = message.get("is_error")
    return flag if isinstance(flag, bool) else None
