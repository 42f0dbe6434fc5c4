"""LangChain's messages: as `messages_to_dict`, `dumps` or their models write them; in a list, or a LangGraph state."""

from __future__ import annotations

from typing import Any

from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import ASSISTANT
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.record import Path, Record, object_field, text_field

_TYPES = frozenset(("human", "ai", "system", "tool", "function", "chat", "AIMessageChunk", "remove"))
_OWN = frozenset(("additional_kwargs", "response_metadata"))
_MOST_LEVELS = 3


def claims(value: Any) -> bool:
    if any(_is_message(one) for one in _updates(value)[:1]):
        return True
    messages, _ = _messages_in(value)
    head = messages[:20] if messages is not None else [value]
    return bool(head) and all(map(_is_message, head))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    if "lc" in value and isinstance(value.get("kwargs"), dict):
        return "content" in value["kwargs"]
    fields = value["data"] if isinstance(value.get("data"), dict) else value
    return text_field(value, "type") in _TYPES and "content" in fields and not _OWN.isdisjoint(fields)


def _messages_in(value: Any) -> tuple[list[Any] | None, Path]:
    """The messages of a list, or of the state of a graph, and where they stand."""
    path: Path = ()
    for _ in range(_MOST_LEVELS):
        if isinstance(value, list):
            return value, path
        key = next((key for key in ("messages", "values") if isinstance(value, dict) and key in value), None)
        if key is None:
            break
        value, path = value[key], (*path, key)
    return None, ()


def _updates(value: Any) -> list[Any]:
    """The messages that nodes of a graph added in one step, as `stream_mode="updates"` yields them."""
    if not isinstance(value, dict) or not value or not all(isinstance(one, dict | None) for one in value.values()):
        return []
    lists = [one.get("messages") for one in value.values() if one is not None]
    if not lists or not all(isinstance(one, list) for one in lists):
        return []
    return [message for one in lists for message in one]


class LangChainReader(ChatReader):
    def read_record(self, record: Record) -> None:
        if added := _updates(record.value):
            for message in added:
                self.read_open(Record(message, record.raw, record.place, record.problems))
            return
        messages, path = _messages_in(record.value)
        if messages is None:
            self.read_open(record)
            return
        config = object_field(object_field(record.value, "config"), "configurable")
        self.read_list(record, messages, path, text_field(config, "thread_id"))

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        if not _is_message(item):
            super().read_item(conversation, record, item, path)  # a chat message among them, or told as wrong
            return
        for message in chat_message(item):
            if message["role"] == ASSISTANT:
                message |= _outer(message)
            if message["role"] != "remove":  # an order to forget a message
                super().read_item(conversation, record, message, path)


def _outer(message: dict[str, Any]) -> dict[str, Any]:
    """What LangChain says about an answer, in the words of a chat."""
    about, usage = object_field(message, "response_metadata"), object_field(message, "usage_metadata")
    given, made = object_field(usage, "input_token_details"), object_field(usage, "output_token_details")
    counts = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": given.get("cache_read")},
        "completion_tokens_details": {"reasoning_tokens": made.get("reasoning")},
    }
    return {
        "model": text_field(about, "model_name", "model"),
        "finish_reason": text_field(about, "finish_reason", "stop_reason"),
        "usage": counts if usage else None,
    }
