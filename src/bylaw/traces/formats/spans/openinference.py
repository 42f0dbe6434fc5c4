"""OpenInference's vocabulary, as Phoenix and its instrumentations write it, with lists flattened into keys."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Deferred
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.bodies import answer_in_list, read_answer
from bylaw.traces.formats.messages import chat_messages, first_answer, parsed
from bylaw.traces.formats.spans.attributes import elements, first, text, unflatten
from bylaw.traces.formats.spans.span import AgentRun, Mark, ModelCall, RecordedInput, Span, ToolRun

KIND = "openinference.span.kind"
_INPUT, _TOOLS = "llm.input_messages", "llm.tools"
_LARGE = (_INPUT, _TOOLS)
_ROOTS = ("llm", "openinference", "input", "output", "tool", "tool_call", "session", "agent", "metadata")


def flat(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with dotted keys, even if a store nested them."""
    for root in _ROOTS:
        if root in attributes and isinstance(attributes[root], dict):
            break
    else:
        return attributes
    found: dict[str, Any] = {}
    waiting = [("", attributes)]
    while waiting:
        prefix, part = waiting.pop()
        for key, value in part.items():
            if isinstance(value, dict) and prefix.count(".") < 4:
                waiting.append((f"{prefix}{key}.", value))
            else:
                found[prefix + key] = value
    return found


def interpret(span: Span) -> bool:
    attributes = span.attributes = flat(span.attributes)
    kind = text(attributes, KIND)
    span.session = span.session or text(attributes, "session.id")
    if kind is None:
        return False
    span.agent = text(attributes, "agent.name", "graph.node.id")
    kind = kind.upper()
    if kind == "LLM" and not span.name.endswith("._prepare_chat_with_tools"):  # a helper of LlamaIndex
        span.about = _model(attributes)
    elif kind == "TOOL":
        span.about = _tool(span, attributes)
    elif kind == "AGENT":
        span.about = AgentRun(name=text(attributes, "agent.name") or span.name or None)
    elif kind in ("GUARDRAIL", "EVALUATOR", "DECISION"):
        span.about = Mark(
            label=kind.lower(), data={key: attributes.get(key) for key in ("input.value", "output.value")}
        )
    return True


def _model(recorded: dict[str, Any]) -> ModelCall:
    # The input and the tools are most of what is recorded, and are rarely looked at.
    attributes = {key: value for key, value in recorded.items() if not key.startswith(_LARGE)}
    has_input = has_tools = False
    if len(attributes) < len(recorded):
        has_tools = any(key.startswith(_TOOLS) for key in recorded)
        has_input = any(key.startswith(_INPUT) for key in recorded)
    has_input = has_input or "input.value" in attributes or any(key.startswith("llm.prompts") for key in attributes)
    answer = first_answer(chat_messages(unflatten(attributes, "llm.output_messages"), "assistant"))
    if answer is None and isinstance(value := attributes.get("output.value"), str):
        found = parsed(value)
        answer = read_answer(found) or answer_in_list(found)
        answer = answer or first_answer(chat_messages(_output(found, value), "assistant"))
    params = parsed(attributes.get("llm.invocation_parameters"))
    return ModelCall(
        model=text(attributes, "llm.model_name"),
        messages=RecordedInput(recorded, read=_input, each=_as_blocks) if has_input else None,
        params=params if isinstance(params, dict) and params else None,
        tools=Deferred(_tool_schemas, recorded) if has_tools else None,
        answer=None if answer is None else _as_blocks(answer),
        stop_reason=text(attributes, "llm.finish_reason", "llm.output_messages.0.message.finish_reason"),
        usage=_usage(attributes),
    )


def _input(attributes: dict[str, Any]) -> Any:
    found = elements(attributes, _INPUT) or unflatten(attributes, _INPUT)
    return _prompt(attributes) if found is None else found


def _prompt(attributes: dict[str, Any]) -> Any:
    prompts = unflatten(attributes, "llm.prompts")
    found = (
        [prompt.get("prompt") for prompt in prompts if isinstance(prompt, dict)] if isinstance(prompts, list) else []
    )
    texts = [prompt.get("text") if isinstance(prompt, dict) else prompt for prompt in found]
    return texts or attributes.get("input.value")


def _output(value: Any, recorded: str) -> Any:
    """An answer in `output.value`: a message if it is JSON, else text."""
    return value if isinstance(value, dict) and "role" in value else recorded


def _as_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """A message of several parts is flattened as `contents`."""
    parts = message.get("contents")
    if not isinstance(parts, list) or message.get("content") is not None:
        return message
    calls = message.get("tool_calls")
    blocks = [_part(part) for part in parts if not (calls and _holds_call(part))]  # recorded in both places
    return {**{key: value for key, value in message.items() if key != "contents"}, "content": blocks}


def _part(part: Any) -> Any:
    if not _holds_call(part):
        return part.get("message_content", part) if isinstance(part, dict) else part
    call = part["tool_call"]
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments = function.get("name"), function.get("arguments")
    return {"type": "tool_use", "id": call.get("id"), "name": name, "input": arguments}


def _holds_call(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("tool_call"), dict)


def _tool_schemas(recorded: dict[str, Any]) -> list[Any] | None:
    found = unflatten(recorded, _TOOLS)
    return [_schema(tool) for tool in found] if isinstance(found, list) else None


def _schema(tool: Any) -> Any:
    wrapped = tool.get("tool") if isinstance(tool, dict) else None
    return parsed(wrapped.get("json_schema") if isinstance(wrapped, dict) else tool)


def _usage(attributes: dict[str, Any]) -> Any:
    count = "llm.token_count."
    recorded = {key: value for key, value in attributes.items() if key.startswith(count)}
    return usage_from_counts(
        recorded,
        input=attributes.get(count + "prompt"),
        output=attributes.get(count + "completion"),
        read=attributes.get(count + "prompt_details.cache_read"),
        written=attributes.get(count + "prompt_details.cache_write"),
        reasoning=attributes.get(count + "completion_details.reasoning"),
    )


def _tool(span: Span, attributes: dict[str, Any]) -> ToolRun:
    # `tool.parameters` is the tool's schema with some recorders and the arguments with others.
    return ToolRun.recorded(
        text(attributes, "tool.name", "tool_call.function.name") or span.name,
        first(attributes, "tool_call.function.arguments", "input.value", "tool.parameters"),
        attributes.get("output.value"),
        call_id=text(attributes, "tool_call.id", "tool.id", "gen_ai.tool.call.id"),
        failed=span.error is not None,
    )
