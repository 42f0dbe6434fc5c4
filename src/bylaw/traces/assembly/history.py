"""Does a request continue a conversation, or start one afresh?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

_ANSWERS = frozenset(("assistant", "tool", "function", "model"))
_ITEMS = frozenset(("function_call", "function_call_output"))


class MessageSkim(Struct, gc=False):
    """As much of a message as tells who it is from."""

    role: str | None = None
    type: str | None = None


def carries_history(
    messages: list[MessageSkim] | None, raw: bytes, decode_messages: Callable[[bytes], list[Any] | None]
) -> bool | None:
    """Whether an assistant's or a tool's message is among these; None where no message was recorded at all.

    A tool result inside a user's message counts too: it answers a call of this conversation. To see it takes the whole
    messages, so these are decoded only where `raw`, the record they are from, can hold one.
    """
    if not messages:
        return None
    for message in reversed(messages):  # an answer is mostly the last message but one
        role = message.role
        if role in _ANSWERS or (role is None and message.type in _ITEMS):
            return True
    return b"tool_result" in raw and any(map(_has_result, decode_messages(raw) or ()))


def _has_result(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )
