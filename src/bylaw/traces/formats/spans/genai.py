"""OpenTelemetry's vocabulary for models and tools: `gen_ai.*`, current and former names."""

from __future__ import annotations

import re
from typing import Any

from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.bodies import answer_in_list, answer_of, has_calls
from bylaw.traces.formats.messages import chat_messages, first_answer, parse_if_json
from bylaw.traces.formats.spans.attributes import first, text, unflatten
from bylaw.traces.formats.spans.recorders import (
    ARGUMENTS,
    CALL_IDS,
    EXECUTION,
    HAS_CALL,
    MERGED,
    MODEL_INPUTS,
    MODEL_KINDS,
    RESULTS,
    TOOL_KINDS,
    TOOL_NAMES,
    first_value,
    held_answer,
    held_model,
    held_usage,
    kind_of,
    tool_name,
)
from bylaw.traces.formats.spans.span import (
    AgentRun,
    ModelCall,
    RecordedInput,
    Span,
    SpanAnnotation,
    ToolRun,
    UnreadTool,
)

SESSION = "gen_ai.conversation.id"
DETAILS = "gen_ai.client.inference.operation.details"
"""the event that carries the content of a call, separate from its span"""
_MODEL = frozenset(
    ("chat", "generate_content", "text_completion", "fetch_response", "completion", "response", "llm_call")
)
_TOOL = frozenset(("execute_tool", "tool", "tool_call", "call_tool", "tool.execute"))
_AGENT = frozenset(("invoke_agent", "invoke_workflow", "create_agent"))
_KNOWN = _MODEL | _AGENT | {"execute_tool"}
"""operations that decide what a span is; the span of a tool is then named after the tool"""
_MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE = "gen_ai.choice"
_CONTENT_EVENTS = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
_CONVERSE = frozenset(("text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "cachePoint"))
"""the only key of each block in the messages that Strands writes as text"""
_CACHE_READ = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.details.cached_tokens",
)
_CACHE_WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
)
_REASONING = (
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
)
_CALL_KEY = re.compile(r"(?:completion|output|response|choice|generation).*(?:tool|function)_?calls?", re.IGNORECASE)
_EMPTY = ("[]", "{}", "null", "None")
_FAILED = frozenset(("error", "failed", "failure", "false"))
_SUCCEEDED = frozenset(("success", "ok", "true"))
_MOST_CHARACTERS = 200
"""of a key that are looked at"""
EVENT_NAMES = frozenset((DETAILS, _CHOICE, *_MESSAGE_EVENTS, *_CONTENT_EVENTS))
_PARAMS = {
    f"gen_ai.request.{name}": name
    for name in (
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "stop_sequences",
        "seed",
        "frequency_penalty",
        "presence_penalty",
    )
}


def interpret(span: Span) -> bool:
    """Set what a span is about; False if it uses another vocabulary."""
    attributes = _merge_events(span)
    operation = text(attributes, "gen_ai.operation.name")
    tool = text(attributes, *TOOL_NAMES)
    method = text(attributes, "mcp.method.name")
    is_known = operation is not None and operation in _KNOWN
    kind, is_named = (None, is_known) if is_known else kind_of(span, attributes)
    span.session = span.session or text(attributes, SESSION)
    span.agent = text(attributes, "gen_ai.agent.name", "gen_ai.agent.id")
    if tool == MERGED:
        return True
    if (
        operation in _TOOL
        or method == "tools/call"
        or (operation is None and (tool or kind == EXECUTION))
        or kind in TOOL_KINDS
    ):
        span.about = _tool(span, attributes, kind, is_named=is_named or method == "tools/call")
    elif operation in _AGENT:
        whole = _model(span, attributes)
        named = span.agent or span.name.removeprefix("invoke_agent ").removeprefix("invoke_workflow ") or None
        span.about = AgentRun(name=named, whole=whole if whole.answer is not None else None)
    elif operation in _MODEL or (operation is None and (kind in MODEL_KINDS or _calls_model(span, attributes))):
        span.about = _model(span, attributes)
    elif operation in ("apply_guardrail", "run_guardrail"):
        span.about = SpanAnnotation(label="guardrail", data=attributes)
    elif operation is None and method is None:
        return False
    return True


