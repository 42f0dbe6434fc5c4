"""The system prompt that a trace holds: that of its first request, or of messages outside any request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bylaw.model.events import Message, Request
from bylaw.model.trace import Trace

RECORDED = "system prompt"
"""the name of a prompt that is in no file"""
_ROLES = ("system", "developer")


def recorded_prompt(trace: Trace) -> str | None:
    """The texts of the system messages, in their order; None if the trace holds none."""
    for event in trace.events:
        found: list[str] = []
        if isinstance(event, Request):
            messages = [message for message in event.messages or () if isinstance(message, dict)]
            contents = (one.get("content", one.get("parts")) for one in messages if one.get("role") in _ROLES)
            found = [text for content in contents if (text := _text(content))]
        elif isinstance(event, Message) and event.role in _ROLES:
            found = [text for text in (_text(event.content),) if text]
        if found:
            return "\n\n".join(found)
    return None


def shared_prompt(traces: Sequence[Trace]) -> str:
    """The prompt of all these traces. Raises ValueError if one has none, or if they differ."""
    prompts = {trace.name: recorded_prompt(trace) for trace in traces}
    without = [name for name, prompt in prompts.items() if prompt is None]
    if without or not prompts:
        name = f"`{without[0]}`" if without else "the traces"
        raise ValueError(f"no system prompt is recorded in {name}: pass it (`--prompt`, `system_prompt`)")
    if len(different := set(prompts.values())) > 1:
        raise ValueError(
            f"the traces hold {len(different):,} different system prompts: check them one by one, or use --prompt"
        )
    return different.pop() or ""


def _text(content: Any) -> str:
    """The text of a message: plain, or in blocks."""
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        return _text(content.get("text") or content.get("content"))
    return ""
