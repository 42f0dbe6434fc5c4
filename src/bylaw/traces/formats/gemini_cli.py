"""Gemini CLI: recorded sessions, and what it prints.

A session is one JSON object with `messages` or, since 2026, one record per line. An answer holds its calls, each with
what it returned. In a file with one record per line, a message may be written again when more of it is known, and
`$rewindTo` takes messages back, except those with calls, because the calls ran. When the CLI masks outputs or
compresses the history, it writes messages again too: shorter, or with new ids and without a model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.events import Event, Origin
from bylaw.traces.assembly.content import EVERYTHING
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.formats.chat import AnswerPart, ChatReader, GatheringReader, blocks_of, call_of
from bylaw.traces.formats.chat_message import item_of, time_of
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.reader import OpenedFile, Reader
from bylaw.traces.formats.record import (
    MalformedRecord,
    Path,
    Record,
    is_file,
    list_field,
    object_field,
    sidecar_records,
    text_field,
)

_HEAD = frozenset(("sessionId", "projectHash"))
_ANSWER = "gemini"
_NOTICES = frozenset(("info", "error", "warning"))
_TYPES = frozenset(("user", _ANSWER)) | _NOTICES
_FAILED = frozenset(("error", "cancelled"))
_ENDED = _FAILED | {"success"}
_METADATA = ("projectHash", "startTime", "summary", "kind", "directories")
_NO_FILE = "a subagent ran for this call, but its session is neither in this file nor in the folder `{}` beside it"
_NO_FILE_HELP = "copy that folder beside the file of the session; rules that a call may decide are inconclusive"
_PREFIX, _LINES = "session-", ".jsonl"
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")
_MOST_LEVELS = 20
"""how deep subagents of subagents are read"""


def claims(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if _is_event(value):
        return True
    if value.keys() >= _HEAD and ("messages" in value or "startTime" in value):
        return True
    return value.get("type") == _ANSWER and "tokens" in value and "timestamp" in value


def reader(opened: OpenedFile) -> Reader:
    first = parse_if_json(opened.first_record().decode(errors="replace"))
    is_printed = isinstance(first, dict) and text_field(first, "type") in _EVENTS and "sessionId" not in first
    return GeminiStreamReader(opened) if is_printed and first.get("type") != "error" else GeminiCliReader(opened)


def subagent_files(path: str | None, session: Any) -> dict[str, str]:
    """The files of a session's subagents by their ids: `<session>/<id>.jsonl` beside the session's own."""
    name = _UNSAFE.sub("_", session) if isinstance(session, str) else ""
    if path is None or not name or not os.path.basename(path).startswith(_PREFIX):
        return {}
    folder = os.path.join(os.path.dirname(path), name)
    if not os.path.isdir(folder) or os.path.islink(folder):
        return {}
    names = (name for name in sorted(os.listdir(folder)) if name.endswith(_LINES))
    found = {name.removesuffix(_LINES): os.path.join(folder, name) for name in names}
    return {id: file for id, file in found.items() if is_file(file)}


class _Placed(Struct, frozen=True):
    """A message, and its place in the file."""

    message: Any
    record: Record
    path: Path


class _Log:
    """The lines of one session."""

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self._messages: dict[str | int, _Placed] = {}
        """by their ids, or by their number if they have none"""
        self._count = 0
        self._numbers: dict[str | int, int] = {}
        """when each message was first seen, as a count of messages"""
        self._rewindable: list[str | int] = []
        """the messages that no rewind has reached yet, oldest first, so that each is looked at by one rewind only"""

    def add(self, record: Record) -> None:
        value = record.value
        if value.keys() >= _HEAD:
            self.head.update(value)
        elif "$set" in value:
            self.head.update(object_field(value, "$set"))
            for index, message in enumerate(list_field(value["$set"], "messages")):
                self._put(_Placed(message, record, ("$set", "messages", index)))
        elif "$rewindTo" in value:
            self._rewind(text_field(value, "$rewindTo"))
        elif isinstance(value.get("type"), str):
            self._put(_Placed(value, record, ()))
        else:
            record.bad("wrong-type", "this is not a message of a session")

    def _put(self, new: _Placed) -> None:
        self._count += 1
        key = (text_field(new.message, "id") if isinstance(new.message, dict) else None) or self._count
        known = self._messages.get(key)
        if known is not None:
            place = known if new.path else new  # a copy of the history adds nothing
            new = _Placed(_rewritten(known.message, new.message), place.record, place.path)
        else:
            self._numbers[key] = self._count
            self._rewindable.append(key)
        self._messages[key] = new

    def _rewind(self, to: str | None) -> None:
        """Remove a message and all later ones. Those with calls stay, because the calls were made."""
        if to is None or to not in self._messages:
            return
        first = self._numbers[to]
        while self._rewindable and self._numbers[self._rewindable[-1]] >= first:
            key = self._rewindable.pop()
            if not _has_calls(self._messages[key].message):
                del self._messages[key]

    def take(self) -> list[_Placed]:
        found, self._messages = list(self._messages.values()), {}
        self._numbers, self._rewindable = {}, []
        return found


def _has_calls(message: Any) -> bool:
    parts = list_field(message, "content")
    return bool(list_field(message, "toolCalls")) or any(object_field(part, "functionCall") for part in parts)


def _rewritten(known: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """The later version of a message, with the text and the results of the first one."""
    before = {text_field(call, "id") or at: call for at, call in enumerate(_calls(known))}
    calls = []
    for at, call in enumerate(_calls(message)):
        first = before.pop(text_field(call, "id") or at, {})
        is_final = first.get("result") is not None and text_field(first, "status") in _ENDED
        calls.append({**call, "result": first["result"]} if is_final else call)
    calls += before.values()
    content = known.get("content") or message.get("content")
    return {**message, "content": content, **({"toolCalls": calls} if calls else {})}


def _calls(message: Any) -> list[dict[str, Any]]:
    return [call for call in list_field(message, "toolCalls") if isinstance(call, dict)]


class _Known:
    """The calls and results of a session, to recognize history that the CLI writes again."""

    def __init__(self, messages: list[Any]) -> None:
        calls = [call for message in messages for call in _calls(message)]
        self.calls = {text_field(call, "id") for call in calls}
        self.answered = {text_field(call, "id") for call in calls if call.get("result")}
        self.has_models = any(isinstance(message, dict) and message.get("model") for message in messages)

    def is_inserted(self, message: dict[str, Any]) -> bool:
        """Whether the CLI itself wrote this answer: the answers of a model name the model."""
        return self.has_models and not any(message.get(key) for key in ("model", "tokens", "toolCalls"))


class GeminiCliReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._path = opened.source.path
        self._first: Any = None
        """id of the first session: its subagents are read even if the id changes later in the file"""
        self._log = _Log()
        self._places: list[_Placed] = []
        """the messages that are being read, in a file with one record per line"""
        self._known = _Known([])
        self._files: dict[str, str] = {}
        """files of subagents that were not read yet, by their ids"""
        self._agents: set[str] = set()
        """ids of the subagents that were read"""
        self._level = 0
        self._is_part = False

    def read_record(self, record: Record) -> None:
        value = record.value
        if not record.expect_object("a record"):
            return
        self._first = self._first or value.get("sessionId")
        if isinstance(value.get("messages"), list):
            self._places = []
            self._session(record, value, value["messages"])
            return
        if value.keys() >= _HEAD:
            self._flush()
        self._log.add(record)

    def finish(self) -> list[Event]:
        self._flush()
        return super().finish()

    def notes(self) -> list[str]:
        part = ["only the part of a subagent is here: the session that started it has a file of its own"]
        return [*super().notes(), *(part if self._is_part else ())]

    def _flush(self) -> None:
        self._places = self._log.take()
        if self._places:
            self._session(self._places[0].record, self._log.head, [one.message for one in self._places])
        self._log = _Log()

    def _session(self, record: Record, head: dict[str, Any], messages: list[Any]) -> None:
        metadata = {key: head[key] for key in _METADATA if head.get(key) is not None}
        session = text_field(head, "sessionId")
        self._is_part = self._is_part or head.get("kind") == "subagent"
        files = {**subagent_files(self._path, self._first), **subagent_files(self._path, session)}
        self._known, self._files = _Known(messages), {id: files[id] for id in files if id not in self._agents}
        self.read_list(record, messages, ("messages",), session, metadata=metadata or None)
        while self._files and self._listed is not None:  # subagents of cancelled calls
            self._read_subagent(self._listed.conversation, next(iter(self._files)), None)

    def read_items(self, conversation: Conversation, record: Record, items: list[Any], start: int, path: Path) -> None:
        if not self._places:
            super().read_items(conversation, record, items, start, path)
        for one in self._places[start:]:
            self.read_item(conversation, one.record, one.message, one.path)

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        kind = text_field(item, "type") if isinstance(item, dict) else None
        if kind is not None and kind not in _TYPES:
            record.warn("unread-content", f"a message of type `{kind}` is not read", path)
        elif kind == _ANSWER:
            self._read_cli_answer(conversation, record, item, path)
        elif kind in _NOTICES:
            self._add_notice(conversation, record, item, path, str(kind))
        elif kind == "user":
            for message in self._input(item):
                super().read_item(conversation, record, message, path)
        else:
            super().read_item(conversation, record, item, path)  # reported as wrong

    def _add_notice(
        self, conversation: Conversation, record: Record, item: dict[str, Any], path: Path, label: str
    ) -> None:
        at, source = time_of(item), record.locator(item_of(path))
        self._annotate(conversation.origin, source, label, item.get("content"), at)

    def _input(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A message of the user, and results that no call holds."""
        content, at, rest = message.get("content"), message.get("timestamp"), []
        for part in content if isinstance(content, list) else ():
            response = object_field(part, "functionResponse")
            id = text_field(response, "id")
            if id is None:
                rest.append(part)
            elif id not in self._known.answered:
                self._known.answered.add(id)
                yield _result(id, response.get("name"), response.get("response"), None, at)
        if rest or not isinstance(content, list) or not content:
            yield {"role": "user", "content": rest or content, "timestamp": at}

    def _read_cli_answer(self, conversation: Conversation, record: Record, item: dict[str, Any], path: Path) -> None:
        calls, known = _calls(item), self._known
        content = item.get("content")
        parts = blocks_of([content] if isinstance(content, dict) else content)
        ids = [text_field(object_field(part, "functionCall"), "id") for part in parts]
        parts = [_block(part) for part, id in zip(parts, ids, strict=True) if id is None or id not in known.calls]
        item = {**item, "content": parts}
        if known.is_inserted(item) and not any(object_field(part, "functionCall") for part in parts):
            self._add_notice(conversation, record, item, path, "inserted")
            conversation.add_message({"role": "assistant", "content": parts})
            return
        known.calls.update(ids)
        super().read_item(conversation, record, _answer(item, calls), path)
        for call in calls:
            self._find_subagent(conversation, record, call, path)
            for message in _results(call):
                super().read_item(conversation, record, message, path)

    def _find_subagent(self, conversation: Conversation, record: Record, call: dict[str, Any], path: Path) -> None:
        agent, shown = text_field(call, "agentId"), object_field(call, "resultDisplay")
        if agent is not None and agent in self._files:
            if self._level < _MOST_LEVELS:
                self._read_subagent(conversation, agent, text_field(call, "name"))
        elif agent not in self._agents and (agent or (shown.get("isSubagentProgress") and not self._files)):
            folder = _UNSAFE.sub("_", conversation.origin.session)
            record.warn("unread-content", _NO_FILE.format(folder), path, help=_NO_FILE_HELP)
            self._assembler.lack_call(self._assembler.buffer_for(conversation.origin), EVERYTHING[0])

    def _read_subagent(self, above: Conversation, agent: str, name: str | None) -> None:
        """Read the session of a subagent, which is a run of the session that started it."""
        log, whole = _Log(), above.origin
        self._agents.add(agent)
        for record in sidecar_records(self._files.pop(agent), self._problems, self._cut):
            if record.expect_object("a record"):
                log.add(record)
        run = Origin(
            whole.session,
            run=agent,
            parent_run=whole.run or whole.session,
            agent=name,
            parent_agent=whole.agent,
        )
        outer = self._known, self._places
        self._places, self._level = log.take(), self._level + 1
        self._known = _Known([one.message for one in self._places])
        conversation = Conversation(self._assembler, self._assembler.buffer_for(run), Settings(), bounded=False)
        for one in self._places:
            self.read_item(conversation, one.record, one.message, one.path)
        conversation.end()
        (self._known, self._places), self._level = outer, self._level - 1

    def _cut(self) -> None:
        self.complete = False


