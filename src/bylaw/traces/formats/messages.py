"""Messages in any shape that a recorder writes, converted to chat messages. Nothing here can fail.

Known shapes: OpenAI's chat and Responses, Anthropic's, Gemini's and Bedrock's own; OpenTelemetry's `parts`;
LangChain's, serialised or not; those wrapped in a `message`; those of some frameworks. Results in `parts` become
messages of their own, with the id of their call; parts of `content` stay, because `read_assistant` and `results_in`
know the words of all these APIs.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from bylaw.traces.assembly.content import foreign_result, read_arguments
from bylaw.traces.formats.chat_message import ROLES, read_assistant
from bylaw.traces.formats.record import MalformedRecord
from bylaw.traces.formats.responses_items import ITEMS, message_of
from bylaw.traces.records.jsontext import decode_whole

_ROLES = {"ai": "assistant", "model": "assistant", "human": "user", "chat": "user", "function": "tool"}
_CLASSES = {
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "HumanMessage": "user",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
}
_LANGCHAIN_TYPES = ("ai", "human", "system", "tool", "function", "chat", *_CLASSES)
_WRAPPERS = frozenset(("kwargs", "data"))
"""keys that wrap a message, even if it has a role"""
_STOP_REASONS = ("finish_reason", "stop_reason")
_USES = ("tool_use", "function_call", "tool_call")
_CALL_NAMES = ("name", "toolName", "tool_name")
_CALL_ARGUMENTS = ("args", "arguments", "input", "tool_kwargs", "parameters")
_CALL_IDS = ("id", "toolCallId", "tool_call_id", "call_id")
_ANSWER_KEYS = ("tool_calls", "function_call", "refusal", "reasoning_content")
"""what an answer may hold beside its content"""
_LISTS = ("messages", "contents", "input", "chat_history")
"""keys of an object that holds messages"""


def parse_if_json(value: Any) -> Any:
    """JSON that was recorded as text, parsed; any other text as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        found = read_arguments(value)[0]
        return value if found is None else found
    return value


def chat_messages(value: Any, role: str = "user") -> list[dict[str, Any]] | None:
    """A list of messages, an object that holds one, or a single message. `role` is the role of bare text."""
    return [message for one in list_messages(value) or () for message in chat_message(one, role)] or None


def list_messages(value: Any) -> list[Any] | None:
    """The recorded messages, not converted."""
    value = parse_if_json(decode_whole(value))
    if isinstance(value, dict) and "role" not in value:
        messages = next((value[key] for key in _LISTS if isinstance(value.get(key), list) and value[key]), None)
        value = value if messages is None else messages
    if value is None:
        return None
    if not isinstance(value, list):
        return [value]
    only = decode_whole(value[0]) if len(value) == 1 else None
    return only if isinstance(only, list) else value  # LangChain's lists of lists: one list per prompt


def chat_message(value: Any, role: str = "user") -> list[dict[str, Any]]:
    """One message; several if it carries the results of several calls."""
    if type(value) is Raw:
        value = decode_whole(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, dict):
        return []
    if "role" not in value or not value.keys().isdisjoint(_WRAPPERS):
        if isinstance(kind := value.get("type"), str) and kind in ITEMS:
            return [message_of(value)]
        value = _unwrap(value)
    known = value.get("role")
    known = _ROLES.get(known, known) if isinstance(known, str) else role
    if (found := framework_messages(value, known)) is not None:
        if len(found) != 1:
            return found
        value = found[0]
    if isinstance(value.get("parts"), list):
        return _messages_of_parts(value, known)
    message = {**value, "role": known}
    if known not in ROLES:  # some recorders write the name of the tool
        message |= {"role": "tool", "name": value.get("name") or known}
    calls = value.get("tool_calls") or value.get("toolCalls")
    if not calls and isinstance(extra := value.get("additional_kwargs"), dict):
        calls = extra.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [_call(call) for call in calls]
    content = value.get("content")
    if known in ("assistant", "tool"):
        if isinstance(content, str) and (written := _written_calls(content)) is not None:
            return [{**message, "role": "assistant", "content": None, "tool_calls": written}]
        function = content.get("function") if isinstance(content, dict) and content.get("type") == "function" else None
        if isinstance(function, dict) and "arguments" not in function:
            return []  # the definition of a tool, which some recorders list among the messages
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        return _messages_of_parts({**value, **content}, known)
    return [message]


def _written_calls(text: str) -> list[Any] | None:
    """Calls that a recorder wrote as the text of a message, as koog does."""
    if not text.startswith("[{") or '"function"' not in text:
        return None
    found = parse_if_json(text)
    return found if isinstance(found, list) and all(map(_is_call, found)) else None


