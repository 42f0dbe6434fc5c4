"""Chat messages as OpenAI and Anthropic write them: one per record, lists of them, or objects that hold a list.

One reader understands both, because real files mix them. Event logs become chats too: see `GatheringReader`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.canonical import json_type
from bylaw.model.events import Locator, Origin, ToolCall, Usage
from bylaw.traces.assembly.content import EVERYTHING, read_arguments
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.bodies import PARAMS
from bylaw.traces.formats.call_signs import UNREAD_CALL, looks_like_call
from bylaw.traces.formats.chat_message import ASSISTANT, item_of, read_assistant, results_in, role_of, time_of, unwrap
from bylaw.traces.formats.messages import chat_message, is_framework_message
from bylaw.traces.formats.reader import ConversationReader, OpenedFile, add_answer
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field, type_name

_IDS = ("session_id", "id", "conversation_id")
_PARTS = frozenset(("blocks", "items", "parts"))
"""what frameworks have instead of `content`, or beside it"""
_RENAMED = frozenset(("toolCalls", "toolCallId", "toolInvocations", "additional_kwargs"))
"""where some libraries store calls and their ids: Mistral's and Vercel's in JavaScript, older ones of LlamaIndex"""
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

    def read_items(self, conversation: Conversation, record: Record, items: list[Any], start: int, path: Path) -> None:
        """Read the messages that are plain, as most are, by the short way, and all others with `read_item`."""
        is_plain_chat = type(self).read_item is ChatReader.read_item
        file, line, before = self._problems.file, record.line, f"{record.item}{item_of(path)}[".removeprefix(".")
        for index in range(start, len(items)):
            message = items[index]
            if not is_plain_chat or not add_plain_message(
                conversation, message, Locator(file, line, f"{before}{index}]")
            ):
                self.read_item(conversation, record, message, (*path, index))

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
            elif type(message) is dict and not _RENAMED.isdisjoint(message):
                message = _rename_keys(message)
            if type(message) is dict and not _PARTS.isdisjoint(message) and is_framework_message(message):
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
        for result in results_in(message):
            conversation.add_read_result(result, source, time_of(message))

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


def _rename_keys(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its calls, or the id of the call that it answers, where other libraries store them."""
    extra = object_field(message, "additional_kwargs")
    invoked = list_field(message, "toolInvocations")
    calls = list_field(message, "toolCalls") or list_field(extra, "tool_calls")
    call_id = text_field(message, "toolCallId") or text_field(extra, "tool_call_id")
    if message.get("role") == "tool":
        return {**message, "tool_call_id": message.get("tool_call_id") or call_id}
    if invoked and not message.get("parts"):
        parts = [{"type": "tool-invocation", "toolInvocation": one} for one in invoked]
        said = [{"type": "text", "text": message["content"]}] if message.get("content") else []
        return {**message, "parts": [*parts, *said]}
    is_usual = all(isinstance(one, dict) and text_field(object_field(one, "function"), "name") for one in calls)
    return {**message, "tool_calls": calls} if calls and is_usual and not message.get("tool_calls") else message


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


# A message of the usual shape, read the short way: the hot path of all chats in lists. `read_item` reads the same
# messages to the same events, and all others: what is unusual is left to it before anything of the message was added.

_ASKING = ("user", "system")


def add_plain_message(conversation: Conversation, message: Any, source: Locator) -> bool:
    """Whether the message was read. Keys are counted: those that are not asked for make it unusual."""
    if type(message) is not dict:
        return False
    role, content, others = message.get("role"), message.get("content"), len(message) - 2
    if role == "assistant":
        if type(content) is str:
            recorded = message.get("tool_calls")
            if others and (others > 1 or "tool_calls" not in message):
                return False
        elif content is None and len(message) == ("content" in message) + 2 and "tool_calls" in message:
            recorded = message["tool_calls"]
        else:
            return False
        return _add_answer(conversation, message, content, recorded, source)
    if type(content) is not str:
        return False
    if role == "tool":
        call_id, name = message.get("tool_call_id"), message.get("name")
        if type(call_id) is not str or not (name is None or type(name) is str) or others != 1 + ("name" in message):
            return False
        conversation.add_input(message, source)
        conversation.add_result(source, None, call_id, content, name=name)
        return True
    if role in _ASKING and not others:
        conversation.add_input(message, source)
        return True
    return False