def _merge_events(span: Span) -> dict[str, Any]:
    """The attributes of a span and of its events that carry content."""
    found = span.attributes
    for name, attributes in span.events:
        if name == DETAILS:
            found = {**attributes, **found}
        elif name in _CONTENT_EVENTS:
            key = _CONTENT_EVENTS[name]
            found = {key: attributes.get(key), **found}
    return found


def _calls_model(span: Span, attributes: dict[str, Any]) -> bool:
    """Whether a span without an operation calls a model: older recorders name only the provider."""
    if any(name in EVENT_NAMES for name, _ in span.events):
        return True
    wanted = ("gen_ai.request.model", "gen_ai.response.model", "gen_ai.input.messages", "gen_ai.output.messages")
    return first(attributes, *wanted, "gen_ai.prompt", "gen_ai.completion") is not None or any(
        key.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for key in attributes
    )


def _model(span: Span, attributes: dict[str, Any]) -> ModelCall:
    messages, answer, event_reason = _content(span, attributes)
    reasons = parse_if_json(attributes.get("gen_ai.response.finish_reasons"))
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    answer_reason = (answer or {}).get("finish_reason") or attributes.get("stop_reason")
    if answer_reason is None and attributes.get(HAS_CALL) is True:
        answer_reason = "tool_use"
    params = {_PARAMS[key]: attributes[key] for key in _PARAMS if attributes.get(key) is not None}
    tools = parse_if_json(first(attributes, "gen_ai.tool.definitions"))
    return ModelCall(
        model=text(attributes, "gen_ai.response.model", "gen_ai.request.model") or held_model(attributes),
        messages=messages,
        params=params or None,
        tools=tools if isinstance(tools, list) else None,
        answer=answer,
        stop_reason=next(
            (found for found in (reason, answer_reason, event_reason) if isinstance(found, str) and found), None
        ),
        usage=_usage(attributes) or held_usage(attributes),
        response_id=text(attributes, "gen_ai.response.id"),
    )


def _content(span: Span, attributes: dict[str, Any]) -> tuple[RecordedInput | None, dict[str, Any] | None, str | None]:
    """Messages, answer and stop reason: on the span, under older names, or in an event for each message."""
    recorded = attributes.get("gen_ai.input.messages")
    outputs = parse_if_json(attributes.get("gen_ai.output.messages"))
    system = parse_if_json(attributes.get("gen_ai.system_instructions"))
    if recorded is None:
        recorded = unflatten(attributes, "gen_ai.prompt")
    if recorded is None:
        recorded = first_value(attributes, MODEL_INPUTS)
    recorded_messages, choice, reason = _message_events(span) if span.events else ([], None, None)
    answer = answer_in_list(outputs) or first_answer(chat_messages(outputs, "assistant"))
    if answer is None or not has_calls(answer):  # LiteLLM writes its text here and its calls there
        answer = _merge_answers(answer, _completion(attributes), choice, held_answer(attributes))
        if (answer is None or not has_calls(answer)) and (unread := _unread_calls(attributes)):
            answer = {"role": "assistant", "content": None, **(answer or {}), "toolCalls": unread}  # reported as unread
    recorded = recorded_messages or None if recorded is None else recorded
    instructions: list[dict[str, Any]] | None = None
    if system is not None:
        instructions = chat_messages({"role": "system", "parts": system if isinstance(system, list) else [system]})
    messages = None if recorded is None and instructions is None else RecordedInput(recorded, system=instructions)
    return messages, answer, reason


def _completion(attributes: dict[str, Any]) -> dict[str, Any] | None:
    """The answer under its older name. LiteLLM has one element for each call, LangSmith the whole body."""
    recorded = unflatten(attributes, "gen_ai.completion")
    listed = [one for one in recorded if isinstance(one, dict)] if isinstance(recorded, list) else []
    calls = [one["function_call"] for one in listed if isinstance(one.get("function_call"), dict)]
    if calls and all(one.keys() == {"function_call"} for one in listed[1:]):
        whole = {"content": None, **listed[0], "role": "assistant", "tool_calls": [{"function": one} for one in calls]}
        recorded = [{key: value for key, value in whole.items() if key != "function_call"}]
    return answer_of(recorded)


