"""Plain event lists: `user_message`, `agent_message`, `tool_call`, `tool_result`, one after the other.

Nothing in them says where a response begins or ends, so what the agent does without hearing anything in between,
messages and calls alike, is one response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from bylaw.model.events import ToolResult
from bylaw.model.source import Locator
from bylaw.traces.assembly.content import calls_in, read_arguments, read_content
from bylaw.traces.assembly.conversation import Answer, Conversation, Settings
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.formats.chat_message import Misshapen, Path, item_of, text_field, time_of
from bylaw.traces.formats.reader import ConversationReader
from bylaw.traces.formats.record import Record, a_type, near
from bylaw.traces.records.problems import Problems

KINDS = ("user_message", "agent_message", "tool_call", "tool_result")
LISTS = ("events", "trace_events")
_CONTENT = ("content", "text", "message")
_RESULT = ("content", "result", "output", "text")
_NAME = ("name", "tool")
_ARGUMENTS = ("args", "arguments")
_CALL_ID = ("call_id", "tool_call_id", "id")


class _Doing(Struct):
    """The response that is being put together."""

    record: Record
    path: Path
    at: str | float | None
    blocks: list[Any] = []
    uses: list[dict[str, Any]] = []
    arguments: list[tuple[Any, str | None]] = []
    places: list[Locator] = []


class EventListReader(ConversationReader):
    def __init__(self, problems: Problems, streamed: Callable[[], bool]) -> None:
        super().__init__(problems, streamed)
        self._doing: _Doing | None = None

    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self._list(record, value, (), None, {})
            return
        key = next((key for key in LISTS if isinstance(value, dict) and isinstance(value.get(key), list)), None)
        if key is not None:
            rest = {name: item for name, item in value.items() if name != key}
            session = rest.pop("id", rest.pop("session_id", None))
            self._list(record, value[key], (key,), None if session is None else str(session), rest)
            return
        conversation = self._continue(record)
        self._event(conversation, record, value, ())
        self._cut = self._cut or conversation.cut

    def _list(self, record: Record, events: list[Any], path: Path, session: str | None, rest: dict[str, Any]) -> None:
        self._close()
        settings = Settings(model=text_field(rest, "model"))
        conversation = self._begin(session, settings, rest or None, record, bounded=False)
        for index, event in enumerate(events):
            self._event(conversation, record, event, (*path, index))
        self._respond(conversation)
        conversation.end()

    def _close(self) -> None:
        if self._open is not None:
            self._respond(self._open)
        super()._close()

    # Events

    def _event(self, conversation: Conversation, record: Record, event: Any, path: Path) -> None:
        try:
            kind = _kind(event)
            if kind == "agent_message":
                self._said(record, event, path)
            elif kind == "tool_call":
                self._called(record, event, path)
            else:
                self._respond(conversation)
                (self._heard if kind == "user_message" else self._returned)(conversation, record, event, path)
        except Misshapen as error:
            record.bad(error.code, error.message, (*path, *error.path), help=error.help)

    def _said(self, record: Record, event: dict[str, Any], path: Path) -> None:
        content = _first(event, _CONTENT)
        if content is not None and not isinstance(content, (str, list)):
            raise Misshapen(f"a message must be text or a list, not {a_type(content)}")
        doing = self._going_on(record, event, path)
        if content is not None:
            doing.blocks.extend(content if isinstance(content, list) else [{"type": "text", "text": content}])

    def _called(self, record: Record, event: dict[str, Any], path: Path) -> None:
        name = _first(event, _NAME)
        if not isinstance(name, str):
            raise Misshapen("a `tool_call` has no `name`")
        doing = self._going_on(record, event, path)
        arguments, raw = read_arguments(_first(event, _ARGUMENTS))
        given = raw if arguments is None else arguments
        block = {"type": "tool_use", "id": _first(event, _CALL_ID), "name": name, "input": given}
        doing.blocks.append(block)
        doing.uses.append(block)
        doing.arguments.append((arguments, raw))
        doing.places.append(record.locator(item_of(path)))

    def _going_on(self, record: Record, event: dict[str, Any], path: Path) -> _Doing:
        if self._doing is None:
            self._doing = _Doing(record, path, time_of(event))
        return self._doing

    def _respond(self, conversation: Conversation) -> None:
        """What the agent did since it last heard something is one response."""
        doing, self._doing = self._doing, None
        if doing is None:
            return
        source = doing.record.locator(item_of(doing.path))
        calls, shared = calls_in(
            doing.uses, conversation.origin, conversation.turn, doing.at, source, doing.arguments, doing.places
        )
        for call_id in shared:
            doing.record.warn("duplicate-call-id", SHARED_ID.format(call_id), doing.path)
        content, text, _ = read_content(doing.blocks)
        conversation.answered(Answer(content=content, text=text, calls=calls, at=doing.at, source=source))
        conversation.said({"role": "assistant", "content": content if calls else text})

    def _heard(self, conversation: Conversation, record: Record, event: dict[str, Any], path: Path) -> None:
        message = {"role": "user", "content": _first(event, _CONTENT)}
        conversation.heard(message, record.locator(item_of(path)))

    def _returned(self, conversation: Conversation, record: Record, event: dict[str, Any], path: Path) -> None:
        call_id, name, content = _first(event, _CALL_ID), _first(event, _NAME), _first(event, _RESULT)
        source, is_error = record.locator(item_of(path)), event.get("is_error")
        conversation.result(
            ToolResult(
                origin=conversation.origin,
                at=time_of(event),
                source=source,
                call_id=None if call_id is None else str(call_id),
                name=name if isinstance(name, str) else None,
                content=content,
                is_error=is_error if isinstance(is_error, bool) else None,
            )
        )
        conversation.heard({"role": "tool", "name": name, "content": content}, source)


def _kind(event: Any) -> str:
    if not isinstance(event, dict):
        raise Misshapen(f"an event is an object, not {a_type(event)}")
    kind = event.get("type")
    if not isinstance(kind, str):
        raise Misshapen("an event has no `type`", ("type",) if kind is not None else ())
    if kind not in KINDS:
        raise Misshapen(f"unknown event type `{kind}`", ("type",), code="unknown-kind", help=near(kind, KINDS))
    return kind


def _first(event: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return next((event[key] for key in keys if key in event), None)
