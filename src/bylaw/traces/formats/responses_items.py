"""One item of OpenAI's Responses API: a part of the model's output or of its input.

New types of items appear often. One that is not known here may be a call, so it counts as a part of the answer that is
not read.
"""

from __future__ import annotations

from typing import Any

from bylaw.traces.assembly.content import CALL_BLOCKS, AssistantContent, Result, foreign_call, recorded_id
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
    "program": ("server_tool_use", "programmatic_tool_calling", "code"),
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
_SEARCHED = "tool_search_output"
RESULTS = frozenset((_SEARCHED, *(f"{kind}_{end}" for kind in _CALLS for end in ("output", "result"))))
"""the Agents SDK of JavaScript calls them `…_call_result`, and has `callId` for `call_id`"""
_RESULT_KEYS = ("output", "result", "tools")
MARKS = frozenset(
    ("mcp_approval_request", "mcp_approval_response", "mcp_list_tools", "compaction", "compaction_summary",
     "compaction_trigger", "context_compaction", "item_reference", "additional_tools", "configuration_update",
     "ghost_snapshot")
)  # fmt: skip
"""items that are no part of the conversation; some are only in Codex's rollouts"""
ITEMS = OUTPUTS | RESULTS
"""items, apart from messages, that stand among the input"""
_KNOWN = ITEMS | MARKS
_INPUT_ROLES = ("user", "system", "developer", "tool")


def kind_of(item: Any) -> str:
    if not isinstance(item, dict):
        raise MalformedRecord(f"an item is an object, not {type_name(item)}")
    kind = item.get("type")
    if kind is None and isinstance(item.get("role"), str):
        return "message"  # the API accepts this short form
    if not isinstance(kind, str):
        raise MalformedRecord("an item has no `type`")
    return kind


def is_item(value: Any) -> bool:
    """Whether this is surely an item: its type or the type of a text says so."""
    if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str):
        return False
    if kind == "message":
        content = value.get("content")
        return isinstance(content, list) and any(
            isinstance(part, dict) and part.get("type") == "output_text" for part in content
        )
    return kind in _KNOWN


def is_output(item: dict[str, Any], kind: str) -> bool:
    """Whether the model gave this item. One of an unknown type may be a call, so it counts as the model's."""
    if kind == "message":
        return item.get("role") not in _INPUT_ROLES
    return kind in OUTPUTS or kind not in _KNOWN


def is_part(item: dict[str, Any], kind: str) -> bool:
    """Whether an item in the output of a response is a part of the answer, as results of OpenAI's own tools are."""
    return kind in RESULTS or is_output(item, kind)


def add_output(item: dict[str, Any], kind: str, answer: AssistantContent) -> None:
    """Add one item to the answer. One of an unknown type is stored as it is, and reported as unread."""
    blocks = answer.blocks = [] if answer.blocks is None else answer.blocks
    if kind == "message":
        blocks.extend(_texts(item.get("content")))
    elif kind == "reasoning":
        parts = [*list_field(item, "summary"), *list_field(item, "content")]
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        blocks.append({"type": "thinking", "text": "\n".join(texts) if texts else None})
    elif kind in RESULTS:
        blocks.append(_result_block(output_of(item)))
    elif kind not in _CALLS:
        call = item if kind in CALL_BLOCKS else foreign_call(item)
        if call is None:
            blocks.append(item)
        else:
            answer.add_call(call.get("id"), _name_of(call), call.get("input"), kind if call is item else "tool_use")
    else:
        block, name, key = _CALLS[kind]
        name = name or _name_of(item)
        server = text_field(item, "server_label", "namespace")
        more = {} if server is None else {"server_name": server}
        more |= {"caller": item["caller"]} if item.get("caller") is not None else {}
        answer.add_call(call_id_of(item), name, item.get(key, item.get("actions")), block, **more)
        if (result := _inline_result(item, kind)) is not None:
            blocks.append(_result_block(result))


def add_item(item: Any, answer: AssistantContent) -> None:
    """Add one item of a response to the answer, if it is a part of it. What cannot be read is reported as unread."""
    try:
        if is_part(item, kind := kind_of(item)):
            add_output(item, kind, answer)
    except MalformedRecord:
        answer.blocks = [] if answer.blocks is None else answer.blocks
        answer.blocks.append(item)


def _name_of(call: dict[str, Any]) -> str:
    name = text_field(call, "name")
    if name is None:
        raise MalformedRecord(f"a `{call['type']}` has no `name`")
    return name


def _result_block(result: Result) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": result.call_id, "content": result.content}
    more = {"name": result.name, "is_error": result.is_error}
    return block | {key: value for key, value in more.items() if value is not None}


def _inline_result(item: dict[str, Any], kind: str) -> Result | None:
    """The result of a call that OpenAI ran itself."""
    key = _INLINE_RESULTS.get(kind)
    if key is None or (item.get(key) is None and item.get("error") is None):
        return None
    failed = item.get("error") is not None
    content = item["error"] if failed else item[key]
    return Result(call_id_of(item), None, content, failed if kind == "mcp_call" else None)


def output_of(item: dict[str, Any]) -> Result:
    """The result of a call that the client ran."""
    failed = item.get("status") == "failed"
    name = "tool_search" if item.get("type") == _SEARCHED else None
    return Result(call_id_of(item), name, _output(item), True if failed else None)


def _output(item: dict[str, Any]) -> Any:
    """What a call returned, without the object around a text of the JavaScript SDK."""
    output = next((item[key] for key in _RESULT_KEYS if key in item), None)
    if isinstance(output, dict) and output.keys() == {"type", "text"} and output["type"] == "text":
        return output["text"]
    return output


def call_id_of(item: dict[str, Any]) -> str | None:
    if item.get("type") == _SEARCHED:
        return recorded_id(item, ("call_id",))  # none if OpenAI searched; its `id` is not that of the call
    return recorded_id(item, ("call_id", "callId", "id"))


def messages_of(items: Any) -> list[dict[str, Any]] | None:
    """Input as chat messages. Never fails: an unknown item stays as it is."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list):
        return None
    return [message_of(item) for item in items if isinstance(item, dict)]


def conversation_of(request: dict[str, Any]) -> list[Any]:
    """The instructions and the input of a request as chat messages."""
    system = request.get("instructions")
    first = [{"role": "system", "content": system}] if isinstance(system, str) else []
    return [*first, *(messages_of(request.get("input")) or ())]


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