def _unread_calls(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes that are named as calls of an answer, of a recorder whose names are not known."""
    return {
        key: value
        for key, value in attributes.items()
        if "call" in key.lower()
        and key != HAS_CALL
        and value
        and value not in _EMPTY
        and _CALL_KEY.search(key[:_MOST_CHARACTERS]) is not None
    }


def _merge_answers(*answers: dict[str, Any] | None) -> dict[str, Any] | None:
    """The first of several records of one answer, with the calls of another one if it has none."""
    found = [answer for answer in answers if answer is not None]
    calling = next((answer for answer in found if has_calls(answer)), None)
    if calling is None or calling is found[0]:
        return found[0] if found else None
    return {**calling, "content": calling.get("content") or found[0].get("content")}


def _message_events(span: Span) -> tuple[list[dict[str, Any]], dict[str, Any] | None, str | None]:
    messages: list[dict[str, Any]] = []
    choice = reason = None
    for name, body in span.events:
        role = _MESSAGE_EVENTS.get(name)
        if role == "tool":
            content = _blocks(parse_if_json(first(body, "content", "gen_ai.event.content")))
            messages.append({"role": "tool", "tool_call_id": text(body, "id"), "content": content})
        elif role is not None:
            messages.extend(chat_messages({"role": role, **_decode_texts(body)}) or ())
        elif name == _CHOICE and choice is None:
            body = _decode_texts(body)
            message = body.get("message")
            if isinstance(message, (str, list)):
                message = {"content": _blocks(message)}
            found = chat_messages(
                {"role": "assistant", **(message if isinstance(message, dict) else body)}, "assistant"
            )
            choice, reason = first_answer(found), text(body, "finish_reason")
    return messages, choice, reason


def _decode_texts(body: dict[str, Any]) -> dict[str, Any]:
    """Events on spans hold only flat values, so lists and objects in them are text."""
    found = {key: parse_if_json(value) if key in ("tool_calls", "message") else value for key, value in body.items()}
    return {**found, "content": _blocks(found["content"])} if "content" in found else found


def _blocks(content: Any) -> Any:
    """Content that is text and holds blocks of Bedrock's Converse; any other content as it is."""
    found = parse_if_json(content)
    is_blocks = isinstance(found, list) and all(isinstance(one, dict) and _CONVERSE.issuperset(one) for one in found)
    return found if is_blocks and found else content


def _usage(attributes: dict[str, Any]) -> Any:
    recorded = {key: value for key, value in attributes.items() if ".usage." in key}
    return usage_from_counts(
        recorded,
        input=first(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output=first(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        read=first(attributes, *_CACHE_READ),
        written=first(attributes, *_CACHE_WRITTEN),
        reasoning=first(attributes, *_REASONING),
    )


def _tool(span: Span, attributes: dict[str, Any], kind: str | None, *, is_named: bool) -> ToolRun | UnreadTool:
    name = "" if kind == EXECUTION else tool_name(span, attributes, is_named=is_named)
    call_id = text(attributes, *CALL_IDS)
    if not name and call_id is None and kind != EXECUTION:
        return UnreadTool(name=span.name, is_named=False)
    given, result = first_value(attributes, ARGUMENTS), first_value(attributes, RESULTS)
    if given is None and "agentops.span.kind" in attributes:
        given = attributes.get("tool.parameters")  # other recorders put a schema there
    for event, body in span.events:  # Strands records them as messages
        if event == "gen_ai.tool.message" and given is None:
            given = body.get("content")
        elif event == _CHOICE and result is None:
            result = _blocks(body.get("message"))
            if isinstance(result, list) and len(result) == 1 and isinstance(result[0].get("text"), str):
                result = result[0]["text"]
    if "langsmith.span.kind" in attributes:
        given, result = _unwrap_langsmith(given, result)
    status = str(first(attributes, "gen_ai.tool.status", "success")).lower()
    run = ToolRun.recorded(
        name,
        given,
        result,
        namespace=text(attributes, "mcp.server.name"),
        call_id=call_id,
        failed=span.error is not None or attributes.get("error.type") is not None or status in _FAILED,
    )
    if run.is_error is None and status in _SUCCEEDED:
        run.is_error = False
    return run


def _unwrap_langsmith(given: Any, result: Any) -> tuple[Any, Any]:
    """Arguments and result without the object that LangSmith puts around other values.

    If the arguments are plain text, the parameter is not known, so they stay text.
    """
    inputs, outputs = parse_if_json(given), parse_if_json(result)
    if isinstance(inputs, dict) and inputs.keys() == {"input"} and isinstance(inputs["input"], str):
        given = inputs["input"]
    return given, outputs["output"] if isinstance(outputs, dict) and outputs.keys() == {"output"} else result
