"""Which messages of a request are new, and the steps that they become.

What the agent itself said and was told has steps already, unless the trajectory begins in the middle of a conversation:
then that is copied context.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.traces.assembly.arguments import read_arguments
from bylaw.traces.export.atif.steps import Call, Result, Step, text_of
from bylaw.traces.export.same import same

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
