"""Chat message lists, as OpenAI and Anthropic write them. One reader understands both, for real files mix them.

Reads chat messages: one a record, or lists of them, or objects that hold a list and say more about it.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import ToolResult, Usage
from bylaw.model.source import Locator
from bylaw.model.values import json_type
from bylaw.traces.assembly.content import calls_in, read_content, unread_kinds
from bylaw.traces.assembly.conversation import Answer, Conversation, Settings
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.chat_message import (
    ASSISTANT,
    Misshapen,
    Path,
    item_of,
    results_in,
    role_of,
    said,
    text_field,
    time_of,
    unwrap,
)
from bylaw.traces.formats.reader import ConversationReader
from bylaw.traces.formats.record import Record

_IDS = ("session_id", "id", "conversation_id")
PARAMS = (
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "stop_sequences",
    "temperature",
    "thinking",
    "tool_choice",
    "top_k",
    "top_p",
)


class ChatReader(ConversationReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self.read_list(record, value, ())
        elif isinstance(value, dict) and isinstance(value.get("messages"), list):
            self._object(record, value)
        else:
            conversation = self._continue(record)
            self._message(conversation, record, value, ())
            self._cut = self._cut or conversation.cut

    def read_list(
        self,
        record: Record,
        messages: list[Any],
        path: Path,
        *,
        session: str | None = None,
        settings: Settings | None = None,
        metadata: dict[str, Any] | None = None,
        system: Any = None,
    ) -> None:
        """A whole conversation in one record."""
        self._close()
        conversation = self._begin(session, settings or Settings(), metadata, record, bounded=False)
        if system is not None:
            conversation.heard({"role": "system", "content": system}, record.locator(".system"))
        for index, message in enumerate(messages):
            self._message(conversation, record, message, (*path, index))
        conversation.end()

    def _object(self, record: Record, value: dict[str, Any]) -> None:
        rest = dict(value)
        messages, system = rest.pop("messages"), rest.pop("system", None)
        params = {key: rest.pop(key) for key in PARAMS if key in rest}
        params |= _take(rest, "params", dict) or {}
        settings = Settings(
            model=_take(rest, "model", str),
            params=params or None,
            tools=_take(rest, "tools", list),
            metadata=_take(rest, "metadata", dict),
        )
        names = (_take(rest, key, (str, int)) for key in _IDS)
        name = next((str(name) for name in names if name is not None), None)
        self.read_list(
            record, messages, ("messages",), session=name, settings=settings, metadata=rest or None, system=system
        )

    def _message(self, conversation: Conversation, record: Record, message: Any, path: Path) -> None:
        source = record.locator(item_of(path))
        try:
            if type(message) is dict and "choices" in message:
                self._warn_of_choices(record, message, path)
                message = unwrap(message)
            if role_of(message) == ASSISTANT:
                self._answer(conversation, record, message, path, source)
                return
        except Misshapen as error:
            record.bad(error.code, error.message, (*path, *error.path), help=error.help)
            return
        conversation.heard(message, source)
        self._results(conversation, message, source)

    def _warn_of_choices(self, record: Record, message: dict[str, Any], path: Path) -> None:
        choices = message["choices"]
        if type(choices) is list and len(choices) > 1:
            text = f"only the first of {len(choices)} choices is read"
            record.warn(code="unread-content", message=text, path=(*path, "choices"))

    def _answer(
        self, conversation: Conversation, record: Record, message: dict[str, Any], path: Path, source: Locator
    ) -> None:
        told = said(message)
        extra = _NOTHING if message.keys() <= _PLAIN else message
        at = time_of(extra)
        calls, shared = calls_in(told.uses, conversation.origin, conversation.turn, at, source, told.arguments)
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id), path)
        content, text, _ = read_content(told.blocks)
        for kind in unread_kinds(content):
            unread = f"a block of type `{kind}` is kept, and no rule looks into it"
            record.warn(code="unread-content", message=unread, path=path)
        conversation.answered(
            Answer(
                content=content,
                text=text,
                calls=calls,
                at=at,
                source=source,
                model=text_field(extra, "model"),
                stop_reason=text_field(extra, "stop_reason", "finish_reason"),
                latency_ms=_number(extra.get("latency_ms")),
                usage=self._usage(record, extra, path),
            )
            if extra
            else Answer(content=content, text=text, calls=calls, source=source)
        )
        conversation.said(message)
        if type(message.get("content")) is list:
            self._results(conversation, message, source)

    def _results(self, conversation: Conversation, message: dict[str, Any], source: Locator) -> None:
        for result in results_in(message):
            conversation.result(
                ToolResult(
                    origin=conversation.origin,
                    at=time_of(message),
                    source=source,
                    call_id=result.call_id,
                    name=result.name,
                    content=result.content,
                    is_error=result.is_error,
                )
            )

    def _usage(self, record: Record, message: dict[str, Any], path: Path) -> Usage | None:
        usage, unread = read_usage(message.get("usage"), text_field(message, "model"))
        for problem in unread:
            record.warn("bad-usage", problem, (*path, "usage"))
        return usage


_PLAIN = frozenset(("role", "content", "tool_calls", "function_call", "refusal", "reasoning_content"))
_NOTHING: dict[str, Any] = {}
"""most messages say nothing beyond who said what: then there is nothing else to look for"""


def _take(fields: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """A field of the right type, taken out of the others; what stays is told when the session starts."""
    return fields.pop(key) if isinstance(fields.get(key), kind) else None


def _number(value: Any) -> float | None:
    return value if json_type(value) == "number" else None
