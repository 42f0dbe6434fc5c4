"""The steps of a trajectory, and what events become in them.

Which messages of a request are new, and the steps that they become.

What the agent itself said and was told has steps already, unless the trajectory begins in the middle of a conversation:
then that is copied context.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Response, ToolCall, ToolResult, Usage
from bylaw.traces.assembly.content import read_arguments, read_content
from bylaw.traces.export.lines import same
from bylaw.traces.formats.roundtrip.lines import Slot


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


_OWN = ("assistant", "tool", "function")
_SYSTEM = ("system", "developer")


class History:
    """The messages of the latest request of one agent."""

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._begun = False

    def next(self, messages: list[Any]) -> tuple[int, list[Any], list[Step]]:
        """How many messages the next request shares with the one before, the others, and the steps of those."""
        kept = 0
        for old, new in zip(self._messages, messages, strict=False):
            if not same(old, new):
                break
            kept += 1
        new = messages[kept:]
        steps = list(_steps(new, copied=not self._begun))
        self._messages, self._begun = messages, True
        return kept, new, steps


def _steps(messages: list[Any], *, copied: bool) -> Iterator[Step]:
    latest: Step | None = None
    for message in messages:
        fields = message if isinstance(message, dict) else {"content": message}
        role = fields.get("role")
        if role not in _OWN:
            content = fields.get("content")
            if _is_told(content):
                continue
            yield Step(source="system" if role in _SYSTEM else "user", message=text_of(content))
        elif copied and role == "assistant":
            latest = Step(
                source="agent",
                message=text_of(_said(fields.get("content"))),
                tool_calls=list(_calls(fields)) or None,
                is_copied_context=True,
            )
            yield latest
        elif copied and latest is not None:
            known = {call.tool_call_id for call in latest.tool_calls or ()}
            call_id = fields.get("tool_call_id")
            latest.observe(
                Result(source_call_id=call_id if call_id in known else None, content=text_of(fields.get("content")))
            )


def _is_told(content: Any) -> bool:
    """A message of the user that only brings results has no step: the results have."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(block, dict) and str(block.get("type")).endswith("tool_result") for block in content)
    )


def _said(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [block for block in content if not (isinstance(block, dict) and block.get("type") == "tool_use")]


def _calls(fields: dict[str, Any]) -> Iterator[Call]:
    """The calls of an assistant's message, as OpenAI or Anthropic writes them; those without a name are left."""
    content, calls = fields.get("content"), fields.get("tool_calls")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            yield from _call(block.get("id"), block.get("name"), block.get("input"))
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield from _call(call.get("id"), function.get("name"), read_arguments(function.get("arguments"))[0])


def _call(call_id: Any, name: Any, arguments: Any) -> Iterator[Call]:
    if isinstance(name, str):
        found = arguments if isinstance(arguments, dict) else {}
        yield Call(tool_call_id=call_id if isinstance(call_id, str) else "", function_name=name, arguments=found)
