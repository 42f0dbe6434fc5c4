"""OpenAI's Responses API: whole responses, each a turn, or flat items.

A list of items does not mark where a response ends, so all that the model gave between two inputs is one response.
Whole responses among items are answers of the same conversation. Other responses
belong to one session if they name the same conversation, or each other as the previous response.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from bylaw.model.events import Deferred
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import AssistantContent
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.session_buffer import SessionBuffer
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bodies import PARAMS, add_results_of_request
from bylaw.traces.formats.chat_message import item_of, time_of
from bylaw.traces.formats.reader import ConversationReader, OpenedFile, PendingAnswer, add_answer
from bylaw.traces.formats.record import MalformedRecord, Path, Record, object_field, text_field
from bylaw.traces.formats.responses_items import (
    MARKS,
    RESULTS,
    add_output,
    is_item,
    is_output,
    is_part,
    kind_of,
    message_of,
    messages_of,
    output_of,
)
from bylaw.traces.records.jsontext import Undecoded, decode_whole

_SAMPLED = 50
_LISTS = ("items", "input", "data")
_MOST_CHAINED = 100_000


def claims(value: Any) -> bool:
    """Items that only this API has, or a whole response. Bare messages look like a chat and are read as one."""
    if isinstance(value, dict) and value.get("object") == "list":  # a page of the API
        value = value.get("data")
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and _response_in(value[0]) is not None:
            return True
        return any(map(is_item, value[:_SAMPLED]))
    if not isinstance(value, dict) or isinstance(value.get("request"), dict):
        return False
    if _response_in(value) is not None:
        return True
    return is_item(value) and not isinstance(value.get("span_data"), dict)


def _response_in(value: dict[str, Any]) -> tuple[dict[str, Any], Any, Path] | None:
    """The response, its input, and its path, if the record holds or wraps one. Events of a stream wrap parts of one."""
    if isinstance(kind := value.get("type"), str) and kind.startswith("response."):
        return None
    for path in ((), ("response",), ("body",), ("response", "body")):
        found: Any = value
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, dict) and found.get("object") == "response" and isinstance(found.get("output"), list):
            request = value.get("request")
            request = request if isinstance(request, dict) else value
            return found, request.get("input", found.get("input")), path
    return None


def _conversation_id(response: dict[str, Any]) -> str | None:
    named = response.get("conversation")
    return named if isinstance(named, str) else text_field(named, "id") if isinstance(named, dict) else None


class _LatestResponse(Struct, eq=False):
    """The latest whole response: items may follow it."""

    assembler: Assembler
    buffer: SessionBuffer
    settings: Settings
    input: tuple[str | None, Any]
    answer: AssistantContent

    def continued(self) -> Conversation:
        """The conversation of which this response is the latest part."""
        conversation = Conversation(self.assembler, self.buffer, self.settings, bounded=True)
        for message in _messages(self.input) or ():
            conversation.add_message(message)
        conversation.add_message({"role": "assistant", "content": self.answer.blocks})
        return conversation


class ResponsesReader(ConversationReader):
    undecoded: ClassVar[Undecoded | None] = {"request": frozenset(("input",)), "response": frozenset(("input",))}

    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._pending: PendingAnswer | None = None
        self._chains: dict[str, str] = {}
        """the session of each response, by its id"""
        self._named: dict[str, str] = {}
        """the conversation that the responses of a session name"""
        self._answered: _LatestResponse | None = None

    def read_record(self, record: Record) -> None:
        value = record.value
        found = _response_in(value) if isinstance(value, dict) else None
        if found is not None:
            if self._joins(found[0], found[1]):
                self.read_open(record)
            else:
                self._read_response(record, *found)
            return
        key = next((key for key in _LISTS if isinstance(value, dict) and key in value), None)
        items = value if key is None else value[key]
        if not isinstance(items, list):
            self.read_open(record)
            return
        path: Path = () if key is None else (key,)
        whole = [_response_in(item) if isinstance(item, dict) else None for item in items]
        if items and None not in whole:
            for index, one in enumerate(whole):
                assert one is not None
                self._read_response(record, one[0], one[1], (*path, index, *one[2]))
        else:
            self.read_list(record, items, path, None if key is None else text_field(value, "id"))

    # Items

    def read_open(self, record: Record) -> None:
        if self._open is None and self._answered is not None:
            self._open, self._answered = self._answered.continued(), None  # the item answers this response
        super().read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        if isinstance(item, dict) and "type" not in item and (found := _response_in(item)) is not None:
            self.end_answer(conversation)
            self._name(found[0], conversation.origin.session)
            pending = self._collect(conversation, record, found[0], (*path, *found[2]))
            self._add_answer(conversation, pending, found[0])
            conversation.add_message({"role": "assistant", "content": pending.answer.blocks})
            return
        try:
            kind = kind_of(item)
            if is_output(item, kind):
                pending = self._pending = self._pending or PendingAnswer(record, path)
                add_output(item, kind, pending.answer)
                return
        except MalformedRecord as error:
            record.malformed(error, path)
            return
        self.end_answer(conversation)
        source = record.locator(item_of(path))
        if kind in MARKS:
            self._annotate(conversation.origin, source, kind, item)
            return
        if kind in RESULTS:
            result = output_of(item)
            conversation.add_result(source, time_of(item), result.call_id, result.content, is_error=result.is_error)
        conversation.add_input(message_of(item), source)

    def end_answer(self, conversation: Conversation) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._add_answer(conversation, pending, {})
            conversation.add_message({"role": "assistant", "content": pending.answer.blocks})

    # Whole responses

    def _read_response(self, record: Record, response: dict[str, Any], input: Any, path: Path) -> None:
        self._close()
        buffer = self._assembler.session(self._session(response))
        source = record.locator(item_of(path))
        params = {key: response[key] for key in PARAMS if response.get(key) is not None}
        tools = response.get("tools")
        settings = Settings(params=params or None, tools=tools if isinstance(tools, list) and tools else None)
        conversation = Conversation(self._assembler, buffer, settings, bounded=True)
        if buffer.turn is None or buffer.is_waiting:
            input = decode_whole(input)
            add_results_of_request(self._assembler, buffer, input if isinstance(input, list) else (), source)
        instructions = text_field(response, "instructions")
        has_input = input is not None or instructions is not None
        conversation.set_input(Deferred(_messages, (instructions, input)) if has_input else None, source)
        pending = self._collect(conversation, record, response, path)
        self._add_answer(conversation, pending, response)
        self._answered = _LatestResponse(self._assembler, buffer, settings, (instructions, input), pending.answer)

    def _collect(
        self, conversation: Conversation, record: Record, response: dict[str, Any], path: Path
    ) -> PendingAnswer:
        """The answer in the output of a response."""
        source = record.locator(item_of(path))
        pending = PendingAnswer(record, path)
        for index, item in enumerate(response["output"]):
            try:
                kind = kind_of(item)
                if is_part(item, kind):
                    add_output(item, kind, pending.answer)
                else:
                    self._annotate(conversation.origin, source, kind, item)
            except MalformedRecord as error:
                record.malformed(error, (*path, "output", index))
        return pending

    def _joins(self, response: dict[str, Any], input: Any) -> bool:
        """Whether a response answers the items before it: it has no input of its own, and names no other session."""
        if self._open is None or input is not None:
            return False
        session = self._open.origin.session
        named, before = _conversation_id(response), text_field(response, "previous_response_id")
        if named is not None and self._named.get(session, named) != named:
            return False
        return before is None or self._chains.get(before, session) == session

    def _session(self, response: dict[str, Any]) -> str:
        session = _conversation_id(response)
        if session is None:
            before = text_field(response, "previous_response_id")
            session = self._chains.get(before, before) if before is not None else text_field(response, "id") or "1"
        self._name(response, session)
        return session

    def _name(self, response: dict[str, Any], session: str) -> None:
        """Remember which session a response and its conversation belong to."""
        for known, key, name in (
            (self._chains, text_field(response, "id"), session),
            (self._named, session, _conversation_id(response)),
        ):
            if key is not None and name is not None:
                known[key] = name
                if len(known) > _MOST_CHAINED:
                    del known[next(iter(known))]

    def _add_answer(self, conversation: Conversation, pending: PendingAnswer, response: dict[str, Any]) -> None:
        record, path, at = pending.record, pending.path, time_of(response)
        source = record.locator(item_of(path))
        usage, unread = read_usage(response.get("usage"), None)
        for problem in unread:
            record.warn("bad-usage", problem, (*path, "usage"))
        reason = object_field(response, "incomplete_details").get("reason")
        add_answer(
            conversation,
            record,
            pending.answer,
            source,
            path=path,
            at=at,
            model=text_field(response, "model"),
            stop_reason=reason if isinstance(reason, str) else text_field(response, "status"),
            usage=usage,
        )


def _messages(recorded: tuple[str | None, Any]) -> list[dict[str, Any]] | None:
    """The input of a response: its instructions, and its input as it was recorded."""
    instructions, input = recorded
    messages = messages_of(decode_whole(input))
    return messages if instructions is None else [{"role": "system", "content": instructions}, *(messages or ())]
