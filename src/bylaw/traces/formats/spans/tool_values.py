"""Arguments and results of tools, without what recorders and frameworks wrap around them. Nothing here can fail."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from bylaw.traces.assembly.content import Result, foreign_result, only_part, read_arguments
from bylaw.traces.assembly.session_buffer import same_value
from bylaw.traces.formats.messages import chat_message, parsed
from bylaw.traces.formats.record import text_field

_MOST_LAYERS = 4
_LANGCHAIN_INPUT = frozenset(("input_str", "inputs", "tags", "metadata", "kwargs"))
_LANGCHAIN_OUTPUT = frozenset(("output", "kwargs"))
_PYTHON_CALL = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))
"""how smolagents records the call of a tool's function"""
_MCP = frozenset(("content", "isError", "is_error", "structuredContent", "_meta"))


def inner_arguments(arguments: Any) -> Any:
    """The arguments inside a recorder's wrapper; the same value if there is none."""
    if not isinstance(arguments, dict):
        return arguments
    keys = arguments.keys()
    if keys == {"input"}:  # LangSmith, and what passes through it
        return parsed(arguments["input"]) if isinstance(parsed(arguments["input"]), dict) else arguments
    if "input_str" in keys and keys <= _LANGCHAIN_INPUT:  # LangChain's callback, as OpenLLMetry records it
        inputs = arguments.get("inputs")
        return inputs if isinstance(inputs, dict) else parsed(arguments["input_str"])
    if keys == {"kwargs"} and isinstance(arguments["kwargs"], dict):  # LlamaIndex
        return arguments["kwargs"]
    if {"args", "kwargs"} <= keys:  # Python's own: if all are named, `kwargs` are the arguments
        named = arguments["kwargs"]
        is_named = isinstance(named, dict) and not arguments["args"]
        return named if is_named and (named or keys <= _PYTHON_CALL) else arguments
    return arguments


def same_arguments(left: Any, right: Any) -> bool:
    """Whether two recordings of a call have the same arguments, however each is wrapped."""
    if same_value(left, right):
        return True
    inner, other = _innermost(left), _innermost(right)
    if same_value(inner, other):
        return True
    # LangChain shows a tool with one parameter only its value
    for value, whole in ((inner, other), (other, inner)):
        if not isinstance(value, dict) and isinstance(whole, dict) and len(whole) == 1:
            (only,) = whole.values()
            if same_value(value, only) or str(value) == only:
                return True
    return False


def _innermost(arguments: Any) -> Any:
    for _ in range(_MOST_LAYERS):
        inner = inner_arguments(parsed(arguments))
        if inner is arguments:
            break
        arguments = inner
    return arguments


def tool_arguments(recorded: Any) -> tuple[Any, str | None]:
    """The arguments that a tool's span recorded, parsed, and their text if that is what was recorded."""
    arguments, raw = read_arguments(recorded)
    inner = inner_arguments(arguments)
    return (arguments, raw) if inner is arguments else (inner, None)


def tool_result(recorded: Any | UnsetType) -> Result | None:
    """What a tool's span recorded as its output, and what that says about the call; None if nothing was recorded."""
    if recorded is UNSET or recorded is None:
        return None
    value = parsed(recorded)
    if isinstance(value, str):
        return Result(None, None, _text(value), None)
    for _ in range(_MOST_LAYERS):
        found = _inside(value)
        if not isinstance(found, Result):
            if found is value:
                break
            value = found
            continue
        return found
    return Result(None, None, only_part(value), None)


def _inside(value: Any) -> Any:
    """A result if the value is a message or an object that holds one, else what it wraps, else the value itself."""
    if not isinstance(value, dict):
        return value
    if (found := foreign_result(value)) is not None:
        return found
    if "output" in value and value.keys() <= _LANGCHAIN_OUTPUT and isinstance(parsed(value["output"]), dict):
        return parsed(value["output"])
    if {"raw_output", "tool_name", "is_error"} <= value.keys():  # LlamaIndex
        failed = value["is_error"]
        return Result(None, text_field(value, "tool_name"), value["raw_output"], failed if failed is True else None)
    if value.keys() == {"id", "name", "response"}:  # ADK
        return Result(value["id"], value["name"], value["response"], None)
    if isinstance(value.get("content"), list) and value.keys() <= _MCP:
        failed = value.get("isError", value.get("is_error"))
        return Result(None, None, value["content"], failed if isinstance(failed, bool) else None)
    if value.get("role") == "tool" or not value.keys().isdisjoint(("lc", "tool_call_id", "data")):
        message = next(iter(chat_message(value)), {})
        if message.get("role") == "tool" and message is not value:
            failed = message.get("is_error")
            call_id, name = text_field(message, "tool_call_id"), text_field(message, "name")
            return Result(call_id, name, message.get("content"), failed if isinstance(failed, bool) else None)
    return value


def _text(value: str) -> Any:
    """Text that was recorded as JSON, with its quotes."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        found = read_arguments(value)[0]
        return found if isinstance(found, str) else value
    return value