def _is_call(value: Any) -> bool:
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    return isinstance(function, dict) and "name" in function and "arguments" in function


def _unwrap(value: dict[str, Any], level: int = 0) -> dict[str, Any]:
    """The message itself, without LangChain's or OpenInference's wrapper."""
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        path = value.get("id")
        name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
        return _langchain({"type": name, **value["kwargs"]}, name)
    if isinstance(value.get("data"), dict) and isinstance(value.get("type"), str):
        return _langchain(value["data"], value["type"])
    if isinstance(value.get("message"), dict) and "role" not in value:
        return value["message"] if level else _unwrap(value["message"], level + 1)
    if "role" not in value and value.get("type") in _LANGCHAIN_TYPES:
        return _langchain(value, value["type"])
    return value


def _langchain(fields: dict[str, Any], kind: str) -> dict[str, Any]:
    role = _CLASSES.get(kind) or _ROLES.get(kind, kind)
    message: dict[str, Any] = {"role": role, "content": fields.get("content")}
    calls = fields.get("tool_calls")
    extra = fields.get("additional_kwargs")
    if not calls and isinstance(extra, dict):
        calls = extra.get("tool_calls")
    calls = [*calls, *_invalid_calls(fields)] if isinstance(calls, list) else _invalid_calls(fields)
    if calls:
        message["tool_calls"] = calls
        if isinstance(message["content"], list):  # the same calls again, as Anthropic's blocks
            message["content"] = [
                block for block in message["content"] if not (isinstance(block, dict) and block.get("type") in _USES)
            ]
    for key in ("tool_call_id", "name", "usage_metadata", "response_metadata"):
        if fields.get(key) is not None:
            message[key] = fields[key]
    if fields.get("status") == "error":
        message["is_error"] = True
    return message


def _invalid_calls(fields: dict[str, Any]) -> list[Any]:
    """Calls that the model issued with arguments that are no JSON: LangChain lists them apart."""
    listed = fields.get("invalid_tool_calls")
    found = listed if isinstance(listed, list) else []
    return [call for call in found if isinstance(call, dict) and isinstance(call.get("name"), str)]


def _call(call: Any) -> Any:
    """A call in OpenAI's shape, from any flatter shape."""
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("tool_call"), dict):
        call = call["tool_call"]
    function = call.get("function")
    if isinstance(function, dict):
        return call
    names = (function, *(call.get(key) for key in _CALL_NAMES))
    name = next((one for one in names if isinstance(one, str)), None)
    arguments = next((call[key] for key in _CALL_ARGUMENTS if key in call), None)
    call_id = next((call[key] for key in _CALL_IDS if call.get(key)), None)
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def bare_calls(value: Any) -> list[Any] | None:
    """Calls that a recorder wrote without a message around them, in OpenAI's shape; None if these are none."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return None
    is_calls = all(
        "role" not in one and (_is_call(one) or not one.keys().isdisjoint(("toolCallId", "tool_call_id")))
        and (isinstance(one.get("function"), dict) or any(isinstance(one.get(key), str) for key in _CALL_NAMES))
        and not one.keys().isdisjoint((*_CALL_ARGUMENTS, "function"))
        for one in value
    )  # fmt: skip
    return [_call(one) for one in value] if is_calls else None


# OpenTelemetry's parts


def _messages_of_parts(value: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """A message for each result, and one for all other parts; results after the first part of an answer stay in it."""
    messages: list[dict[str, Any]] = []
    blocks: list[Any] = []
    for part in value["parts"]:
        result = foreign_result(part) if isinstance(part, dict) else None
        if result is None or (blocks and role == "assistant"):
            blocks.append(_block(part))
            continue
        message = {"role": "tool", "tool_call_id": result.call_id, "content": _unwrap_framework_result(result.content)}
        message |= {} if result.name is None else {"name": result.name}
        messages.append(message | ({} if result.is_error is None else {"is_error": result.is_error}))
    if blocks or not value["parts"]:
        reasons = {key: value[key] for key in _STOP_REASONS if isinstance(value.get(key), str)}
        messages.append({"role": role, "content": blocks, **reasons})
    return messages


def _unwrap_framework_result(content: Any) -> Any:
    """Microsoft's agent framework wraps a result once more, as text."""
    found = parse_if_json(content)
    is_wrapped = isinstance(found, dict) and found.get("type") == "function_result" and "result" in found
    return found["result"] if is_wrapped else content


