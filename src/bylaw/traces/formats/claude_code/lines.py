"""A line, typed, with nothing decoded that nobody looks at.

Types are checked by the decoder. What it refuses may still be a line, for a field of the wrong type counts as absent:
such lines, and those that are kept as they stand, are decoded as a whole.

One look at all lines of a file before it is read: what only the whole file tells.

A session is a tree, for a user may go back and take another way. What was done on the way that was left did happen, so
every line counts, in the order of the file; only what a model was asked depends on the way. Not every fork is a way:
results of calls that ran in parallel stand each below the line of its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.chat_message import text_field
from bylaw.traces.formats.record import UNREAD, Record, decode
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.records.jsontext import REFUSED
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Problems

SPOKEN = ("user", "assistant")
KEPT = ("summary", "system", "result")
"""lines of these kinds become annotations; any other kind is the program's own and says nothing of the agent"""


class Line(Struct, gc=False):
    type: str | None = None
    uuid: str | None = None
    sessionId: str | None = None
    session_id: str | None = None
    isSidechain: bool | None = None
    agentId: str | None = None
    parent_tool_use_id: str | None = None
    requestId: str | None = None
    timestamp: Any = None
    message: Any = None
    toolUseResult: Raw = Raw()

    @property
    def at(self) -> str | None:
        return self.timestamp if type(self.timestamp) is str else None


_TEXTS = ("type", "uuid", "sessionId", "session_id", "agentId", "parent_tool_use_id", "requestId")
_decode_line = msgspec.json.Decoder(Line).decode


def lines_of(block: Block, problems: Problems) -> Iterator[Record]:
    """The lines of a block that can be decoded, each a Line or, for `line_of`, a whole value."""
    for raw, place in block:
        try:
            value: Any = _decode_line(raw)
            if value.type in KEPT:
                value = decode(place, raw, problems)
        except REFUSED:
            value = decode(place, raw, problems)
        if value is not UNREAD:
            yield Record(value, raw, place, problems)


def line_of(value: Any) -> Line:
    if type(value) is Line:
        return value
    if not isinstance(value, dict):
        return Line()
    return Line(
        **{key: text_field(value, key) for key in _TEXTS},
        isSidechain=bool(value.get("isSidechain")),
        timestamp=value.get("timestamp"),
        message=value.get("message"),
        toolUseResult=Raw(msgspec.json.encode(value.get("toolUseResult"))),
    )


_SPOKEN = ("user", "assistant")


class _Message(Struct, gc=False):
    id: str | None = None
    content: Raw = Raw()


class _Skim(Struct, gc=False):
    type: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    logicalParentUuid: str | None = None
    isSidechain: bool | None = None
    requestId: str | None = None
    timestamp: str | None = None
    message: _Message | None = None
    toolUseResult: Raw = Raw()


class _Answered(Struct, gc=False):
    tool_use_id: str | None = None


class _Started(Struct, gc=False):
    agentId: str | None = None


_skim = msgspec.json.Decoder(_Skim).decode
_answered = msgspec.json.Decoder(list[_Answered]).decode
_started = msgspec.json.Decoder(_Started).decode


class Branches:
    def __init__(self, lines: Iterable[bytes]) -> None:
        self.jumps: dict[str, str] = {}
        """lines that do not follow the one before, each with the line that it follows"""
        self.points: set[str] = set()
        """lines that are followed so"""
        self.repeated: set[int] = set()
        """lines that stand in the file more than once, as hashes"""
        self._parts: dict[str, int] = {}
        """how many lines of each response are still to come, by the id of its message"""
        self.callers: dict[str, str] = {}
        """the call that started a subagent, by the id of the subagent"""
        self.start: float | None = None
        """the first time of the file"""
        self._seen: set[int] = set()
        self._near: dict[str, str | None] = {}
        """the nearest line that somebody spoke at or above each"""
        self._roots: dict[str, str] = {}
        self._tail: set[str] = set()
        """lines of the latest response, and of what was heard of its calls: what follows may follow any of them"""
        self._answer: str | None = None
        for line in lines:
            try:
                self._look(_skim(line), line)
            except REFUSED:
                continue  # told when the file is read

    def is_last(self, id: str) -> bool:
        """Whether no further line belongs to a response. Asked once at each of its lines."""
        left = self._parts[id] = self._parts.get(id, 0) - 1
        return left <= 0

    def root_of(self, uuid: str) -> str:
        """The first line of the subagent that a line is part of."""
        return self._roots.get(uuid, uuid)

    def _look(self, found: _Skim, line: bytes) -> None:
        if self.start is None and found.timestamp is not None:
            self.start = moment(found.timestamp)[0]
        uuid, parent, message, id = found.uuid, found.parentUuid, found.message, None
        if uuid is not None and self._is_repeated(line):
            return
        if message is not None and found.type == "assistant":
            id = message.id or found.requestId
            if id is not None:
                self._parts[id] = self._parts.get(id, 0) + 1
        if uuid is None:
            return
        near = self._near.get(parent) if parent is not None else None
        if not found.isSidechain and message is not None and found.type in _SPOKEN:
            self._near[uuid] = uuid
            self._follow(found, uuid, near, id, line)
        elif self._near.get(uuid) != uuid:
            self._near[uuid] = near
        if found.isSidechain:
            above = parent or found.logicalParentUuid
            self._roots[uuid] = self._roots.get(above, uuid) if above is not None else uuid
        if message is not None and found.toolUseResult and b'"agentId"' in line:
            self._know_caller(found)

    def _is_repeated(self, line: bytes) -> bool:
        mark = line_mark(line)
        if mark in self._seen:
            self.repeated.add(mark)
            return True
        self._seen.add(mark)
        return False

    def _follow(self, found: _Skim, uuid: str, near: str | None, id: str | None, line: bytes) -> None:
        if found.type == "assistant":
            goes_on, self._answer = id is not None and id == self._answer, id
        else:
            goes_on = b"tool_result" in line and bool(_results(found))
        if goes_on:
            self._tail.add(uuid)
        else:
            if near is not None and self._tail and near not in self._tail:
                self.jumps[uuid] = near
                self.points.add(near)
            self._tail = {uuid}

    def _know_caller(self, found: _Skim) -> None:
        """A call of a subagent returns with the subagent's id."""
        try:
            agent = _started(found.toolUseResult).agentId
        except REFUSED:
            return
        calls = _results(found)
        if agent is not None and calls:
            self.callers[agent] = calls[0]


def line_mark(line: bytes) -> int:
    return hash(line.strip())


def _results(found: _Skim) -> list[str]:
    """The calls that a line tells the results of."""
    assert found.message is not None
    try:
        return [block.tool_use_id for block in _answered(found.message.content) if block.tool_use_id is not None]
    except REFUSED:
        return []  # text, which tells of none
