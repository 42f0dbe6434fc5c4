"""Messages as frameworks store them, with a list of parts in words of their own. Nothing here can fail.

LlamaIndex has `blocks`, Semantic Kernel has `items`, and chats of Vercel's AI SDK have `parts`: one message of such a
chat holds all steps of an answer, each with its calls, and each call with its result.
"""

from __future__ import annotations

from typing import Any

_STEP = "step-start"
_DYNAMIC = "dynamic-tool"
_TOOL = "tool-"
_NO_CONTENT = ("source-url", "source-document", "data-")
"""what the interface shows beside an answer"""


def framework_messages(value: dict[str, Any], role: str) -> list[dict[str, Any]] | None:
    """A message in chat messages; None if it is of no framework that is known here."""
    parts = value.get("parts")
    if isinstance(parts, list) and any(map(_is_ui_part, parts)):
        return _ui_messages(value, parts, role)
    if "content" in value:
        return None
    if isinstance(blocks := value.get("blocks"), list):
        return [_with_blocks(value, [_llama_block(block) for block in blocks], role, "additional_kwargs")]
    if isinstance(items := value.get("items"), list) and any(_word(item, "content_type") for item in items):
        return [_with_blocks(value, [_kernel_block(item) for item in items], role, "metadata")]
    return None


def is_framework_message(value: dict[str, Any]) -> bool:
    """Whether the parts of a message say that it is one of these, or one of text alone."""
    if "content" in value:
        parts = value.get("parts")
        return isinstance(parts, list) and any(map(_is_ui_part, parts))
    for key, word in (("blocks", "block_type"), ("items", "content_type"), ("parts", "type")):
        if isinstance(parts := value.get(key), list) and parts:
            return all(isinstance(_word(part, word), str) for part in parts)
    return False


def _word(part: Any, key: str) -> Any:
    return part.get(key) if isinstance(part, dict) else None


def _with_blocks(value: dict[str, Any], blocks: list[Any], role: str, extra: str) -> dict[str, Any]:
    message = {key: one for key, one in value.items() if key not in ("blocks", "items")}
    message |= {"role": role, "content": blocks}
    more = value.get(extra)
    if role == "tool" and isinstance(more, dict):
        message |= {key: more[key] for key in ("tool_call_id", "is_error") if key in more}
        if len(blocks) == 1 and _word(blocks[0], "type") == "text":
            message["content"] = blocks[0].get("text")
    return message


def _llama_block(block: Any) -> Any:
    kind = _word(block, "block_type")
    if not isinstance(kind, str):
        return block
    if kind == "tool_call":
        call_id, name = block.get("tool_call_id"), block.get("tool_name")
        return {"type": "tool_use", "id": call_id, "name": name, "input": block.get("tool_kwargs")}
    return {**{key: value for key, value in block.items() if key != "block_type"}, "type": kind}


def _kernel_block(item: Any) -> Any:
    kind = _word(item, "content_type")
    return {**item, "type": kind} if isinstance(kind, str) else item


# Vercel's AI SDK


def _is_ui_part(part: Any) -> bool:
    kind = _word(part, "type")
    return isinstance(kind, str) and (
        kind in (_STEP, _DYNAMIC)
        or (kind.startswith(_TOOL) and (isinstance(part.get("toolCallId"), str) or "toolInvocation" in part))
    )


def _ui_messages(value: dict[str, Any], parts: list[Any], role: str) -> list[dict[str, Any]]:
    outer: dict[str, Any] = {key: value[key] for key in ("createdAt", "metadata") if key in value}
    messages: list[dict[str, Any]] = []
    blocks: list[Any] = []
    results: list[dict[str, Any]] = []

    def end_step() -> None:
        if blocks:
            messages.append({"role": role, "content": [*blocks], **outer})
        messages.extend(results)
        blocks.clear()
        results.clear()

    for part in parts:
        kind = _word(part, "type")
        if kind == _STEP or (results and kind in ("text", "reasoning")):
            end_step()  # what follows a result is another answer
        if _is_ui_part(part):
            _add_call(part, blocks, results)
        elif kind == "reasoning":
            blocks.append({"type": "thinking", "text": part.get("text")})
        elif not isinstance(kind, str) or not kind.startswith(_NO_CONTENT):
            blocks.append(part)
    end_step()
    return messages


def _add_call(part: dict[str, Any], blocks: list[Any], results: list[dict[str, Any]]) -> None:
    inner = part.get("toolInvocation")
    call = inner if isinstance(inner, dict) else part
    name = call.get("toolName", part["type"].removeprefix(_TOOL))
    if part["type"] == _STEP:
        return
    call_id, given = call.get("toolCallId"), call.get("input", call.get("args", call.get("rawInput")))
    blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
    state = call.get("state")
    if state in ("output-available", "result", "output-error", "output-denied"):
        failed = state in ("output-error", "output-denied")
        content = call.get("errorText", "denied") if failed else call.get("output", call.get("result"))
        message = {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}
        results.append({**message, "is_error": True} if failed else message)