def _answer(message: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    thoughts = [one for one in list_field(message, "thoughts") if isinstance(one, dict)]
    thinking = [{"type": "thinking", "text": f"{one.get('subject')}: {one.get('description')}"} for one in thoughts]
    tokens = object_field(message, "tokens")
    names = {"input": "promptTokenCount", "output": "candidatesTokenCount", "thoughts": "thoughtsTokenCount",
             "cached": "cachedContentTokenCount"}  # fmt: skip
    found = {
        "role": "assistant",
        "content": [*thinking, *message["content"]],
        "timestamp": message.get("timestamp"),
        "model": message.get("model"),
        "usage": {new: tokens[old] for old, new in names.items() if old in tokens} or None,
    }
    listed = [call_of(call.get("id"), call.get("name"), call.get("args")) for call in calls]
    return found | ({"tool_calls": listed} if listed else {})


def _block(part: Any) -> Any:
    is_thought = isinstance(part, dict) and part.get("thought") is True and "text" in part
    return {"type": "thinking", "text": part["text"]} if is_thought else part


def _results(call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    status, parts = text_field(call, "status"), call.get("result")
    found = [object_field(part, "functionResponse") for part in list_field(call, "result")]
    found = [one for one in found if one.get("id") == call.get("id")] or [one for one in found if one]
    contents = [one.get("response") for one in found]
    content = contents[0] if len(contents) == 1 else contents or (parts if parts else call.get("resultDisplay"))
    if content is None and status not in _FAILED:
        return  # the call waits or runs
    failed = status in _FAILED if isinstance(status, str) else None
    yield _result(call.get("id"), call.get("name"), content, failed, call.get("timestamp"))


def _result(id: Any, name: Any, content: Any, failed: bool | None, at: Any) -> dict[str, Any]:
    if isinstance(content, dict) and len(content) == 1 and not content.keys().isdisjoint(("output", "error")):
        failed = True if "error" in content else failed
        (content,) = content.values()
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content, "is_error": failed, "timestamp": at}


# What `gemini --output-format stream-json` prints: texts in pieces, calls and their results, one event per line.


_PRINTED = "answer"
_EVENTS = frozenset(("init", "message", "tool_use", "tool_result", "error", "result"))


def _is_event(value: Any) -> bool:
    """Whether this is an event that no other tool prints."""
    if not isinstance(value, dict):
        return False
    kind = text_field(value, "type")
    if kind == "init":
        return {"session_id", "model", "timestamp"} <= value.keys()
    return kind in ("tool_use", "tool_result") and "tool_id" in value


class GeminiStreamReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, dict) and value.get("type") == "init":
            self._close()
            settings = Settings(model=text_field(value, "model"))
            name = text_field(value, "session_id")
            self._open = self._begin(name, settings, None, record, bounded=self._records.streamed)
        else:
            super().read_record(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        kind, at = text_field(event, "type"), event.get("timestamp")
        if kind not in _EVENTS:
            raise MalformedRecord("this is not an event of a session", code="unknown-kind")
        if kind == "message" and event.get("role") == "assistant":
            yield AnswerPart({"role": "assistant", "content": event.get("content"), "timestamp": at}, _PRINTED)
        elif kind == "message":
            yield AnswerPart({"role": "user", "content": event.get("content"), "timestamp": at})
        elif kind == "tool_use":
            call = call_of(event.get("tool_id"), text_field(event, "tool_name"), event.get("parameters"))
            yield AnswerPart({"role": "assistant", "content": None, "tool_calls": [call], "timestamp": at}, _PRINTED)
        elif kind == "tool_result":
            status, error = event.get("status"), event.get("error")
            said = error.get("message", error) if isinstance(error, dict) else error
            result = {"role": "tool", "tool_call_id": text_field(event, "tool_id"), "timestamp": at}
            failed = status != "success" if isinstance(status, str) else None
            yield AnswerPart({**result, "content": event.get("output", said), "is_error": failed})
