"""What OpenAI's Responses API takes and gives: flat items, or whole responses with their `output`.

Reads the Responses API: whole responses, each a turn, or flat items.

Nothing in a list of items says where a response ends, so what the model gave without hearing anything in between is
one. Responses are of one session where they name the same conversation, or each other as the previous one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import Struct

from bylaw.model.events import Annotation, Deferred, ToolResult
from bylaw.model.source import Locator
from bylaw.traces.assembly.content import calls_in, read_content
from bylaw.traces.assembly.conversation import Answer, Conversation, Settings
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.chat import PARAMS
from bylaw.traces.formats.chat_message import Misshapen, Path, Result, item_of, text_field, time_of
from bylaw.traces.formats.reader import ConversationReader
from bylaw.traces.formats.record import Record, near
from bylaw.traces.formats.responses_items import (
    HEARD,
    KINDS,
    MARKS,
    SAID,
    Given,
    add_said,
    inline_result,
    is_said,
    kind_of,
    message_of,
    messages_of,
    output_of,
)
from bylaw.traces.records.jsontext import Kept, decode_whole
from bylaw.traces.records.problems import Problems

_SAMPLED = 50
_MOST_CHAINED = 100_000
_SURE = SAID | HEARD | MARKS


def claims(value: Any) -> bool:
    """Items that only this API has, or a whole response. Bare messages look like a chat and are read as one."""
    if isinstance(value, list):
        return any(isinstance(item, dict) and text_field(item, "type") in _SURE for item in value[:_SAMPLED])
    if not isinstance(value, dict):
        return False
    if _response_in(value) is not None:
        return True
    return text_field(value, "type") in _SURE and not isinstance(value.get("span_data"), dict)


def _response_in(value: dict[str, Any]) -> tuple[dict[str, Any], Any, Path] | None:
    """The response, its input, and where it stands, whatever is around it."""
    for path in ((), ("response",), ("body",), ("response", "body")):
        held: Any = value
        for step in path:
            held = held.get(step) if isinstance(held, dict) else None
        if isinstance(held, dict) and held.get("object") == "response" and isinstance(held.get("output"), list):
            asked = value.get("request")
            asked = asked if isinstance(asked, dict) else value
            return held, asked.get("input", held.get("input")), path
    return None


class _Saying(Struct, eq=False):
    """The response that is being put together."""

    record: Record
    path: Path
    given: Given
    results: list[Result] = []


class ResponsesReader(ConversationReader):
    kept: ClassVar[Kept | None] = {"request": frozenset(("input",)), "response": frozenset(("input",))}

    def __init__(self, problems: Problems, streamed: Callable[[], bool]) -> None:
        super().__init__(problems, streamed)
        self._saying: _Saying | None = None
        self._chains: dict[str, str] = {}
        """the session of each response, by its id"""

    def read_record(self, record: Record) -> None:
        value = record.value
        found = _response_in(value) if isinstance(value, dict) else None
        if found is not None:
            self._response(record, *found)
            return
        items = value.get("items", value.get("input")) if isinstance(value, dict) else value
        if isinstance(items, list):
            path: Path = ("items" if "items" in value else "input",) if isinstance(value, dict) else ()
            self._list(record, items, path, text_field(value, "id") if isinstance(value, dict) else None)
            return
        conversation = self._continue(record)
        self._item(conversation, record, value, ())
        self._cut = self._cut or conversation.cut

    def _list(self, record: Record, items: list[Any], path: Path, session: str | None) -> None:
        self._close()
        conversation = self._begin(session, Settings(), None, record, bounded=False)
        for index, item in enumerate(items):
            self._item(conversation, record, item, (*path, index))
        self._respond(conversation)
        conversation.end()

    def _close(self) -> None:
        if self._open is not None:
            self._respond(self._open)
        super()._close()

    # Items

    def _item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        try:
            kind = kind_of(item)
            if is_said(item, kind):
                saying = self._saying = self._saying or _Saying(record, path, Given())
                _say(saying, item, kind)
                return
            self._respond(conversation)
            if kind not in (*KINDS, "message"):
                raise Misshapen(f"unknown item type `{kind}`", ("type",), code="unknown-kind", help=near(kind, KINDS))
        except Misshapen as error:
            record.bad(error.code, error.message, (*path, *error.path), help=error.help)
            return
        source = record.locator(item_of(path))
        if kind in MARKS:
            self._mark(conversation, item, kind, source)
            return
        if kind in HEARD:
            _tell(conversation, output_of(item), time_of(item), source)
        conversation.heard(message_of(item), source)

    def _respond(self, conversation: Conversation) -> None:
        """What the model gave since it last heard something is one response."""
        saying, self._saying = self._saying, None
        if saying is not None:
            self._answer(conversation, saying, {})
            conversation.said({"role": "assistant", "content": saying.given.blocks})

    # Whole responses

    def _response(self, record: Record, response: dict[str, Any], asked: Any, path: Path) -> None:
        self._close()
        session = self._session(response)
        lane = self._assembler.lane(session)
        source = record.locator(item_of(path))
        params = {key: response[key] for key in PARAMS if response.get(key) is not None}
        tools = response.get("tools")
        settings = Settings(params=params or None, tools=tools if isinstance(tools, list) and tools else None)
        conversation = Conversation(self._assembler, lane, settings, bounded=True)
        if any(not known.answered for known in lane.calls.values()):
            asked = decode_whole(asked)
            for item in asked if isinstance(asked, list) else ():
                if isinstance(item, dict) and text_field(item, "type") in HEARD:
                    known = lane.calls.get(output_of(item).call_id or "")
                    if known is not None and not known.answered:
                        _tell(conversation, output_of(item), time_of(item), source)
        orders = text_field(response, "instructions")
        conversation.asked(None if asked is orders is None else Deferred(_messages, (orders, asked)), source)
        saying = _Saying(record, path, Given())
        for index, item in enumerate(response["output"]):
            try:
                kind = kind_of(item)
                if is_said(item, kind):
                    _say(saying, item, kind)
                else:
                    self._mark(conversation, item, kind, source)
            except Misshapen as error:
                record.bad(error.code, error.message, (*path, "output", index, *error.path), help=error.help)
        self._answer(conversation, saying, response)

    def _session(self, response: dict[str, Any]) -> str:
        named, own = response.get("conversation"), text_field(response, "id")
        session = named if isinstance(named, str) else named.get("id") if isinstance(named, dict) else None
        if not isinstance(session, str):
            before = text_field(response, "previous_response_id")
            session = self._chains.get(before, before) if before is not None else own or "1"
        if own is not None:
            self._chains[own] = session
            if len(self._chains) > _MOST_CHAINED:
                del self._chains[next(iter(self._chains))]
        return session

    # Both

    def _answer(self, conversation: Conversation, saying: _Saying, response: dict[str, Any]) -> None:
        record, source, at = saying.record, saying.record.locator(item_of(saying.path)), time_of(response)
        given = saying.given
        calls, shared = calls_in(given.uses, conversation.origin, conversation.turn, at, source, given.arguments)
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id), saying.path)
        content, text, _ = read_content(given.blocks)
        model = text_field(response, "model")
        usage, unread = read_usage(response.get("usage"), None)
        for problem in unread:
            record.warn("bad-usage", problem, (*saying.path, "usage"))
        conversation.answered(
            Answer(
                content=content,
                text=text,
                calls=calls,
                at=at,
                source=source,
                model=model,
                stop_reason=_stop_reason(response),
                usage=usage,
            )
        )
        for result in saying.results:
            _tell(conversation, result, at, source)

    def _mark(self, conversation: Conversation, item: dict[str, Any], kind: str, source: Locator) -> None:
        self._assembler.add(Annotation(origin=conversation.origin, source=source, label=kind, data=item))


def _messages(held: tuple[str | None, Any]) -> list[dict[str, Any]] | None:
    """What a response was asked: its instructions, and its input as it was recorded."""
    orders, asked = held
    messages = messages_of(decode_whole(asked))
    return messages if orders is None else [{"role": "system", "content": orders}, *(messages or ())]


def _say(saying: _Saying, item: dict[str, Any], kind: str) -> None:
    add_said(item, kind, saying.given)
    result = inline_result(item, kind)
    if result is not None:
        saying.results.append(result)


def _tell(conversation: Conversation, result: Result, at: str | float | None, source: Locator) -> None:
    conversation.result(
        ToolResult(
            origin=conversation.origin,
            at=at,
            source=source,
            call_id=result.call_id,
            content=result.content,
            is_error=result.is_error,
        )
    )


def _stop_reason(response: dict[str, Any]) -> str | None:
    """Why it ended, where it did not end by itself; else how it stands."""
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason if isinstance(reason, str) else text_field(response, "status")
