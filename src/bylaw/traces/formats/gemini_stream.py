"""What `gemini --output-format stream-json` prints: texts in pieces, calls and their results, one event a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.traces.assembly.conversation import Settings
from bylaw.traces.formats.gathered import GatheringReader, Part, call_of
from bylaw.traces.formats.record import MalformedRecord, Record, text_field

_ANSWER = "answer"
KINDS = frozenset(("init", "message", "tool_use", "tool_result", "error", "result"))


def is_event(value: Any) -> bool:
    """Whether this is an event that no other tool prints."""
    if not isinstance(value, dict):
        return False
    kind = text_field(value, "type")
    if kind == "init":
        return {"session_id", "model", "timestamp"} <= value.keys()
    return kind in ("tool_use", "tool_result") and "tool_id" in value


class GeminiStreamReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, dict) and value.get("type") == "init":
            self._close()
            settings = Settings(model=text_field(value, "model"))
            name = text_field(value, "session_id")
            self._open = self._begin(name, settings, None, record, bounded=self._records.streamed)
        else:
            super().read_record(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[Part]:
        kind, at = text_field(event, "type"), event.get("timestamp")
        if kind not in KINDS:
            raise MalformedRecord("this is no event of a session", code="unknown-kind")
        if kind == "message" and event.get("role") == "assistant":
            yield Part({"role": "assistant", "content": event.get("content"), "timestamp": at}, _ANSWER)
        elif kind == "message":
            yield Part({"role": "user", "content": event.get("content"), "timestamp": at})
        elif kind == "tool_use":
            call = call_of(event.get("tool_id"), text_field(event, "tool_name"), event.get("parameters"))
            yield Part({"role": "assistant", "content": None, "tool_calls": [call], "timestamp": at}, _ANSWER)
        elif kind == "tool_result":
            status, error = event.get("status"), event.get("error")
            said = error.get("message", error) if isinstance(error, dict) else error
            result = {"role": "tool", "tool_call_id": text_field(event, "tool_id"), "timestamp": at}
            failed = status != "success" if isinstance(status, str) else None
            yield Part({**result, "content": event.get("output", said), "is_error": failed})
