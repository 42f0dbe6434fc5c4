"""The steps of an ATIF trajectory, made from events and from the messages of requests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.model.events import Response, ToolCall, ToolResult, Usage
from bylaw.traces.assembly.content import read_arguments, read_content
from bylaw.traces.assembly.session_buffer import given_arguments
from bylaw.traces.export.bylaw import same
from bylaw.traces.formats.roundtrip_slots import Slot

_OWN_ROLES = ("assistant", "tool", "function")
_SYSTEM_ROLES = ("system", "developer")


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


# From events


def agent_step(response: Response) -> Step:
    thoughts = [
        block for block in response.content or () if isinstance(block, dict) and block.get("type") == "thinking"
    ]
    texts = [text for block in thoughts if isinstance(text := block.get("text", block.get("thinking")), str)]
    return Step(
        timestamp=timestamp(response.at),
        source="agent",
        model_name=response.model,
        message=response.text or "",
        reasoning_content="\n".join(texts) if texts else None,
        tool_calls=[call_of(call) for call in response.tool_calls] or None,
        metrics=None if response.usage is None else _metrics(response.usage),
        llm_call_count=1,
    )


def call_of(call: ToolCall) -> Call:
    """ATIF allows only objects as arguments: anything else is put into one, as its `value`."""
    recorded = given_arguments(call)
    arguments = recorded if isinstance(call.arguments, dict) else {} if recorded is None else {"value": recorded}
    return Call(tool_call_id=call.call_id, function_name=call.name, arguments=arguments)


def result_of(result: ToolResult) -> tuple[Result, str]:
    """The result, and the form in which it holds the content."""
    content, form = result.content, "json"
    if content is None or isinstance(content, str) or _is_texts(content):
        form = "plain"
    else:
        content = msgspec.json.encode(content).decode()
    return Result(source_call_id=result.call_id, content=content), form


def _is_texts(content: Any) -> bool:
    """Whether ATIF can express a list: if it holds only texts."""
    return isinstance(content, list) and all(
        isinstance(one, dict) and one.keys() == {"type", "text"} and one["type"] == "text" and type(one["text"]) is str
        for one in content
    )


def text_of(content: Any) -> str:
    """The text of a message; JSON if it has none."""
    if isinstance(content, (str, list)):
        found = read_content(content)[1]
        if found:
            return found
    return "" if content in (None, "", []) else msgspec.json.encode(content).decode()


def timestamp(at: str | float | None) -> str | None:
    """A time in ISO 8601, or None if it is not a valid time."""
    try:
        if isinstance(at, str):
            datetime.fromisoformat(at.replace("Z", "+00:00"))
            return at
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


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


# From messages


class History:
    """The messages of an agent's latest request, to find out which messages of the next one are new.

    The agent's own messages and results have steps already, unless the trajectory begins in the middle of a
    conversation: then they are copied context.
    """

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._has_begun = False

    def next(self, messages: list[Any]) -> tuple[int, list[Any], list[Step]]:
        """How many messages the next request shares with the previous one, the new messages, and their steps."""
        shared = 0
        for old, new in zip(self._messages, messages, strict=False):
            if not same(old, new):
                break
            shared += 1
        added = messages[shared:]
        steps = list(_steps(added, is_copied=not self._has_begun))
        self._messages, self._has_begun = messages, True
        return shared, added, steps


def _steps(messages: list[Any], *, is_copied: bool) -> Iterator[Step]:
    latest: Step | None = None
    for message in messages:
        fields = message if isinstance(message, dict) else {"content": message}
        role, content = fields.get("role"), fields.get("content")
        if role not in _OWN_ROLES:
            if not _holds_only_results(content):
                yield Step(source="system" if role in _SYSTEM_ROLES else "user", message=text_of(content))
        elif is_copied and role == "assistant":
            blocks = content
            if isinstance(content, list):
                blocks = [
                    block for block in content if not (isinstance(block, dict) and block.get("type") == "tool_use")
                ]
            calls = list(_calls(fields)) or None
            latest = Step(source="agent", message=text_of(blocks), tool_calls=calls, is_copied_context=True)
            yield latest
        elif is_copied and latest is not None:
            known = {call.tool_call_id for call in latest.tool_calls or ()}
            call_id = fields.get("tool_call_id")
            latest.observe(Result(source_call_id=call_id if call_id in known else None, content=text_of(content)))


def _holds_only_results(content: Any) -> bool:
    """A user's message that holds only results gets no step, because the results have."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(block, dict) and str(block.get("type")).endswith("tool_result") for block in content)
    )


def _calls(fields: dict[str, Any]) -> Iterator[Call]:
    """The calls of an assistant's message, in OpenAI's or Anthropic's shape; calls without a name are left out."""
    content, calls = fields.get("content"), fields.get("tool_calls")
    found: list[tuple[Any, Any, Any]] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            found.append((block.get("id"), block.get("name"), block.get("input")))
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            found.append((call.get("id"), function.get("name"), read_arguments(function.get("arguments"))[0]))
    for call_id, name, input in found:
        if isinstance(name, str):
            id = call_id if isinstance(call_id, str) else ""
            yield Call(tool_call_id=id, function_name=name, arguments=input if isinstance(input, dict) else {})
