"""The lines of a session's file, and a first pass over all of them.

Only the fields that are needed are decoded. The decoder checks types; a line that it refuses may still be valid,
because a field of the wrong type counts as absent. Such lines, and those that become annotations, are decoded
completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.record import UNREAD, Record, decode, text_field
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Problems

SPOKEN = ("user", "assistant")
ANNOTATIONS = ("summary", "system", "result")
"""kinds of lines that become annotations; lines of other kinds do not concern the agent, except `PROGRESS`"""
PROGRESS = "progress"
"""a line that may hold a line of a subagent"""
_AHEAD = 8 << 20
"""bytes: parts of one response, and a subagent and the result of the call that started it, are nearer to each other"""
_TEXTS = ("type", "uuid", "sessionId", "session_id", "agentId", "parent_tool_use_id", "requestId")


class Line(Struct, gc=False):
    type: str | None = None
    uuid: str | None = None
    sessionId: str | None = None
    session_id: str | None = None
    isSidechain: bool | None = None
    agentId: str | None = None
    parent_tool_use_id: str | None = None
    requestId: str | None = None
    isApiErrorMessage: bool | None = None
    timestamp: Any = None
    message: Any = None
    toolUseResult: Raw = Raw()
    data: Raw = Raw()
    parentToolUseID: Any = None

    @property
    def at(self) -> str | None:
        return self.timestamp if type(self.timestamp) is str else None


_decode_line = msgspec.json.Decoder(Line).decode


def lines_of(block: Block, problems: Problems) -> Iterator[Record]:
    """The lines of a block that can be decoded. The value of each is a Line, or a whole value for `line_of`."""
    for raw, place in block:
        try:
            value: Any = _decode_line(raw)
            if value.type in ANNOTATIONS:
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
        isApiErrorMessage=flag if isinstance(flag := value.get("isApiErrorMessage"), bool) else None,
        timestamp=value.get("timestamp"),
        message=value.get("message"),
        toolUseResult=Raw(msgspec.json.encode(value.get("toolUseResult"))),
        data=Raw(msgspec.json.encode(value.get("data"))),
        parentToolUseID=value.get("parentToolUseID"),
    )


class _Progress(Struct, gc=False):
    type: str | None = None
    agentId: str | None = None
    message: Raw = Raw()


_decode_progress = msgspec.json.Decoder(_Progress).decode


def line_inside(data: Raw, caller: Any) -> tuple[Line, int] | None:
    """The line of a subagent that a line of the session repeats, and its hash."""
    try:
        found = _decode_progress(data)
    except REFUSED:
        return None
    if found.type != "agent_progress" or not found.message:
        return None
    line = line_of(decode_quickly(bytes(found.message)))
    line.isSidechain, line.agentId = True, found.agentId
    line.parent_tool_use_id = caller if isinstance(caller, str) else None
    return (line, line_hash(bytes(found.message))) if line.type in SPOKEN else None


def response_id(line: Line) -> str | None:
    """The id that all lines of one response have."""
    id = line.message.get("id") if isinstance(line.message, dict) else None
    return id if id and isinstance(id, str) else line.requestId


def line_hash(line: bytes) -> int:
    return hash(line.strip())


# The first pass


class _Message(Struct, gc=False):
    id: str | None = None
    content: Raw = Raw()


class _Skim(Struct, gc=False):
    """The fields of a line that the first pass needs."""

    type: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None
    logicalParentUuid: str | None = None
    isSidechain: bool | None = None
    requestId: str | None = None
    timestamp: str | None = None
    message: _Message | None = None
    toolUseResult: Raw = Raw()
    tool_use_result: Raw = Raw()
    agentId: Any = None
    parent_tool_use_id: Any = None
    data: Raw = Raw()


class _ResultBlock(Struct, gc=False):
    tool_use_id: str | None = None


class _Subagent(Struct, gc=False):
    agentId: str | None = None
    totalToolUseCount: Any = None
    status: Any = None


_decode_skim = msgspec.json.Decoder(_Skim).decode
_decode_results = msgspec.json.Decoder(list[_ResultBlock]).decode
_decode_subagent = msgspec.json.Decoder(_Subagent).decode


class Branches:
    """What only the whole file shows, from one pass over its lines.

    A session is a tree, because a user may go back and continue from an earlier line. What the agent did on an
    abandoned branch did happen, so every line counts, in the order of the file; only the input of a request depends on
    the branch. Not every fork is a branch: results of parallel calls each stand below the line of their call.
    """

    def __init__(self, lines: Iterable[bytes], *, is_lazy: bool = False) -> None:
        """`is_lazy`: look only a few megabytes ahead of what `follow` was told, so that a first page is shown soon."""
        self.is_lazy = is_lazy
        self._lines = iter(lines)
        self._left = 0
        """bytes that were looked at and not yet followed"""
        self.jumps: dict[str, str] = {}
        """lines that do not follow the line before, each with the line that it follows"""
        self.points: set[str] = set()
        """lines that are followed so"""
        self.repeated: set[int] = set()
        """hashes of lines that stand in the file more than once"""
        self.callers: dict[str, str] = {}
        """the call that started a subagent, by the id of the subagent"""
        self.worked: dict[str, str | None] = {}
        """calls whose result says that a subagent made calls or still runs, with the id of the subagent if known"""
        self.agents: dict[str, bool] = {}
        """subagents that have lines here, by their ids or their calls; False if other lines only repeat them"""
        self.start: float | None = None
        """the first time of the file"""
        self._parts: dict[str, int] = {}
        """how many lines of each response are still to come, by the id of its message"""
        self._seen: set[int] = set()
        self._nearest: dict[str, str | None] = {}
        """the nearest message at or above each line"""
        self._roots: dict[str, str] = {}
        self._tail: set[str] = set()
        """lines of the latest response and of its results: the next line may follow any of them"""
        self._answer: str | None = None
        self.follow(0)

    def follow(self, size: int) -> None:
        """The reader has come so many bytes further."""
        self._left -= size
        while not self.is_lazy or self._left < _AHEAD:
            line = next(self._lines, None)
            if line is None:
                return
            self._left += len(line)
            try:
                self._add(_decode_skim(line), line)
            except REFUSED:
                continue  # reported when the file is read

    def is_last(self, id: str) -> bool:
        """Whether no further line belongs to a response. Must be called once for each of its lines."""
        left = self._parts[id] = self._parts.get(id, 0) - 1
        return left <= 0

    def root_of(self, uuid: str) -> str:
        """The first line of the subagent that a line belongs to."""
        return self._roots.get(uuid, uuid)

    @property
    def has_sidechain(self) -> bool:
        return bool(self._roots)

    def _add(self, found: _Skim, line: bytes) -> None:
        if self.start is None and found.timestamp is not None:
            self.start = moment(found.timestamp)[0]
        uuid, parent, message, id = found.uuid, found.parentUuid, found.message, None
        if uuid is not None:
            mark = line_hash(line)
            if mark in self._seen:
                self.repeated.add(mark)
                return
            self._seen.add(mark)
        if message is not None and found.type == "assistant":
            id = message.id or found.requestId
            if id is not None:
                self._parts[id] = self._parts.get(id, 0) + 1
        elif found.type == PROGRESS and b'"agent_progress"' in line:
            self._add_progress(found)
        if uuid is None:
            return
        nearest = self._nearest.get(parent) if parent is not None else None
        if not found.isSidechain and message is not None and found.type in SPOKEN:
            self._nearest[uuid] = uuid
            self._add_message(found, uuid, nearest, id, line)
        elif self._nearest.get(uuid) != uuid:
            self._nearest[uuid] = nearest
        if found.isSidechain:
            above = parent or found.logicalParentUuid
            self._roots[uuid] = self._roots.get(above, uuid) if above is not None else uuid
            if isinstance(found.agentId, str):
                self.agents[found.agentId] = True
        if isinstance(found.parent_tool_use_id, str):
            self.agents[found.parent_tool_use_id] = True
        result = found.toolUseResult or found.tool_use_result
        if message is not None and result and (b'"agentId"' in line or b'"totalToolUseCount"' in line):
            self._add_caller(found, result)

    def _add_message(self, found: _Skim, uuid: str, nearest: str | None, id: str | None, line: bytes) -> None:
        if found.type == "assistant":
            continues, self._answer = id is not None and id == self._answer, id
        else:
            continues = b"tool_result" in line and bool(_call_ids(found))
        if continues:
            self._tail.add(uuid)
        else:
            if nearest is not None and self._tail and nearest not in self._tail:
                self.jumps[uuid] = nearest
                self.points.add(nearest)
            self._tail = {uuid}

    def _add_caller(self, found: _Skim, recorded: Raw) -> None:
        """The result of a call that started a subagent holds the subagent's id."""
        try:
            result = _decode_subagent(recorded)
        except REFUSED:
            return
        for call in _call_ids(found)[:1]:
            if result.agentId is not None:
                self.callers[result.agentId] = call
            if result.totalToolUseCount or result.status == "async_launched":
                self.worked[call] = result.agentId

    def _add_progress(self, found: _Skim) -> None:
        inside = line_inside(found.data, None)
        if inside is None or inside[1] in self._seen:
            return
        self._seen.add(inside[1])
        line = inside[0]
        if line.agentId is not None:
            self.agents.setdefault(line.agentId, False)
        id = response_id(line)
        if line.type == "assistant" and id is not None:
            self._parts[id] = self._parts.get(id, 0) + 1


def _call_ids(found: _Skim) -> list[str]:
    """The calls whose results a line holds."""
    assert found.message is not None
    try:
        blocks = _decode_results(found.message.content)
        return [block.tool_use_id for block in blocks if block.tool_use_id is not None]
    except REFUSED:
        return []  # text, which holds none
