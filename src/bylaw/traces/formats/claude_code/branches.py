"""One look at all lines of a file before it is read: what only the whole file tells.

A session is a tree, for a user may go back and take another way. What was done on the way that was left did happen, so
every line counts, in the order of the file; only what a model was asked depends on the way. Not every fork is a way:
results of calls that ran in parallel stand each below the line of its call.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.spans.times import moment
from bylaw.traces.records.jsontext import REFUSED

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