def _add_answer(
    conversation: Conversation, message: dict[str, Any], content: str | None, recorded: Any, source: Locator
) -> bool:
    blocks = [{"type": "text", "text": content}] if content else []
    calls: tuple[ToolCall, ...] = ()
    if recorded is not None and type(recorded) is not list:
        return False
    if recorded:
        found = _calls(recorded, blocks, conversation.origin, conversation.turn, source)
        if found is None:
            return False
        calls = tuple(found.values())
    elif content is None:
        return False
    conversation.add_plain_answer(source, message, blocks, content or "", calls)
    return True


def _calls(
    recorded: list[Any], blocks: list[dict[str, Any]], origin: Origin, turn: int, source: Locator
) -> dict[str, ToolCall] | None:
    """The calls by their ids, which are added to the blocks; None if any of them is unusual."""
    group = turn if len(recorded) > 1 else None
    calls: dict[str, ToolCall] = {}
    for call in recorded:
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict:
            return None
        name, call_id, given = function.get("name"), call.get("id"), function.get("arguments")
        if (
            type(name) is not str
            or type(call_id) is not str
            or not call_id
            or call_id in calls
            or type(given) is not str
        ):
            return None
        arguments, raw = read_arguments(given)
        calls[call_id] = ToolCall(
            origin=origin,
            turn=turn,
            source=source,
            name=name,
            call_id=call_id,
            arguments=arguments,
            raw_arguments=raw,
            group=group,
        )
        input = raw if arguments is None else arguments
        blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": input})
    return calls


# Event logs: each event becomes chat messages, and several events may be one answer


class AnswerPart(Struct):
    """A message, or one part of the answer with this key."""

    message: dict[str, Any]
    key: str | None = None
    """of an answer of which more may follow"""
    agent: str | None = None


class _Pending(Struct):
    part: AnswerPart
    record: Record
    path: Path


class GatheringReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._pending: _Pending | None = None

    @abstractmethod
    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        """Read an event. Raises MalformedRecord."""

    def read_record(self, record: Record) -> None:
        if isinstance(record.value, list):
            self.read_list(record, record.value, (), None)
        else:
            self.read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        try:
            if not isinstance(item, dict):
                raise MalformedRecord(f"an event is an object, not {type_name(item)}")
            for part in self.parts_of(item):
                self._add(conversation, _Pending(part, record, path))
        except MalformedRecord as error:
            record.malformed(error, path)

    def _add(self, conversation: Conversation, new: _Pending) -> None:
        part, pending = new.part, self._pending
        if part.message.get("role") != ASSISTANT:
            self.end_answer(conversation)
            self._read(conversation, new)
            return
        known = None if pending is None else pending.part
        if known is not None and None is not part.key == known.key and known.agent == part.agent:
            known.message = join_parts(known.message, part.message)
            return
        self.end_answer(conversation)
        if part.key is None:
            self._read(conversation, new)
        else:
            self._pending = new

    def end_answer(self, conversation: Conversation) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._read(conversation, pending)

    def _read(self, conversation: Conversation, one: _Pending) -> None:
        if one.part.agent is not None:
            conversation.speak_as(one.part.agent)
        super().read_item(conversation, one.record, one.part.message, one.path)


def join_parts(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two parts of one answer. What is not content is the same in both, or was recorded with one of them."""
    joined = {**first, **{key: value for key, value in second.items() if value is not None}}
    blocks = [*blocks_of(first.get("content"))]
    for block in blocks_of(second.get("content")):
        last = blocks[-1] if blocks else None
        if is_text(block) and is_text(last):
            blocks[-1] = {**last, "text": last["text"] + block["text"]}  # a text in pieces
        else:
            blocks.append(block)
    calls = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    return {**joined, "content": blocks, **({"tool_calls": calls} if calls else {})}


def blocks_of(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [] if content is None or content == "" else [{"type": "text", "text": content}]


def is_text(block: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def call_of(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in the shape of a chat."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
