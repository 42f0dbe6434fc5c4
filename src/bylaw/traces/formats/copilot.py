"""Copilot in Visual Studio Code: chat replays as it exports them, and chats as it stores them.

A replay has for each prompt the requests to the model and the calls. A response holds its text only: the calls that it
issued are logged after it, each with what it returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import item_of
from bylaw.traces.formats.gathered import call_of
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.pairs import Pair, PairsReader
from bylaw.traces.formats.reader import Opened, Reader
from bylaw.traces.formats.record import MalformedRecord, Path, Record, list_field, object_field, text_field

_ROLES = ("system", "user", "assistant", "tool")
"""the roles that messages have as numbers"""
_TEXT = 1
_KINDS = frozenset(("element", "request", "toolCall"))
_OWN_SUFFIX = re.compile(r"__vscode-\d+$")
"""what the editor appends to the id of a call"""


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or is_chat(value):
        return isinstance(value, dict)
    if isinstance(value.get("prompts"), list):
        return any(isinstance(one, dict) and isinstance(one.get("logs"), list) for one in value["prompts"][:5])
    logs = list_field(value, "logs")
    return "prompt" in value and any(isinstance(one, dict) and text_field(one, "kind") in _KINDS for one in logs[:5])


def reader(opened: Opened) -> Reader:
    first = parsed(opened.first_record().decode(errors="replace"))
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
    told = [{"type": "thinking", "text": text} for text in thoughts if isinstance(text, str)]
    issued = [call_of(_id(call), text_field(call, "tool", "name"), call.get("args")) for _, call in calls]
    usage = metadata.get("usage")
    return {
        "role": "assistant",
        "content": [*told, *blocks],
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
    def __init__(self, opened: Opened) -> None:
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
                yield {"role": "tool", "tool_call_id": call.get("id"), "content": _text(result.get("content"))}
    parts = [part for part in list_field(request, "response") if isinstance(part, dict)]
    others = [part for part in parts if part.get("kind") == _INVOCATION and str(part.get("toolCallId")) not in known]
    texts = "".join(part["value"] for part in parts if isinstance(part.get("value"), str) and "kind" not in part)
    if others or (texts and not rounds):  # what subagents called is in no round
        calls = [call_of(part.get("toolCallId"), part.get("toolId"), part.get("toolSpecificData")) for part in others]
        yield {**answered, "content": None if rounds else texts, **({"tool_calls": calls} if calls else {})}


def _text(content: Any) -> Any:
    """The only part of a result, or all of them."""
    parts = content if isinstance(content, list) else [content]
    values = [part.get("value", part) if isinstance(part, dict) else part for part in parts]
    return values[0] if len(values) == 1 else values
