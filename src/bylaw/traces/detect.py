"""Tell the formats apart by what their records look like. Claims only what it knows: the rest is `unknown-format`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bylaw.traces.formats.agentlog_records import KINDS as AGENTLOG_KINDS
from bylaw.traces.formats.bylaw.lines import ALL_KINDS as BYLAW_KINDS
from bylaw.traces.formats.chat_message import ROLES
from bylaw.traces.formats.eventlist import KINDS as EVENT_TYPES
from bylaw.traces.formats.eventlist import LISTS

_ELSEWHERE = frozenset(("jsonrpc", "suite_name", "pipeline_name", "spans", "resourceSpans", "trajectory"))
"""keys of formats that look like one of ours at a glance: MCP logs, AgentDojo, OpenInference, OTLP, SWE-agent"""
_CERTAIN = frozenset(("bylaw", "agentlog", "tau"))
"""formats that nothing else looks like"""
_SAMPLED = 50
_ANTHROPIC_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"))
_OPENAI_KEYS = frozenset(("tool_calls", "function_call", "tool_call_id", "finish_reason", "refusal"))


def detect(samples: Iterable[Any]) -> str | None:
    """The format of a file, by the first of its records that shows one; chats are told apart by all of them."""
    values = list(samples)
    found = next((found for value in values if (found := _format_of(value)) is not None), None)
    if found in _CERTAIN:
        return found
    claimed = _claimed(values)
    if claimed is not None or found != "chat":
        return claimed or found
    return _dialect([message for value in values for message in _messages_in(value)], values)


def _claimed(values: list[Any]) -> str | None:
    """A format that one of the records shows for certain: what looks like a chat, too, may be part of one."""
    from bylaw.traces.formats.catalogue import CATALOGUE

    claims = ((name, format.claims) for name, format in CATALOGUE.items())
    return next((name for name, claim in claims if any(map(claim, values))), None)


def _format_of(value: Any) -> str | None:
    if isinstance(value, list):
        return _format_of_list(value)
    if not isinstance(value, dict) or _is_elsewhere(value):
        return None
    if isinstance(value.get("bylaw"), str):
        return "bylaw"
    if isinstance(value.get("kind"), str):
        return _format_of_kind(value)
    if isinstance(value.get("traj"), list):
        return "tau" if "task_id" in value else None
    if value.get("type") in EVENT_TYPES:
        return "events"
    for key in LISTS:
        if isinstance(value.get(key), list):
            return "events" if all(map(_is_event, value[key][:_SAMPLED])) else None
    if isinstance(value.get("messages"), list):
        return "chat" if all(map(_is_message, value["messages"][:_SAMPLED])) else None
    return "chat" if _is_message(value) else None


def _is_elsewhere(value: dict[str, Any]) -> bool:
    # Claude Code wraps each message in an object of its own
    return not _ELSEWHERE.isdisjoint(value) or isinstance(value.get("message"), dict)


def _format_of_kind(value: dict[str, Any]) -> str | None:
    kind = value["kind"]
    if "payload" in value:
        return "agentlog" if kind in AGENTLOG_KINDS or "version" in value else None
    return "bylaw" if kind in BYLAW_KINDS else None


def _format_of_list(values: list[Any]) -> str | None:
    if values and all(map(_is_event, values[:_SAMPLED])):
        return "events"
    return "chat" if values and all(map(_is_message, values[:_SAMPLED])) else None


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in EVENT_TYPES


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or _is_elsewhere(value):
        return False
    if isinstance(value.get("choices"), list):
        return True
    return value.get("role") in ROLES and ("content" in value or not _OPENAI_KEYS.isdisjoint(value))


# OpenAI or Anthropic? They are read alike, so this only names the file. Plain text could be either.


def _dialect(messages: list[Any], values: list[Any]) -> str:
    if any(_looks_openai(message) for message in messages):
        return "openai"
    if any(isinstance(value, dict) and "system" in value for value in values):
        return "anthropic"
    return "anthropic" if any(_looks_anthropic(message) for message in messages) else "openai"


def _messages_in(value: Any) -> Iterator[dict[str, Any]]:
    found = value.get("messages", [value]) if isinstance(value, dict) else value
    for message in found[:_SAMPLED] if isinstance(found, list) else ():
        if isinstance(message, dict):
            yield message


def _looks_openai(message: dict[str, Any]) -> bool:
    return message.get("role") in ("system", "developer", "tool", "function") or (
        "choices" in message or not _OPENAI_KEYS.isdisjoint(message)
    )


def _looks_anthropic(message: dict[str, Any]) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return "stop_reason" in message or any(
        isinstance(block, dict) and block.get("type") in _ANTHROPIC_BLOCKS for block in blocks
    )
