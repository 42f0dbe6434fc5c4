"""One item of OpenAI's Responses API: a part of what the model said, or of what it was told."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.formats.chat_message import Misshapen, Result, text_field
from bylaw.traces.formats.record import a_type

_CALLS = {
    "function_call": ("tool_use", None, "arguments"),
    "custom_tool_call": ("tool_use", None, "input"),
    "computer_call": ("tool_use", "computer", "action"),
    "local_shell_call": ("tool_use", "local_shell", "action"),
    "shell_call": ("tool_use", "shell", "action"),
    "apply_patch_call": ("tool_use", "apply_patch", "operation"),
    "mcp_call": ("mcp_tool_use", None, "arguments"),
    "web_search_call": ("server_tool_use", "web_search", "action"),
    "file_search_call": ("server_tool_use", "file_search", "queries"),
    "code_interpreter_call": ("server_tool_use", "code_interpreter", "code"),
    "image_generation_call": ("server_tool_use", "image_generation", "action"),
    "tool_search_call": ("server_tool_use", "tool_search", "arguments"),
}
"""kinds of calls: the block they become, the tool where it is always the same, and where the arguments stand"""
_INLINE = {"mcp_call": "output", "file_search_call": "results", "code_interpreter_call": "outputs"}
"""calls that OpenAI runs itself carry what they returned"""
_OUTPUT = "_output"
SAID = frozenset((*_CALLS, "reasoning"))
HEARD = frozenset(f"{kind}{_OUTPUT}" for kind in _CALLS)
MARKS = frozenset(("mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "compaction", "item_reference"))
KINDS = tuple(sorted({*SAID, *HEARD, *MARKS, "message"}))


def kind_of(item: Any) -> str:
    if not isinstance(item, dict):
        raise Misshapen(f"an item is an object, not {a_type(item)}")
    kind = item.get("type")
    if kind is None and isinstance(item.get("role"), str):
        return "message"  # what the API takes in the short form
    if not isinstance(kind, str):
        raise Misshapen("an item has no `type`")
    return kind


def is_said(item: dict[str, Any], kind: str) -> bool:
    return kind in SAID or (kind == "message" and item.get("role") == "assistant")


class Given(Struct, eq=False):
    """What a model gave: content blocks, those of them that are calls, and the arguments of each."""

    blocks: list[Any] = []
    uses: list[dict[str, Any]] = []
    arguments: list[tuple[Any, str | None]] = []


def add_said(item: dict[str, Any], kind: str, given: Given) -> None:
    """One more item."""
    blocks = given.blocks
    if kind == "message":
        blocks.extend(_texts(item.get("content")))
    elif kind == "reasoning":
        parts = [*_list(item.get("summary")), *_list(item.get("content"))]
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        blocks.append({"type": "thinking", "text": "\n".join(texts) if texts else None})
    else:
        block, name, key = _CALLS[kind]
        name = name or text_field(item, "name")
        if name is None:
            raise Misshapen(f"a `{kind}` has no `name`")
        arguments, raw = read_arguments(item.get(key, item.get("actions")))
        use: dict[str, Any] = {"type": block, "id": call_id_of(item), "name": name}
        use["input"] = raw if arguments is None else arguments
        server = text_field(item, "server_label", "namespace")
        use |= {} if server is None else {"server_name": server}
        use |= {"caller": item["caller"]} if item.get("caller") is not None else {}
        blocks.append(use)
        given.uses.append(use)
        given.arguments.append((arguments, raw))


def inline_result(item: dict[str, Any], kind: str) -> Result | None:
    """What a call returned that OpenAI ran itself."""
    key = _INLINE.get(kind)
    if key is None or (item.get(key) is None and item.get("error") is None):
        return None
    failed = item.get("error") is not None
    content = item["error"] if failed else item[key]
    return Result(call_id_of(item), None, content, failed if kind == "mcp_call" else None)


def output_of(item: dict[str, Any]) -> Result:
    """What a call returned that the client ran."""
    failed = item.get("status") == "failed"
    return Result(call_id_of(item), None, item.get("output"), True if failed else None)


def call_id_of(item: dict[str, Any]) -> str | None:
    return text_field(item, "call_id", "id")


def messages_of(items: Any) -> list[dict[str, Any]] | None:
    """Input as chat messages. Nothing in it can be wrong: what is unknown stays as it is."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list):
        return None
    return [message_of(item) for item in items if isinstance(item, dict)]


def message_of(item: dict[str, Any]) -> dict[str, Any]:
    kind = text_field(item, "type") or "message"
    if kind == "message":
        return {"role": item.get("role"), "content": _content(item.get("content"))}
    if kind in HEARD:
        return {"role": "tool", "tool_call_id": call_id_of(item), "content": item.get("output")}
    if kind in SAID:
        given = Given()
        try:
            add_said(item, kind, given)
        except Misshapen:
            given.blocks.append(item)
        return {"role": "assistant", "content": given.blocks}
    return {"role": "system" if kind in MARKS else None, "content": [item]}


def _content(content: Any) -> Any:
    return _texts(content) if isinstance(content, list) else content


def _texts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_text(part) for part in _list(content)]


def _text(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("input_text", "output_text", "summary_text"):
        return {"type": "text", "text": part.get("text")}
    return part


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
