"""Plain event lists: `user_message`, `agent_message`, `tool_call`, `tool_result`, one after the other.

They do not mark where a response begins or ends, so all messages and calls of the agent between two inputs are one
response.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Locator
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat_message import item_of, time_of
from bylaw.traces.formats.reader import ConversationReader, OpenedFile, PendingAnswer, add_answer
from bylaw.traces.formats.record import MalformedRecord, Path, Record, suggest, text_field, type_name

KINDS = ("user_message", "agent_message", "tool_call", "tool_result")
LISTS = ("events", "trace_events")
CONTENT_KEYS = ("content", "text", "message")
RESULT_KEYS = ("content", "result", "output", "text")
NAME_KEYS = ("name", "tool")
_ARGUMENTS = ("args", "arguments")
_ERROR_FLAGS = ("is_error", "isError", "error")
_CALL_ID = ("call_id", "tool_call_id", "id")


class EventListReader(ConversationReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._pending: PendingAnswer | None = None

    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self.read_list(record, value, (), None)
            return
        key = next((key for key in LISTS if isinstance(value, dict) and isinstance(value.get(key), list)), None)
        if key is None:
            self.read_open(record)
            return
        rest = {name: item for name, item in value.items() if name != key}
        session = rest.pop("id", rest.pop("session_id", None))
        settings = Settings(model=text_field(rest, "model"))
        self.read_list(record, value[key], (key,), None if session is None else str(session), settings, rest or None)

    def read_item(self, conversation: Conversation, record: Record, event: Any, path: Path) -> None:
        try:
            kind = _kind(event)
            if kind == "agent_message":
                self._read_message(record, event, path)
            elif kind == "tool_call":
                self._read_call(record, event, path)
            else:
                self.end_answer(conversation)
                source = record.locator(item_of(path))
                if kind == "user_message":
                    conversation.add_input({"role": "user", "content": _first(event, CONTENT_KEYS)}, source)
                else:
                    self._read_result(conversation, event, source)
        except MalformedRecord as error:
            record.malformed(error, path)

    def _read_message(self, record: Record, event: dict[str, Any], path: Path) -> None:
        content = _first(event, CONTENT_KEYS)
        if content is not None and not isinstance(content, (str, list)):
            raise MalformedRecord(f"a message must be text or a list, not {type_name(content)}")
        blocks = self._response(record, event, path).answer.blocks
        if content is not None and blocks is not None:
            blocks.extend(content if isinstance(content, list) else [{"type": "text", "text": content}])

    def _read_call(self, record: Record, event: dict[str, Any], path: Path) -> None:
        name = _first(event, NAME_KEYS)
        if not isinstance(name, str):
            raise MalformedRecord("a `tool_call` has no `name`")
        pending = self._response(record, event, path)
        pending.answer.add_call(_first(event, _CALL_ID), name, _first(event, _ARGUMENTS))
        pending.places.append(record.locator(item_of(path)))

    def _response(self, record: Record, event: dict[str, Any], path: Path) -> PendingAnswer:
        if self._pending is None:
            self._pending = PendingAnswer(record, path, time_of(event))
        return self._pending

    def end_answer(self, conversation: Conversation) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        record, path, answer = pending.record, pending.path, pending.answer
        source = record.locator(item_of(path))
        content, text = add_answer(
            conversation, record, answer, source, path=path, places=pending.places, at=pending.at
        )
        conversation.add_message({"role": "assistant", "content": content if answer.uses else text})

    def _read_result(self, conversation: Conversation, event: dict[str, Any], source: Locator) -> None:
        call_id, name, content = _first(event, _CALL_ID), _first(event, NAME_KEYS), _first(event, RESULT_KEYS)
        is_error = next((event[key] for key in _ERROR_FLAGS if isinstance(event.get(key), bool)), None)
        if is_error is None and isinstance(event.get("error"), str | dict) and event["error"]:
            is_error, content = True, event["error"] if content is None else content  # what went wrong
        conversation.add_result(
            source,
            time_of(event),
            None if call_id is None else str(call_id),
            content,
            name=name if isinstance(name, str) else None,
            is_error=is_error,
        )
        conversation.add_input({"role": "tool", "name": name, "content": content}, source)


def _kind(event: Any) -> str:
    if not isinstance(event, dict):
        raise MalformedRecord(f"an event is an object, not {type_name(event)}")
    kind = event.get("type")
    if not isinstance(kind, str):
        raise MalformedRecord("an event has no `type`", ("type",) if kind is not None else ())
    if kind not in KINDS:
        raise MalformedRecord(f"unknown event type `{kind}`", ("type",), code="unknown-kind", help=suggest(kind, KINDS))
    return kind


def _first(event: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((event[key] for key in keys if key in event), None)
