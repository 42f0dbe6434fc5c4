"""Chat messages as OpenAI and Anthropic write them: one per record, lists of them, or objects that hold a list.

One reader understands both, because real files mix them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bylaw.model.events import Usage
from bylaw.model.source import Locator
from bylaw.model.values import json_type
from bylaw.traces.assembly.content import EVERYTHING
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bodies import PARAMS
from bylaw.traces.formats.call_signs import UNREAD_CALL, looks_like_call
from bylaw.traces.formats.chat_message import ASSISTANT, item_of, read_assistant, results_in, role_of, time_of, unwrap
from bylaw.traces.formats.framework_messages import is_framework_message
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.reader import ConversationReader, add_answer
from bylaw.traces.formats.record import MalformedRecord, Path, Record, text_field

_IDS = ("session_id", "id", "conversation_id")
_PARTS = frozenset(("blocks", "items", "parts"))
"""what frameworks have instead of `content`, or beside it"""
_PLAIN = frozenset(("role", "content", "tool_calls", "function_call", "refusal", "reasoning_content"))
"""most messages have only these keys: then nothing else is looked for"""


class ChatReader(ConversationReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self.read_list(record, value, (), None)
        elif isinstance(value, dict) and isinstance(value.get("messages"), list):
            self._read_object(record, value)
        else:
            self.read_open(record)

    def _read_object(self, record: Record, value: dict[str, Any]) -> None:
        rest = dict(value)
        messages, system = rest.pop("messages"), rest.pop("system", None)
        params = {key: rest.pop(key) for key in PARAMS if key in rest}
        params |= _pop(rest, "params", dict) or {}
        settings = Settings(
            model=_pop(rest, "model", str),
            params=params or None,
            tools=_pop(rest, "tools", list),
            metadata=_pop(rest, "metadata", dict),
        )
        names = (_pop(rest, key, (str, int)) for key in _IDS)
        name = next((str(name) for name in names if name is not None), None)
        settings = replace(settings, others=rest or None)
        self.read_list(record, messages, ("messages",), name, settings, rest or None, system)

    def read_item(self, conversation: Conversation, record: Record, message: Any, path: Path) -> None:
        source, others = record.locator(item_of(path)), False
        try:
            if type(message) is dict and "choices" in message:
                choices = message["choices"]
                if type(choices) is list and len(choices) > 1:
                    others = True
                    unread = f"only the first of {len(choices)} choices is read"
                    record.warn("unread-content", unread, (*path, "choices"))
                message = unwrap(message)
            elif type(message) is dict and not _PARTS.isdisjoint(message) and is_framework_message(message):
                for one in chat_message(message):
                    plain = {key: value for key, value in one.items() if key not in _PARTS}
                    self.read_item(conversation, record, plain, path)
                return
            if role_of(message) == ASSISTANT:
                self._read_answer(conversation, record, message, path, source, EVERYTHING if others else ())
                return
        except MalformedRecord as error:
            record.malformed(error, path)
            return
        conversation.add_input(message, source)
        self._read_results(conversation, message, source)

    def _read_answer(
        self,
        conversation: Conversation,
        record: Record,
        message: dict[str, Any],
        path: Path,
        source: Locator,
        unread: tuple[str, ...],
    ) -> None:
        answer = read_assistant(message)
        if message.keys() <= _PLAIN and not unread:
            add_answer(conversation, record, answer, source, path=path)
        else:
            if not answer.uses and looks_like_call(message):
                unread = EVERYTHING
                record.warn("unread-content", UNREAD_CALL, path)
            latency = message.get("latency_ms")
            add_answer(
                conversation,
                record,
                answer,
                source,
                path=path,
                unread=unread,
                at=time_of(message),
                model=text_field(message, "model"),
                stop_reason=text_field(message, "stop_reason", "finish_reason"),
                latency_ms=latency if json_type(latency) == "number" else None,
                usage=read_recorded_usage(record, message, (*path, "usage")),
            )
        conversation.add_message(message)
        if type(message.get("content")) is list:
            self._read_results(conversation, message, source)

    def _read_results(self, conversation: Conversation, message: dict[str, Any], source: Locator) -> None:
        for result in results_in(message):
            conversation.add_result(
                source,
                time_of(message),
                result.call_id,
                result.content,
                name=result.name,
                is_error=result.is_error,
                arguments=result.arguments,
            )


def read_recorded_usage(record: Record, message: dict[str, Any], path: Path) -> Usage | None:
    """The usage of a message; what cannot be read in it is a warning."""
    recorded = message.get("usage")
    if recorded is None and isinstance(metrics := message.get("metrics"), dict) and "input_tokens" in metrics:
        recorded = metrics  # Agno
    if recorded is None and isinstance(about := message.get("meta", message.get("_meta")), dict):
        recorded = about.get("usage")  # Haystack
    usage, unread = read_usage(recorded, text_field(message, "model"))
    for problem in unread:
        record.warn("bad-usage", problem, path)
    return usage


def _pop(fields: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """Remove a field of the right type from the others; the rest becomes the session's metadata."""
    return fields.pop(key) if isinstance(fields.get(key), kind) else None
