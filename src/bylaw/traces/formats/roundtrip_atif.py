"""Reads trajectories that Bylaw exported. Each event's slot is in the `extra` of the step, call or result it belongs
to.

A trajectory holds each message once, while requests show the whole conversation. So the slot of a request holds its new
messages, and how many messages of the previous request come before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from bylaw.model.events import Deferred
from bylaw.traces.assembly.conversation import Prefix
from bylaw.traces.formats.bylaw.lines import (
    VERSION,
    Header,
    Line,
    RequestLine,
    ResponseLine,
    ToolCallLine,
    ToolResultLine,
)
from bylaw.traces.formats.reader import Opened
from bylaw.traces.formats.roundtrip_slots import RECORDED, SHAPE, RoundTripReader, Slot
from bylaw.traces.records.jsontext import REFUSED, decode_deferred
from bylaw.traces.records.problems import Place

MOST_COPIED = 1 << 24
"""messages that the requests of one file may take from earlier ones, apart from simple continuations"""


class _Slots(Struct, gc=False):
    bylaw: list[Slot] = []


class _Call(Struct, gc=False):
    tool_call_id: Any = None
    function_name: Any = None
    arguments: Any = None
    extra: _Slots | None = None


class _Result(Struct, gc=False):
    content: Any = None
    extra: _Slots | None = None


class _Observation(Struct, gc=False):
    results: list[_Result] = []


class _Step(Struct, gc=False):
    message: Any = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    extra: _Slots | None = None


class _Own(Struct, gc=False):
    """What Bylaw wrote about the whole trace."""

    trace: str = ""
    events: list[Slot] = []
    header: Header | None = None
    end: Slot | None = None


class _Extra(Struct, gc=False):
    bylaw: _Own | None = None


class _Agent(Struct, frozen=True, gc=False):
    tool_definitions: list[Any] | None = None


class _Trajectory(Struct, gc=False):
    agent: _Agent = _Agent()
    steps: list[_Step] = []
    subagent_trajectories: list[_Trajectory] | None = None
    extra: _Extra | None = None

    @property
    def own(self) -> _Own | None:
        return None if self.extra is None else self.extra.bylaw


_decode = msgspec.json.Decoder(_Trajectory).decode


def is_own_export(first: bytes) -> bool:
    """Whether Bylaw wrote the file that begins with this record."""
    if b'"bylaw"' not in first:
        return False
    try:
        own = _decode(first).own
    except REFUSED:
        return False
    return own is not None and bool(own.trace)


class OwnAtifReader(RoundTripReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._copied = 0

    def read_record(self, raw: bytes, place: int | Place) -> None:
        found = self.decode(raw, place, _decode)
        if found is None:
            return
        own = found.own
        if own is not None and own.trace == VERSION:
            self.lines(own.header)
            self.put(lambda: self._document_lines(found, own), raw, place)
        else:
            message = "this trajectory is not Bylaw's, and the file began with one that is"
            self.refuse_foreign(None if own is None else own.trace, message, raw, place)

    def _document_lines(self, found: _Trajectory, own: _Own) -> Iterator[tuple[int, Line]]:
        yield from self._trajectory_lines(found)
        if own.end is not None:
            yield own.end.n, own.end.decoded()

    def _trajectory_lines(self, found: _Trajectory) -> Iterator[tuple[int, Line]]:
        messages: list[Any] = []
        for slot, place in sorted(_slots(found), key=lambda one: one[0].n):
            line = slot.decoded()
            if isinstance(line, RequestLine):
                messages = self._fill_request(line, slot, messages, found.agent)
            elif isinstance(line, ResponseLine) and isinstance(place, _Step) and "content" in slot.held:
                line.content = content_of(place)
            elif isinstance(line, ToolCallLine) and isinstance(place, _Call) and "arguments" in slot.held:
                line.arguments = place.arguments
            elif isinstance(line, ToolResultLine) and isinstance(place, _Result) and "content" in slot.held:
                is_json = slot.held["content"] == "json" and isinstance(place.content, str)
                line.content = msgspec.json.decode(place.content) if is_json else place.content
            yield slot.n, line
        for below in found.subagent_trajectories or ():
            yield from self._trajectory_lines(below)

    def _fill_request(self, line: RequestLine, slot: Slot, before: list[Any], agent: _Agent) -> list[Any]:
        """Fill in the messages and tools of a request; returns all messages so far, for the next request."""
        shared, definitions = slot.held.get("messages"), agent.tool_definitions
        deferred: dict[str, Deferred] = {}
        if type(shared) is int and 0 <= shared <= len(before) and line.messages is not UNSET:
            new = decode_deferred(line.messages)
            if shared < len(before):
                self._copied += shared
                if self._copied > MOST_COPIED:
                    raise msgspec.ValidationError("requests take over more messages than a conversation has")
                before = before[:shared]
            before += new if isinstance(new, list) else []
            deferred["messages"] = Prefix(None, (before, 0, len(before)))
        if "tools" in slot.held and definitions is not None:
            deferred["tools"] = Deferred(_recorded_definitions, definitions)
        for field, value in deferred.items():
            setattr(line, field, value)  # the field's type is that of a line in a file of its own
        return before


def _slots(found: _Trajectory) -> Iterator[tuple[Slot, _Step | _Call | _Result | None]]:
    """Every slot of a trajectory, and what it is in."""
    for slot in found.own.events if found.own is not None else ():
        yield slot, None
    for step in found.steps:
        results = step.observation.results if step.observation is not None else []
        for place in (step, *(step.tool_calls or ()), *results):
            for slot in place.extra.bylaw if place.extra is not None else ():
                yield slot, place


def content_of(step: Any) -> list[Any]:
    """The blocks that a step holds. The writer asks this too, about a step it has made."""
    blocks: list[Any] = []
    if step.reasoning_content is not None:
        blocks.append({"type": "thinking", "text": step.reasoning_content})
    if step.message:
        blocks.append({"type": "text", "text": step.message})
    for call in step.tool_calls or ():
        use = {"type": "tool_use", "id": call.tool_call_id, "name": call.function_name, "input": call.arguments}
        blocks.append(use)
    return blocks


def _recorded_definitions(found: list[Any]) -> list[Any]:
    return [recorded_definition(one) for one in found]


def recorded_definition(tool: Any) -> Any:
    """A tool as it was recorded, from OpenAI's shape."""
    if not isinstance(tool, dict) or RECORDED in tool:
        return tool[RECORDED] if isinstance(tool, dict) else tool
    function = tool.get("function")
    if tool.get(SHAPE) != "anthropic" or not isinstance(function, dict):
        return tool
    return {"input_schema" if key == "parameters" else key: value for key, value in function.items()}
