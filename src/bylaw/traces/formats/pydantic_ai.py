"""pydantic-ai's message histories: requests and responses with their parts, as `all_messages_json()` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, text_field, type_name

_KINDS = ("request", "response")
FAILED = frozenset(("failed", "retried", "denied", "interrupted"))
"""outcomes of a call that returned no result"""
NOT_CONTENT = frozenset(
    ("instruction", "instruction-delta", "instruction-digest", "instruction-baseline", "tool-availability-delta",
     "capability-load-delta", "model-settings-delta")
)  # fmt: skip
"""parts that say how the agent is set up"""


def claims(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _is_message(value[0])
    return _is_message(value) or (isinstance(value, dict) and any(map(_is_message, list_field(value, "messages")[:1])))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("kind") not in _KINDS:
        return False
    return any(isinstance(part, dict) and "part_kind" in part for part in list_field(value, "parts"))


class PydanticAIReader(ChatReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self.read_list(record, value, (), _conversation(value[0] if value else None))
        elif isinstance(value, dict) and isinstance(value.get("messages"), list):
            self.read_list(record, value["messages"], ("messages",), _conversation(value))
        else:
            wanted = _conversation(value)
            if self._open is None or (wanted is not None and wanted != self._open.origin.session):
                self._close()
                self._open = self._begin(wanted, Settings(), None, record, bounded=self._records.streamed)
            self.read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        try:
            kind = item.get("kind") if isinstance(item, dict) else None
            if not isinstance(item, dict):
                raise MalformedRecord(f"a message is an object, not {type_name(item)}")
            if kind not in _KINDS:
                raise MalformedRecord(f"a message has a `kind`: {' or '.join(_KINDS)}")
            if not isinstance(item.get("parts"), list):
                raise MalformedRecord("a message has no list `parts`", ("parts",) if "parts" in item else ())
        except MalformedRecord as error:
            record.malformed(error, path)
            return
        for message in [_answer(item)] if kind == "response" else _request(item):
            super().read_item(conversation, record, message, path)


def _conversation(message: Any) -> str | None:
    return text_field(message, "conversation_id") if isinstance(message, dict) else None


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [_block(part) for part in message["parts"]],
        "usage": message.get("usage"),
        "timestamp": message.get("timestamp"),
        "model": message.get("model_name"),
        "finish_reason": message.get("finish_reason"),
    }


def _block(part: Any) -> Any:
    """Calls and results of the provider's own tools keep their words, which every reader knows."""
    if not isinstance(part, dict):
        return part
    kind = part.get("part_kind")
    if kind in ("text", "thinking"):
        return {"type": kind, "text": part.get("content")}
    if kind == "speech":
        return {"type": "text", "text": part.get("transcript")}
    return {"type": kind, **part}


def _request(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(instructions := message.get("instructions"), str) and instructions:
        yield {"role": "system", "content": instructions}
    for part in message["parts"]:
        kind = text_field(part, "part_kind") if isinstance(part, dict) else None
        if kind in ("tool-return", "builtin-tool-return"):
            yield _result(part)
        elif kind == "retry-prompt" and part.get("tool_name") is not None:
            yield {**_result(part), "is_error": True}
        elif kind == "system-prompt":
            yield {"role": "system", "content": part.get("content"), "timestamp": part.get("timestamp")}
        elif isinstance(part, dict) and kind not in NOT_CONTENT:
            yield {"role": "user", "content": part.get("content"), "timestamp": part.get("timestamp")}


def _result(part: dict[str, Any]) -> dict[str, Any]:
    outcome = part.get("outcome")
    return {
        "role": "tool",
        "tool_call_id": part.get("tool_call_id"),
        "name": part.get("tool_name"),
        "content": part.get("content"),
        "is_error": None if not isinstance(outcome, str) else outcome in FAILED,
        "timestamp": part.get("timestamp"),
    }
