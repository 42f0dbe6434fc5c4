"""The steps of a trajectory, and what events become in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Response, ToolCall, ToolResult, Usage
from bylaw.traces.assembly.blocks import read_content
from bylaw.traces.formats.restored.slots import Slot


class Extra(Struct):
    bylaw: list[Slot]


class Call(Struct, omit_defaults=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] | None = None
    extra: Extra | None = None


class Result(Struct, omit_defaults=True):
    source_call_id: str | None = None
    content: str | list[Any] | None = None
    extra: Extra | None = None


class Observation(Struct):
    results: list[Result]


class Step(Struct, omit_defaults=True, kw_only=True):
    step_id: int = 0
    timestamp: str | None = None
    source: str
    model_name: str | None = None
    message: str
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    observation: Observation | None = None
    metrics: dict[str, Any] | None = None
    llm_call_count: int | None = None
    is_copied_context: bool | None = None
    extra: Extra | None = None

    def observe(self, result: Result) -> None:
        self.observation = self.observation or Observation([])
        self.observation.results.append(result)


def put(place: Step | Call | Result, slot: Slot) -> None:
    place.extra = place.extra or Extra([])
    place.extra.bylaw.append(slot)


def agent_step(response: Response) -> Step:
    return Step(
        timestamp=timestamp(response.at),
        source="agent",
        model_name=response.model,
        message=response.text or "",
        reasoning_content=_reasoning(response.content),
        tool_calls=[call_of(call) for call in response.tool_calls] or None,
        metrics=None if response.usage is None else _metrics(response.usage),
        llm_call_count=1,
    )


def call_of(call: ToolCall) -> Call:
    return Call(tool_call_id=call.call_id, function_name=call.name, arguments=arguments_of(call))


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """ATIF knows only objects: anything else stands in one, as its `value`."""
    if isinstance(call.arguments, dict):
        return call.arguments
    given = call.raw_arguments if call.arguments is None else call.arguments
    return {} if given is None else {"value": given}


def result_of(result: ToolResult) -> tuple[Result, str]:
    """The result, and the form in which it holds the content."""
    content, form = result.content, "json"
    if content is None or isinstance(content, str) or _is_texts(content):
        form = "plain"
    else:
        content = msgspec.json.encode(content).decode()
    return Result(source_call_id=result.call_id, content=content), form


def text_of(content: Any) -> str:
    """What a message says, as text; JSON where that is not its nature."""
    if isinstance(content, (str, list)):
        found = read_content(content)[1]
        if found:
            return found
    return "" if content in (None, "", []) else msgspec.json.encode(content).decode()


def timestamp(at: str | float | None) -> str | None:
    """In ISO 8601, or None where it is no such time."""
    try:
        if isinstance(at, str):
            datetime.fromisoformat(at.replace("Z", "+00:00"))
            return at
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _reasoning(content: list[Any] | None) -> str | None:
    blocks = [block for block in content or () if isinstance(block, dict) and block.get("type") == "thinking"]
    told = [text for block in blocks if isinstance(text := block.get("text", block.get("thinking")), str)]
    return "\n".join(told) if told else None


def _metrics(usage: Usage) -> dict[str, Any] | None:
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_input_tokens,
    }
    more = {"reasoning_tokens": usage.reasoning_tokens, "cache_write_tokens": usage.cache_write_tokens}
    found: dict[str, Any] = {key: count for key, count in counts.items() if count is not None}
    extra = {key: count for key, count in more.items() if count is not None}
    return {**found, **({"extra": extra} if extra else {})} or None


def _is_texts(content: Any) -> bool:
    """A list that ATIF has too: nothing but texts."""
    return isinstance(content, list) and all(
        isinstance(one, dict) and one.keys() == {"type", "text"} and one["type"] == "text" and type(one["text"]) is str
        for one in content
    )
