"""Tell the formats apart by what their records look like. A file that matches none is an `unknown-format`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bylaw.traces.formats.agentlog_records import KINDS as AGENTLOG_KINDS
from bylaw.traces.formats.bylaw.canonical import KNOWN_KEYS
from bylaw.traces.formats.catalogue import CATALOGUE
from bylaw.traces.formats.chat_message import ROLES
from bylaw.traces.formats.eventlist import CONTENT_KEYS, LISTS, NAME_KEYS, RESULT_KEYS
from bylaw.traces.formats.messages import is_framework_message

_FOREIGN = frozenset(
    ("jsonrpc", "suite_name", "pipeline_name", "spans", "resourceSpans", "resource_spans", "trajectory")
)
"""keys of formats that resemble a chat or an event list: MCP logs, AgentDojo, OpenInference, OTLP, SWE-agent"""
_CERTAIN = frozenset(("bylaw", "agentlog", "tau"))
"""formats that no other format resembles"""
_PLAIN_CHATS = (
    frozenset(("id", "messages", "metadata", "model", "session_id", "task_id", "tools")),
    frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "function_call", "refusal")),
)
"""keys of a plain chat, and of a message: with these no other format can claim a record"""
_SAMPLED = 50
_ANTHROPIC_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")
_OPENAI_KEYS = frozenset(("tool_calls", "function_call", "tool_call_id", "finish_reason", "refusal"))
_CONVERSE_BLOCKS = frozenset(("text", "toolUse", "toolResult", "reasoningContent", "image", "document"))
"""the only key of a block, which has no type"""
_EVENT_KEYS = {
    "user_message": frozenset(CONTENT_KEYS),
    "agent_message": frozenset(CONTENT_KEYS),
    "tool_call": frozenset(NAME_KEYS),
    "tool_result": frozenset(RESULT_KEYS),
}
"""what an event of each type has, where other formats use the same word"""
_OPENAI_ROLES = ("system", "developer", "tool", "function")


def detect(samples: Iterable[Any]) -> str | None:
    """The format of a file, by the first record that shows one; chat formats are distinguished by all records."""
    values: list[Any] = []
    unclear: list[Any] = []
    found = None
    for value in samples:  # records may be large, so no more of them are decoded than are needed
        values.append(value)
        shape = _format_of(value)
        found = found or shape
        if found in _CERTAIN:
            return found
        if shape == "chat" and isinstance(value, dict) and any(value.keys() <= keys for keys in _PLAIN_CHATS):
            continue  # the usual case: no other reader has to be imported
        unclear.append(value)
        # A record that looks like a chat may be part of another format, so those formats are tried first.
        claim = next((name for name, format in CATALOGUE.items() if format.has_claims and format.claims(value)), None)
        if claim is not None:
            return claim
    if unclear and found in (None, "chat"):
        from bylaw.traces.formats.pairs import resembles  # few files need it

        if any(map(resembles, unclear)):
            return "pairs"
    return _chat_dialect(values) if found == "chat" else found


def _format_of(value: Any) -> str | None:
    if isinstance(value, list):
        if value and all(map(_is_event, value[:_SAMPLED])):
            return "events"
        return "chat" if value and all(map(_is_message, value[:_SAMPLED])) else None
    if not isinstance(value, dict) or _is_foreign(value):
        return None
    if isinstance(value.get("bylaw"), str):
        return "bylaw"
    if isinstance(kind := value.get("kind"), str):
        if "payload" in value:
            return "agentlog" if kind in AGENTLOG_KINDS or "version" in value else None
        return "bylaw" if _is_own_line(kind, value) else None
    if isinstance(value.get("traj"), list):
        return "tau" if "task_id" in value else None
    if _is_event(value):
        return "events"
    for key in LISTS:
        if isinstance(listed := value.get(key), list):
            return "events" if (listed or key != "events") and all(map(_is_event, listed[:_SAMPLED])) else None
    if isinstance(value.get("messages"), list):
        return "chat" if all(map(_is_message, value["messages"][:_SAMPLED])) else None
    return "chat" if _is_message(value) else None


def _is_foreign(value: dict[str, Any]) -> bool:
    # Claude Code wraps each message in an object
    return not _FOREIGN.isdisjoint(value) or isinstance(value.get("message"), dict)


def _is_own_line(kind: str, value: dict[str, Any]) -> bool:
    """Whether this is a line of Bylaw JSONL: others have a `kind` too, so most of its keys must be ours."""
    known = KNOWN_KEYS.get(kind, ())
    return 2 * sum(key in known for key in value) >= len(value) and "parts" not in value


def _is_event(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    wanted = _EVENT_KEYS.get(kind) if isinstance(kind, str) else None
    return wanted is not None and not wanted.isdisjoint(value)


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or _is_foreign(value):
        return False
    if isinstance(value.get("choices"), list):
        return True
    return value.get("role") in ROLES and (
        "content" in value or not _OPENAI_KEYS.isdisjoint(value) or is_framework_message(value)
    )


def _chat_dialect(values: list[Any]) -> str:
    """OpenAI, Bedrock or Anthropic. All are read alike, so this only names the file. Plain text could be any."""
    messages = [message for value in values for message in _messages_in(value)]
    if any(
        message.get("role") in _OPENAI_ROLES or "choices" in message or not _OPENAI_KEYS.isdisjoint(message)
        for message in messages
    ):
        return "openai"
    contents = [content for message in messages if isinstance(content := message.get("content"), list)]
    blocks = [block for content in contents for block in content if isinstance(block, dict)]
    if any("type" not in block and not _CONVERSE_BLOCKS.isdisjoint(block) for block in blocks):
        return "bedrock"
    if any(isinstance(value, dict) and "system" in value for value in values):
        return "anthropic"
    shows_blocks = any(block.get("type") in _ANTHROPIC_BLOCKS for block in blocks)
    return "anthropic" if shows_blocks or any("stop_reason" in message for message in messages) else "openai"


def _messages_in(value: Any) -> Iterator[dict[str, Any]]:
    found = value.get("messages", [value]) if isinstance(value, dict) else value
    for message in found[:_SAMPLED] if isinstance(found, list) else ():
        if isinstance(message, dict):
            yield message
