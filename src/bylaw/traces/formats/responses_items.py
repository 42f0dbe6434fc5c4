"""One item of OpenAI's Responses API: a part of the model's output or of its input."""

from __future__ import annotations

from typing import Any

from bylaw.traces.assembly.content import AssistantContent, Result, recorded_id
from bylaw.traces.formats.record import MalformedRecord, list_field, text_field, type_name

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
    "hosted_tool_call": ("server_tool_use", None, "arguments"),
}
"""kinds of calls: the block they become, the name of the tool if it is fixed, and the key of the arguments"""
_INLINE_RESULTS = {
    "mcp_call": "output",
    "file_search_call": "results",
    "code_interpreter_call": "outputs",
    "hosted_tool_call": "output",
}
"""calls that OpenAI runs itself carry their result"""
OUTPUTS = frozenset((*_CALLS, "reasoning"))
"""items that the model gave, apart from messages"""
RESULTS = frozenset(f"{kind}_{end}" for kind in _CALLS for end in ("output", "result"))
"""the Agents SDK of JavaScript calls them `…_call_result`, and has `callId` for `call_id`"""
MARKS = frozenset(("mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "compaction", "item_reference"))
ITEMS = OUTPUTS | RESULTS
"""items, apart from messages, that stand among the input"""
KINDS = tuple(sorted({*OUTPUTS, *RESULTS, *MARKS, "message"}))


def kind_of(item: Any) -> str:
    if not isinstance(item, dict):
        raise MalformedRecord(f"an item is an object, not {type_name(item)}")
    kind = item.get("type")
    if kind is None and isinstance(item.get("role"), str):
        return "message"  # the API accepts this short form
    if not isinstance(kind, str):
        raise MalformedRecord("an item has no `type`")
    return kind


def is_output(item: dict[str, Any], kind: str) -> bool:
    return kind in OUTPUTS or (kind == "message" and item.get("role") == "assistant")


def add_output(item: dict[str, Any], kind: str, answer: AssistantContent) -> None:
    """Add one item to the answer."""
    blocks = answer.blocks = [] if answer.blocks is None else answer.blocks
    if kind == "message":
        blocks.extend(_texts(item.get("content")))
    elif kind == "reasoning":
        parts = [*list_field(item, "summary"), *list_field(item, "content")]
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        blocks.append({"type": "thinking", "text": "\n".join(texts) if texts else None})
    else:
        block, name, key = _CALLS[kind]
        name = name or text_field(item, "name")
        if name is None:
            raise MalformedRecord(f"a `{kind}` has no `name`")
        server = text_field(item, "server_label", "namespace")
        more = {} if server is None else {"server_name": server}
        more |= {"caller": item["caller"]} if item.get("caller") is not None else {}
        answer.add_call(call_id_of(item), name, item.get(key, item.get("actions")), block, **more)
        if (result := _inline_result(item, kind)) is not None:
            blocks.append(result)


def _inline_result(item: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The result of a call that OpenAI ran itself, as a block."""
    key = _INLINE_RESULTS.get(kind)
    if key is None or (item.get(key) is None and item.get("error") is None):
        return None
    failed = item.get("error") is not None
    content = item["error"] if failed else item[key]
    result = {"type": "tool_result", "tool_use_id": call_id_of(item), "content": content}
    return {**result, "is_error": failed} if kind == "mcp_call" else result


def output_of(item: dict[str, Any]) -> Result:
    """The result of a call that the client ran."""
    failed = item.get("status") == "failed"
    return Result(call_id_of(item), None, _output(item), True if failed else None)


def _output(item: dict[str, Any]) -> Any:
    """What a call returned, without the object around a text of the JavaScript SDK."""
    output = item.get("output")
    if isinstance(output, dict) and output.keys() == {"type", "text"} and output["type"] == "text":
        return output["text"]
    return output


def call_id_of(item: dict[str, Any]) -> str | None:
    return recorded_id(item, ("call_id", "callId", "id"))


def messages_of(items: Any) -> list[dict[str, Any]] | None:
    """Input as chat messages. Never fails: an unknown item stays as it is."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list):
        return None
    return [message_of(item) for item in items if isinstance(item, dict)]


def message_of(item: dict[str, Any]) -> dict[str, Any]:
    kind = text_field(item, "type") or "message"
    if kind == "message":
        content = item.get("content")
        return {"role": item.get("role"), "content": _texts(content) if isinstance(content, list) else content}
    if kind in RESULTS:
        return {"role": "tool", "tool_call_id": call_id_of(item), "content": _output(item)}
    if kind in OUTPUTS:
        answer = AssistantContent()
        try:
            add_output(item, kind, answer)
        except MalformedRecord:
            answer.blocks = [item]
        return {"role": "assistant", "content": answer.blocks}
    return {"role": "system" if kind in MARKS else None, "content": [item]}


def _texts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        {"type": "text", "text": part.get("text")}
        if isinstance(part, dict) and part.get("type") in ("input_text", "output_text", "summary_text")
        else part
        for part in (content if isinstance(content, list) else ())
    ]
