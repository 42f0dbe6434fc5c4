"""AutoGen: results of tasks, messages of a team one by one, and saved states of agents and teams."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from bylaw.traces.assembly.content import CODE_EXECUTION
from bylaw.traces.assembly.conversation import MOST_MESSAGES, Conversation
from bylaw.traces.formats.call_signs import looks_like_call
from bylaw.traces.formats.chat import AnswerPart, GatheringReader, call_of
from bylaw.traces.formats.reader import OpenedFile, remember
from bylaw.traces.formats.record import MalformedRecord, Record, list_field, object_field, text_field

_THOUGHT, _REQUEST, _EXECUTION = "ThoughtEvent", "ToolCallRequestEvent", "ToolCallExecutionEvent"
_SUMMARY = "ToolCallSummaryMessage"
_CHUNK = "ModelClientStreamingChunkEvent"
_CODE, _CODE_RESULT = "CodeGenerationEvent", "CodeExecutionEvent"
_QUIET = frozenset(
    (_SUMMARY, "HandoffMessage", _CHUNK, "MemoryQueryEvent", "SelectSpeakerEvent", "SelectorEvent",
     "UserInputRequestedEvent")
)  # fmt: skip
"""types that tell how the team works, or repeat results"""
_TEXTS = frozenset(("TextMessage", "MultiModalMessage", "StructuredMessage", "StopMessage"))
_OWN = frozenset((_THOUGHT, _REQUEST, _EXECUTION, _SUMMARY, "FunctionExecutionResultMessage"))
"""types that no other framework has"""
_MOST_LEVELS = 9
"""teams inside agents of teams"""


def claims(value: Any) -> bool:
    if isinstance(value, list):
        return _are_messages(value)
    if not isinstance(value, dict):
        return False
    return _are_messages([value]) or any(_are_messages(messages) for _, messages in _conversations(value))


def _are_messages(values: list[Any]) -> bool:
    head = values[:20]
    return bool(head) and all(map(_is_message, head))


def _is_message(value: Any) -> bool:
    kind = text_field(value, "type") if isinstance(value, dict) else None
    if kind is None or "role" in value or ("content" not in value and kind != _CODE_RESULT):
        return False
    is_named = isinstance(value.get("source"), str) and kind.partition("[")[0].endswith(("Message", "Event"))
    return kind in _OWN or is_named


def _conversations(value: dict[str, Any], level: int = 0) -> Iterator[tuple[str | None, list[Any]]]:
    """The conversations in a result or a state: that of a team, or those of its agents."""
    if isinstance(value.get("messages"), list):
        yield None, value["messages"]
    context = object_field(value, "llm_context") or object_field(value, "model_context")
    if isinstance(context.get("messages"), list):
        yield None, context["messages"]
    team = object_field(value, "inner_team_state") or value
    states = object_field(team, "agent_states") if level < _MOST_LEVELS else {}
    agents = [
        (name.partition("/")[0], messages)
        for name, state in states.items()
        for _, messages in _conversations(object_field(state, "agent_state"), level + 1)
    ]
    calls = sum(_calls_in(messages) for _, messages in agents)
    threads = (list_field(state, "message_thread") for state in states.values())
    whole = next((thread for thread in threads if thread and _calls_in(thread) >= calls), None)
    yield from agents if whole is None else [(None, whole)]  # older teams keep calls only in the states of their agents


def _calls_in(messages: list[Any]) -> int:
    calls = (one for one in messages if isinstance(one, dict) and one.get("type") in (_REQUEST, "AssistantMessage"))
    return sum(len(list_field(one, "content")) for one in calls)


class AutoGenReader(GatheringReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._streamed: deque[Any] = deque(maxlen=MOST_MESSAGES)
        """messages that were a record each: the result that ends a stream repeats them"""
        self._seen: dict[bytes, None] = {}
        """calls and results, which summaries repeat"""

    def _begin(self, *args: Any, **options: Any) -> Conversation:
        self._seen = {}
        return super()._begin(*args, **options)

    def read_record(self, record: Record) -> None:
        value = record.value
        found = [*_conversations(value)] if isinstance(value, dict) and "content" not in value else []
        reason = value.get("stop_reason") if found else None
        if not found and isinstance(value, dict) and value.get("type") != _CHUNK:
            self._streamed.append(value)
        messages = found[0][1] if len(found) == 1 else []
        if messages and messages == list(self._streamed)[-len(messages) :]:
            self._streamed.clear()
            return
        for name, messages in found:
            metadata = {"stop_reason": reason} if isinstance(reason, str) else None
            self.read_list(record, messages, ("messages",), name, metadata=metadata)
        if not found:
            super().read_record(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        kind, source, content = text_field(event, "type"), text_field(event, "source"), event.get("content")
        if kind is None:
            raise MalformedRecord("a message has no `type`")
        kind = kind.partition("[")[0]  # `StructuredMessage[Reply]` names the type of its content
        outer = {"timestamp": event.get("created_at"), "usage": event.get("models_usage")}
        answer = {"role": "assistant", **outer}
        if kind == _THOUGHT:
            yield AnswerPart({**answer, "content": [{"type": "thinking", "text": content}]}, source or "", source)
        elif kind == _SUMMARY:
            calls, results = self._new_of(list_field(event, "tool_calls")), self._new_of(list_field(event, "results"))
            if calls:
                yield from self._whole({**answer, "content": [], "tool_calls": [_call(one) for one in calls]}, source)
            yield from (AnswerPart(_result(one, outer["timestamp"]), None, source) for one in results)
        elif kind == _REQUEST or (kind == "AssistantMessage" and isinstance(content, list)):
            self._new_of(_listed(content))
            thought = event.get("thought")
            blocks = [{"type": "thinking", "text": thought}] if isinstance(thought, str) else []
            yield from self._whole(
                {**answer, "content": blocks, "tool_calls": [_call(one) for one in _listed(content)]}, source
            )
        elif kind in (_EXECUTION, "FunctionExecutionResultMessage"):
            self._new_of(_listed(content))
            yield from (AnswerPart(_result(one, outer["timestamp"]), None, source) for one in _listed(content))
        elif kind == "AssistantMessage" or (kind in _TEXTS and not _is_user(source)):
            yield from self._whole({**answer, "content": _text(content)}, source)
        elif kind in ("UserMessage", "SystemMessage", *_TEXTS):
            role = "system" if kind == "SystemMessage" else "user"
            yield AnswerPart({"role": role, "content": _text(content), "timestamp": outer["timestamp"]})
        elif kind == _CODE:
            blocks = list_field(event, "code_blocks")
            calls = [call_of(None, CODE_EXECUTION, {"code_blocks": blocks})] if blocks else []
            yield from self._whole({**answer, "content": _text(content), "tool_calls": calls}, source)
        elif kind == _CODE_RESULT:
            result = object_field(event, "result")
            failed = result.get("exit_code") != 0 if isinstance(result.get("exit_code"), int) else None
            yield AnswerPart(
                {"role": "tool", "name": CODE_EXECUTION, "content": result.get("output"), "is_error": failed},
                None,
                source,
            )
        elif kind not in _QUIET and (_holds_objects(content) or looks_like_call(event)):
            yield from self._whole(
                {**answer, "content": [{"type": kind, "content": content}]}, source
            )  # reported as unread

    def _new_of(self, values: list[Any]) -> list[Any]:
        """The calls or results that were not read before."""
        keys = [msgspec.json.encode(value, order="deterministic") for value in values]
        new = [value for value, key in zip(values, keys, strict=True) if key not in self._seen]
        for key in keys:
            remember(self._seen, key, None)
        return new

    def _whole(self, message: dict[str, Any], source: str | None) -> Iterator[AnswerPart]:
        """An answer of which no more follows; a thought before it is part of it."""
        pending = self._pending
        joins = pending is not None and pending.part.agent == source
        yield AnswerPart(message, pending.part.key if joins and pending is not None else None, source)
        if joins and self._pending is not None:
            self._pending.part.key = None


def _is_user(source: str | None) -> bool:
    return source is not None and (source.lower().startswith("user") or source.lower().endswith("user_proxy"))


def _holds_objects(content: Any) -> bool:
    return isinstance(content, dict) or (isinstance(content, list) and any(isinstance(one, dict) for one in content))


def _listed(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise MalformedRecord("the `content` of calls and results is a list", ("content",))
    return content


def _text(content: Any) -> Any:
    return content if isinstance(content, (str, list)) or content is None else msgspec.json.encode(content).decode()


def _call(call: Any) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise MalformedRecord("a call is an object", ("content",))
    return call_of(call.get("id"), call.get("name"), call.get("arguments"))


def _result(result: Any, at: Any) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise MalformedRecord("a result is an object", ("content",))
    fields = {"content": result.get("content"), "is_error": result.get("is_error"), "timestamp": at}
    return {"role": "tool", "tool_call_id": text_field(result, "call_id"), "name": text_field(result, "name"), **fields}
