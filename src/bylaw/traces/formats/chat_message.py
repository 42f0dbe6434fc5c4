"""One chat message: the content blocks of an assistant's message, and the results that any message carries."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from bylaw.traces.assembly.content import (
    CALL_BLOCKS,
    AssistantContent,
    Result,
    foreign_call,
    foreign_result,
    read_arguments,
    recorded_id,
)
from bylaw.traces.formats.record import MalformedRecord, Path, suggest, text_field, type_name

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
ASSISTANT = "assistant"
_TIMES = ("timestamp", "created_at", "createdAt", "created", "ts", "at")


def item_of(path: Path) -> str:
    """A path as a locator shows it, such as `.messages[3]`."""
    if len(path) == 2 and type(path[1]) is int:
        return f".{path[0]}[{path[1]}]"  # the common case, needed for every message
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def role_of(message: Any) -> str:
    if not isinstance(message, dict):
        raise MalformedRecord(f"a message is an object, not {type_name(message)}")
    role = message.get("role")
    if not isinstance(role, str):
        raise MalformedRecord("a message has no `role`", ("role",) if role is not None else ())
    if role not in ROLES:
        raise MalformedRecord(f"unknown role `{role}`", ("role",), code="unknown-kind", help=suggest(role, ROLES))
    return role


def unwrap(message: Any) -> Any:
    """The assistant's message inside a whole answer of OpenAI's API; any other message as it is."""
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


# An assistant's message


def read_assistant(message: dict[str, Any]) -> AssistantContent:
    """Content blocks of one shape, with `tool_calls` as blocks too. Null content is empty if calls are recorded."""
    content = message.get("content")
    blocks: list[Any] = []
    found = AssistantContent(blocks, [], [])
    if type(content) is list:
        _add_blocks(found, blocks, content)
    elif type(content) is str:
        if content:
            blocks.append({"type": "text", "text": content})
    elif content is not None:
        raise MalformedRecord(f"`content` must be text or a list, not {type_name(content)}", ("content",))
    reasoning, refusal = message.get("reasoning_content"), message.get("refusal")
    if type(reasoning) is str:
        blocks.insert(0, {"type": "thinking", "text": reasoning})
    if type(refusal) is str:
        blocks.append({"type": "refusal", "refusal": refusal})
    if message.get("tool_calls") is not None or message.get("function_call") is not None:
        _add_calls(found, message)
    if content is None:
        if not blocks:
            found.blocks = None
        found.text = "" if blocks else None
    elif type(content) is str:
        found.text = content
    if type(refusal) is str:
        found.text = UNSET  # it is text too
    return found


def _add_blocks(found: AssistantContent, blocks: list[Any], content: list[Any]) -> None:
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
                    raise MalformedRecord("this call has no `name`", ("content", len(blocks)))
                input = block.get("input")
                found.uses.append(block)
                found.arguments.append((input, None) if type(input) is dict else read_arguments(input))
            elif (call := foreign_call(block)) is not None:
                block = call
                found.uses.append(call)
                found.arguments.append(read_arguments(call["input"]))
        blocks.append(block)


def _add_calls(found: AssistantContent, message: dict[str, Any]) -> None:
    recorded = message.get("tool_calls")
    if recorded is not None and not isinstance(recorded, list):
        raise MalformedRecord(f"`tool_calls` must be a list, not {type_name(recorded)}", ("tool_calls",))
    calls: list[tuple[Path, Any]] = [(("tool_calls", index), call) for index, call in enumerate(recorded or ())]
    if message.get("function_call") is not None:
        calls.append((("function_call",), {"function": message["function_call"]}))
    for path, call in calls:
        function = call.get("function", call.get("custom")) if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if function is None or not isinstance(name, str):
            raise MalformedRecord("this call has no function name", path)
        found.add_call(call.get("id"), name, function.get("arguments", function.get("input")))


# Results, in any message


def results_in(message: dict[str, Any]) -> list[Result]:
    role, content = message.get("role"), message.get("content")
    if role in ("tool", "function"):
        call_id, name = recorded_id(message, ("tool_call_id",)), text_field(message, "name", "tool_name")
        inside = _results_among(content) if call_id is None and type(content) is list else None
        flag = message.get("is_error", message.get("tool_call_error"))  # the latter is Agno's
        is_error = flag if isinstance(flag, bool) else None
        return inside or [Result(call_id, name, content, is_error, message.get("arguments"))]
    return _results_among(content) if type(content) is list else []


def _results_among(content: list[Any]) -> list[Result]:
    found = (foreign_result(block) for block in content if type(block) is dict)
    return [result for result in found if result is not None]