def _block(part: Any) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind == "text" or (kind is None and isinstance(part.get("text"), str)):
        text = part.get("content", part.get("text"))
        return {"type": "thinking" if part.get("thought") is True else "text", "text": text}
    if kind in ("reasoning", "thinking"):
        return {"type": "thinking", "text": part.get("content", part.get("text"))}
    if kind == "tool_call":
        return {"type": "tool_use", "id": part.get("id"), "name": part.get("name"), "input": part.get("arguments")}
    if kind == "server_tool_call":
        arguments = part.get("arguments", part.get("server_tool_call"))
        return {"type": "server_tool_use", "id": part.get("id"), "name": part.get("name"), "input": arguments}
    return part


def first_answer(messages: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """The answer among output messages. Of several choices the first counts; calls alone may be spread over several.

    Results beside the first choice are those of calls that the provider ran: they become a part of it.
    """
    messages = messages or []
    places = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    answers = [messages[at] for at in places]
    if len(answers) > 1 and all(
        not one.get("content") and isinstance(one.get("tool_calls"), list) and "index" not in one for one in answers
    ):
        return {**answers[0], "tool_calls": [call for answer in answers for call in answer["tool_calls"]]}
    if not answers:
        return None
    before, after = messages[: places[0]], messages[places[0] + 1 : [*places, None][1]]
    return _attach_results(answers[0], list(map(_result_block, before)), list(map(_result_block, after)))


def _result_block(message: dict[str, Any]) -> dict[str, Any] | None:
    if message.get("role") != "tool":
        return None
    block = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": message.get("content")}
    return block | {key: message[key] for key in ("name", "is_error") if message.get(key) is not None}


def _attach_results(answer: dict[str, Any], before: list[Any], after: list[Any]) -> dict[str, Any]:
    if not any(before) and not any(after):
        return answer
    try:
        blocks = read_assistant(answer).blocks
    except MalformedRecord:
        return answer  # its reader reports that
    rest = {key: value for key, value in answer.items() if key not in _ANSWER_KEYS}
    return {**rest, "content": [block for block in (*before, *(blocks or ()), *after) if block is not None]}


# Messages as frameworks store them, with a list of parts in words of their own. LlamaIndex has `blocks`, Semantic
# Kernel has `items`, and chats of Vercel's AI SDK have `parts`: one message of such a chat holds all steps of an
# answer, each with its calls, and each call with its result.


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
        return [_attach_blocks(value, [_llama_block(block) for block in blocks], role, "additional_kwargs")]
    if isinstance(items := value.get("items"), list) and any(_get_text(item, "content_type") for item in items):
        return [_attach_blocks(value, [_kernel_block(item) for item in items], role, "metadata")]
    return None


def is_framework_message(value: dict[str, Any]) -> bool:
    """Whether the parts of a message say that it is one of these, or one of text alone."""
    if "content" in value:
        parts = value.get("parts")
        return isinstance(parts, list) and any(map(_is_ui_part, parts))
    for key, word in (("blocks", "block_type"), ("items", "content_type"), ("parts", "type")):
        if isinstance(parts := value.get(key), list) and parts:
            return all(isinstance(_get_text(part, word), str) for part in parts)
    return False


def _get_text(part: Any, key: str) -> Any:
    return part.get(key) if isinstance(part, dict) else None


def _attach_blocks(value: dict[str, Any], blocks: list[Any], role: str, extra: str) -> dict[str, Any]:
    message = {key: one for key, one in value.items() if key not in ("blocks", "items")}
    message |= {"role": role, "content": blocks}
    more = value.get(extra)
    if role == "tool" and isinstance(more, dict):
        message |= {key: more[key] for key in ("tool_call_id", "is_error") if key in more}
        if len(blocks) == 1 and _get_text(blocks[0], "type") == "text":
            message["content"] = blocks[0].get("text")
    return message


def _llama_block(block: Any) -> Any:
    kind = _get_text(block, "block_type")
    if not isinstance(kind, str):
        return block
    if kind == "tool_call":
        call_id, name = block.get("tool_call_id"), block.get("tool_name")
        return {"type": "tool_use", "id": call_id, "name": name, "input": block.get("tool_kwargs")}
    return {**{key: value for key, value in block.items() if key != "block_type"}, "type": kind}


def _kernel_block(item: Any) -> Any:
    kind = _get_text(item, "content_type")
    return {**item, "type": kind} if isinstance(kind, str) else item


# Vercel's AI SDK


def _is_ui_part(part: Any) -> bool:
    kind = _get_text(part, "type")
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
        kind = _get_text(part, "type")
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
