"""Copilot: chat replays and chats of Visual Studio Code, and sessions of its command line.

A replay has for each prompt the requests to the model and the calls. A response holds its text only: the calls that it
issued are logged after it, each with what it returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.events import Event, Origin
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.chat import ChatReader, blocks_of, call_of, join_parts
from bylaw.traces.formats.chat_message import ASSISTANT, item_of
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.pairs import Pair, PairsReader
from bylaw.traces.formats.reader import OpenedFile, Reader
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field

_ROLES = ("system", "user", "assistant", "tool")
"""the roles that messages have as numbers"""
_TEXT = 1
_KINDS = frozenset(("element", "request", "toolCall"))
_OWN_SUFFIX = re.compile(r"__vscode-\d+$")
"""the suffix that the editor appends to the id of a call"""


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or is_chat(value):
        return isinstance(value, dict)
    if isinstance(value.get("prompts"), list):
        return any(isinstance(one, dict) and isinstance(one.get("logs"), list) for one in value["prompts"][:5])
    logs = list_field(value, "logs")
    return "prompt" in value and any(isinstance(one, dict) and text_field(one, "kind") in _KINDS for one in logs[:5])


def reader(opened: OpenedFile) -> Reader:
    first = parse_if_json(opened.first_record().decode(errors="replace"))
    is_stored = isinstance(first, dict) and "logs" not in first and "prompts" not in first
    return CopilotChatReader(opened) if is_stored else CopilotReader(opened)


class CopilotReader(PairsReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a replay"):
            return
        prompts = list_field(value, "prompts") or ([value] if "logs" in value else [])
        logs: list[tuple[Path, dict[str, Any]]] = []
        for index, prompt in enumerate(prompts):
            place: Path = ("prompts", index, "logs") if "prompts" in value else ("logs",)
            for number, log in enumerate(list_field(prompt, "logs")):
                if isinstance(log, dict) and log.get("kind") in ("request", "toolCall"):
                    logs.append(((*place, number), log))
                elif not isinstance(log, dict) or text_field(log, "kind") not in _KINDS:
                    record.bad("wrong-type", "an entry of the log has no known `kind`", (*place, number))
        self._logs(record, logs)

    def _logs(self, record: Record, logs: list[tuple[Path, dict[str, Any]]]) -> None:
        at = 0
        while at < len(logs):
            path, first = logs[at]
            end = at + 1
            while end < len(logs) and logs[end][1]["kind"] == "toolCall":
                end += 1
            calls = logs[at if first["kind"] == "toolCall" else at + 1 : end]
            try:
                self._turn(record, path, first if first["kind"] == "request" else {}, calls)
            except MalformedRecord as error:
                record.malformed(error, path)
            at = end

    def _turn(self, record: Record, path: Path, log: dict[str, Any], calls: list[tuple[Path, dict[str, Any]]]) -> None:
        metadata = object_field(log, "metadata")
        messages = [_message(message) for message in list_field(object_field(log, "requestMessages"), "messages")]
        body = {**object_field(metadata, "postOptions"), "model": metadata.get("model"), "messages": messages}
        body |= {"tools": metadata["tools"]} if isinstance(metadata.get("tools"), list) else {}
        about = {"startTime": metadata.get("startTime"), "endTime": metadata.get("endTime")}
        self._read(record, Pair(read_request(body), body, _answer(log, metadata, calls), about), path)
        conversation = Conversation(self._assembler, self._sessions.current, Settings(), bounded=True)
        for place, call in calls:
            if "response" in call or "error" in call:
                content = call.get("response", call.get("error"))
                only = content[0] if isinstance(content, list) and len(content) == 1 else content
                failed = True if call.get("error") else None
                source = record.locator(item_of(place))
                conversation.add_result(source, call.get("time"), _id(call), only, is_error=failed)


def _id(call: dict[str, Any]) -> str | None:
    found = text_field(call, "id")
    return None if found is None else _OWN_SUFFIX.sub("", found)


def _answer(
    log: dict[str, Any], metadata: dict[str, Any], calls: list[tuple[Path, dict[str, Any]]]
) -> dict[str, Any] | None:
    """The answer of a request; None if it failed, and nothing was called."""
    response = object_field(log, "response")
    message = response.get("message", response.get("value"))
    texts = message if isinstance(message, list) else [message]
    blocks = [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]
    if not calls and response.get("type") != "success" and not blocks:
        return None
    thoughts = [object_field(call, "thinking").get("text") for _, call in calls]
    thinking = [{"type": "thinking", "text": text} for text in thoughts if isinstance(text, str)]
    issued = [call_of(_id(call), text_field(call, "tool", "name"), call.get("args")) for _, call in calls]
    usage = metadata.get("usage")
    return {
        "role": "assistant",
        "content": [*thinking, *blocks],
        **({"tool_calls": issued} if issued else {}),
        "model": metadata.get("model"),
        "usage": usage if isinstance(usage, dict) else None,
        "finish_reason": text_field(response, "type"),
    }


def _message(message: Any) -> Any:
    """A message of a request as a chat message: its role and the types of its parts are numbers."""
    if not isinstance(message, dict):
        return message
    role, content = message.get("role"), message.get("content")
    known = _ROLES[role] if type(role) is int and 0 <= role < len(_ROLES) else role
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [{"type": "text", "text": part["text"]} for part in parts if part.get("type") == _TEXT and "text" in part]
    found = {"role": known, "content": texts if isinstance(content, list) else content}
    if isinstance(message.get("toolCalls"), list) and message["toolCalls"]:
        found["tool_calls"] = message["toolCalls"]
    if known == "tool":
        found["tool_call_id"] = message.get("toolCallId")
    return found


# Chats as Visual Studio Code stores and exports them: requests of the user, each with its rounds of calls. Newer
# versions store a journal: the session as it began, and one change a line.


_START, _SET, _PUSH, _DELETE = 0, 1, 2, 3
_INVOCATION = "toolInvocationSerialized"


def is_chat(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if type(value.get("kind")) is int and isinstance(value.get("v"), dict):
        return "requests" in value["v"] and value["kind"] == _START
    first = next(iter(list_field(value, "requests")), None)
    return isinstance(first, dict) and "requestId" in first and ("response" in first or "result" in first)


class CopilotChatReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._stored: dict[str, Any] | None = None
        self._last: Record | None = None

    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a chat, or a change of it,"):
            return
        if isinstance(value.get("requests"), list):
            self._chat(record, value)
        elif value.get("kind") == _START and isinstance(value.get("v"), dict):
            self._flush()
            self._stored, self._last = value["v"], record
        elif self._stored is None or not _apply(self._stored, value):
            record.bad("wrong-type", "this is no change of a chat that is stored before it")
        else:
            self._last = record

    def finish(self) -> list[Event]:
        self._flush()
        return super().finish()

    def _flush(self) -> None:
        if self._stored is not None and self._last is not None:
            self._chat(self._last, self._stored)
        self._stored = None

    def _chat(self, record: Record, chat: dict[str, Any]) -> None:
        self.read_list(record, list_field(chat, "requests"), ("requests",), text_field(chat, "sessionId"))

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        for message in _messages(item) if isinstance(item, dict) else [item]:
            super().read_item(conversation, record, message, path)


def _apply(target: Any, change: dict[str, Any]) -> bool:
    """Make a change of a stored chat; False if it cannot be made."""
    kind, steps = change.get("kind"), list_field(change, "k")
    for step in steps[:-1]:
        if not _has(target, step):
            return False
        target = target[step]
    last = steps[-1] if steps else None
    if (kind == _SET and isinstance(target, dict) and isinstance(last, str)) or (kind == _SET and _has(target, last)):
        target[last] = change.get("v")
    elif kind == _PUSH and isinstance(target, dict) and isinstance(last, str):
        known, start = list_field(target, last), change.get("i")
        target[last] = [*(known[:start] if type(start) is int else known), *list_field(change, "v")]
    elif kind == _DELETE and isinstance(target, dict) and isinstance(last, str):
        target.pop(last, None)
    else:
        return False
    return True


def _has(target: Any, step: Any) -> bool:
    if isinstance(target, list):
        return type(step) is int and 0 <= step < len(target)
    return isinstance(target, dict) and isinstance(step, str) and step in target


def _messages(request: dict[str, Any]) -> Iterator[Any]:
    at, said = request.get("timestamp"), request.get("message")
    yield {"role": "user", "content": said.get("text") if isinstance(said, dict) else said, "timestamp": at}
    about = object_field(object_field(request, "result"), "metadata")
    model = text_field(about, "resolvedModel") or text_field(request, "modelId")
    answered = {"role": "assistant", "timestamp": at, "model": model}
    returned, known = object_field(about, "toolCallResults"), set[str]()
    rounds = [one for one in list_field(about, "toolCallRounds") if isinstance(one, dict)]
    for one in rounds:
        calls = [call for call in list_field(one, "toolCalls") if isinstance(call, dict)]
        known |= {str(call.get("id")) for call in calls}
        issued = [call_of(call.get("id"), call.get("name"), call.get("arguments")) for call in calls]
        yield {**answered, "content": text_field(one, "response"), **({"tool_calls": issued} if issued else {})}
        for call in calls:
            if isinstance(result := returned.get(str(call.get("id"))), dict):
                content = result.get("content")
                shown = content if isinstance(content, list) else [content]
                values = [one.get("value", one) if isinstance(one, dict) else one for one in shown]
                only = values[0] if len(values) == 1 else values
                yield {"role": "tool", "tool_call_id": call.get("id"), "content": only}
    parts = [part for part in list_field(request, "response") if isinstance(part, dict)]
    others = [part for part in parts if part.get("kind") == _INVOCATION and str(part.get("toolCallId")) not in known]
    texts = "".join(part["value"] for part in parts if isinstance(part.get("value"), str) and "kind" not in part)
    if others or (texts and not rounds):  # what subagents called is in no round
        calls = [call_of(part.get("toolCallId"), part.get("toolId"), part.get("toolSpecificData")) for part in others]
        yield {**answered, "content": None if rounds else texts, **({"tool_calls": calls} if calls else {})}


# Copilot CLI's sessions: one event a line, with a `type`, its `data`, an id and the id of the event before it


_METADATA = ("copilotVersion", "producer", "context")
_OWN = frozenset(
    ("session.start", "user.message", "assistant.message", "assistant.turn_start", "tool.execution_start",
     "tool.execution_complete")
)  # fmt: skip
_STARTS = "tool.execution_start"
_SERVED = ("_call", "_tool_use")
"""how the types of calls end that the provider ran itself"""


def claims_cli(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("data"), dict) and text_field(value, "type") in _OWN


class CopilotCliReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._model: str | None = None
        self._agents: dict[str, str] = {}
        """the names of subagents, by the calls that started them, or by their ids"""
        self._issued: dict[str, str | None] = {}
        """which subagent issued a call"""
        self._pending: _Answer | None = None
        """an answer of which more follows, or with calls whose arguments are recorded only where they start"""
        self._by_user: set[str] = set()
        """calls that the user asked for, and not the model"""

    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, dict) and value.get("type") == "session.start":
            data = object_field(value, "data")
            metadata = {key: data[key] for key in _METADATA if key in data}
            self._close()
            name = text_field(data, "sessionId")
            self._open = self._begin(name, Settings(), metadata or None, record, bounded=self._records.streamed)
            self._agents, self._issued, self._by_user = {}, {}, set()
            self._model = text_field(data, "selectedModel")
        else:
            self.read_open(record)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        kind = text_field(item, "type") if isinstance(item, dict) else None
        if kind is None or not isinstance(item.get("data", {}), dict):
            record.malformed(MalformedRecord("an event is an object with a `type` and its `data`"), path)
            return
        data, call_id = object_field(item, "data"), text_field(object_field(item, "data"), "toolCallId")
        run = text_field(data, "parentToolCallId") or text_field(item, "agentId") or self._issued.get(call_id or "")
        if kind == "tool.user_requested" and call_id is not None:
            self._by_user.add(call_id)
        if call_id in self._by_user:
            return
        if kind == _STARTS and self._pending is not None and self._pending.fill(call_id, data.get("arguments")):
            return
        for message in self._messages(kind, data, item.get("timestamp"), run):
            part_of = text_field(data, "apiCallId") if type(data.get("chunkCount")) is int else None
            if part_of is not None and self._pending is not None and self._pending.part_of == part_of:
                self._pending.message = join_parts(self._pending.message, message)
                continue
            self.end_answer(conversation)
            one = _Answer(message, run, record, path, part_of)
            if message["role"] == ASSISTANT and (one.lacks_arguments or part_of is not None):
                self._pending = one
            else:
                self._read(conversation, one)

    def end_answer(self, conversation: Conversation) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._read(conversation, pending)

    def _read(self, conversation: Conversation, one: _Answer) -> None:
        above = None if one.run is None else Origin(conversation.origin.session)
        conversation.speak_as(self._agents.get(one.run or ""), one.run, above)
        super().read_item(conversation, one.record, one.message, one.path)

    def _messages(self, kind: str, data: dict[str, Any], at: Any, run: str | None) -> Iterator[dict[str, Any]]:
        call_id = text_field(data, "toolCallId")
        if kind in ("user.message", "system.message"):
            yield {"role": kind.partition(".")[0], "content": data.get("content"), "timestamp": at}
        elif kind == "assistant.message":
            requests = [one for one in list_field(data, "toolRequests") if isinstance(one, dict)]
            calls = [call_of(one.get("toolCallId"), one.get("name"), one.get("arguments")) for one in requests]
            self._issued |= {str(one.get("toolCallId")): run for one in requests}
            output, served = data.get("outputTokens"), object_field(data, "serverTools")
            blocks = [one for key in ("items", "rawContentBlocks") for one in list_field(served, key)]
            own = [one for one in blocks if isinstance(one, dict) and str(one.get("type")).endswith(_SERVED)]
            yield {
                "role": ASSISTANT,
                "content": [*blocks_of(data.get("content")), *own] if blocks else data.get("content"),
                "reasoning_content": text_field(data, "reasoningText"),
                **({"tool_calls": calls} if calls else {}),
                "timestamp": at,
                "model": text_field(data, "model") or self._model,
                "usage": {"output_tokens": output} if type(output) is int else None,
            }
        elif kind == _STARTS and call_id is not None and call_id not in self._issued:  # its answer was not recorded
            self._issued[call_id] = run
            call = call_of(call_id, text_field(data, "toolName"), data.get("arguments"))
            yield {"role": ASSISTANT, "content": None, "tool_calls": [call], "timestamp": at}
        elif kind == "tool.execution_complete":
            self._model = text_field(data, "model") or self._model
            yield _result(data, call_id, at)
        elif kind in ("subagent.started", "subagent.selected") and call_id is not None:
            self._agents[call_id] = text_field(data, "agentName", "agentDisplayName") or call_id
        elif kind == "session.model_change":
            self._model = text_field(data, "newModel") or self._model


class _Answer(Struct):
    message: dict[str, Any]
    run: str | None
    record: Record
    path: Path
    part_of: str | None = None
    """the response that was written in several messages, one before and one after each of its thoughts"""

    @property
    def lacks_arguments(self) -> bool:
        return any(call["function"]["arguments"] is None for call in self.message.get("tool_calls", ()))

    def fill(self, call_id: str | None, arguments: Any) -> bool:
        """Whether this answer issued a call, which now has its arguments."""
        for call in self.message.get("tool_calls", ()):
            if call["id"] == call_id and call_id is not None:
                call["function"]["arguments"] = call["function"]["arguments"] or arguments
                return True
        return False


def _result(data: dict[str, Any], call_id: str | None, at: Any) -> dict[str, Any]:
    success, error = data.get("success"), object_field(data, "error")
    result = data.get("result")
    content = result.get("content", result) if isinstance(result, dict) else result
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "name": text_field(data, "toolName"),
        "content": error.get("message", error) if content is None and error else content,
        "is_error": not success if isinstance(success, bool) else None,
        "timestamp": at,
    }
