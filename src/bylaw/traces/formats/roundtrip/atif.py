"""Reads the trajectories that Bylaw wrote. Each event's line is in the `extra` of what tells everyone else of it.

A trajectory tells each message once, where requests show the whole conversation: so a request's line holds what is new,
and how much of the request before it comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from bylaw.traces.formats.roundtrip.lines import RestoredReader, Slot
from bylaw.traces.formats.roundtrip.messages import RECORDED, SHAPE
from bylaw.traces.records.jsontext import REFUSED, decode_deferred
from bylaw.traces.records.problems import Place, Problems

MOST_COPIED = 1 << 24
"""messages that the requests of one file may take over from others, where they do not simply go on"""


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
    """What Bylaw says of the whole."""

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


_decode = msgspec.json.Decoder(_Trajectory).decode


def is_restorable(first: bytes) -> bool:
    """Whether Bylaw wrote the file that begins with this record."""
    if b'"bylaw"' not in first:
        return False
    try:
        found = _decode(first)
    except REFUSED:
        return False
    return found.extra is not None and found.extra.bylaw is not None and bool(found.extra.bylaw.trace)


class RestoredAtifReader(RestoredReader):
    def __init__(self, problems: Problems) -> None:
        super().__init__(problems, most_waiting=None)  # sessions that took turns stand one after the other
        self._copied = 0

    def read_record(self, raw: bytes, place: int | Place) -> None:
        found = self.decoded(raw, place, _decode)
        if found is None:
            return
        own = found.extra.bylaw if found.extra is not None else None
        if own is not None and own.trace == VERSION:
            self.started(own.header)
            self.put(lambda: self._document(found, own), raw, place)
        else:
            told = "this trajectory is not Bylaw's, and the file began with one that is"
            self.refuse_foreign(None if own is None else own.trace, told, raw, place)

    def _document(self, found: _Trajectory, own: _Own) -> Iterator[tuple[int, Line]]:
        yield from self._all(found)
        if own.end is not None:
            yield own.end.n, own.end.decoded()

    def _all(self, found: _Trajectory) -> Iterator[tuple[int, Line]]:
        places = sorted(_places(found), key=lambda one: one[0].n)
        asked: list[Any] = []
        for slot, place in places:
            line = slot.decoded()
            if isinstance(line, RequestLine):
                asked = self._request(line, slot, asked, found.agent)
            for field, form in slot.held.items():
                restore = _RESTORED.get((type(line), type(place), field))
                if restore is not None:
                    setattr(line, field, restore(place, form))
            yield slot.n, line
        for below in found.subagent_trajectories or ():
            yield from self._all(below)

    def _request(self, line: RequestLine, slot: Slot, before: list[Any], agent: _Agent) -> list[Any]:
        """Fills in the messages of a request and its tools; returns all messages so far, for the next one."""
        kept, definitions = slot.held.get("messages"), agent.tool_definitions
        if type(kept) is int and 0 <= kept <= len(before) and line.messages is not UNSET:
            new = decode_deferred(line.messages)
            if kept < len(before):
                self._copied += kept
                if self._copied > MOST_COPIED:
                    raise msgspec.ValidationError("requests take over more messages than a conversation has")
                before = before[:kept]
            before += new if isinstance(new, list) else []
            _defer(line, "messages", Prefix(None, (before, 0, len(before))))
        if "tools" in slot.held and definitions is not None:
            _defer(line, "tools", Deferred(recorded_definitions, definitions))
        return before


def _defer(line: RequestLine, field: str, held: Deferred) -> None:
    setattr(line, field, held)  # typed as what stands on a line of its own


def _places(found: _Trajectory) -> Iterator[tuple[Slot, _Step | _Call | _Result | None]]:
    """Every slot of a trajectory, and what it is in."""
    for slot in found.extra.bylaw.events if found.extra is not None and found.extra.bylaw is not None else ():
        yield slot, None
    for step in found.steps:
        results = step.observation.results if step.observation is not None else []
        for place in (step, *(step.tool_calls or ()), *results):
            for slot in place.extra.bylaw if place.extra is not None else ():
                yield slot, place


# What a step, a call or a result holds of the line


def content_of(step: Any) -> list[Any]:
    """The blocks that a step tells of by itself. Asked by the writer too, of a step it has made."""
    blocks: list[Any] = []
    if step.reasoning_content is not None:
        blocks.append({"type": "thinking", "text": step.reasoning_content})
    if step.message:
        blocks.append({"type": "text", "text": step.message})
    for call in step.tool_calls or ():
        use = {"type": "tool_use", "id": call.tool_call_id, "name": call.function_name, "input": call.arguments}
        blocks.append(use)
    return blocks


def _returned(content: Any, form: Any) -> Any:
    return msgspec.json.decode(content) if form == "json" and isinstance(content, str) else content


_RESTORED: dict[tuple[type, type, str], Callable[[Any, Any], Any]] = {
    (ResponseLine, _Step, "content"): lambda step, form: content_of(step),
    (ToolCallLine, _Call, "arguments"): lambda call, form: call.arguments,
    (ToolResultLine, _Result, "content"): lambda result, form: _returned(result.content, form),
}


def recorded_definitions(found: list[Any]) -> list[Any]:
    return [recorded_definition(one) for one in found]


def recorded_definition(tool: Any) -> Any:
    """A tool as it was recorded, from the way OpenAI writes it."""
    if not isinstance(tool, dict) or RECORDED in tool:
        return tool[RECORDED] if isinstance(tool, dict) else tool
    function = tool.get("function")
    if tool.get(SHAPE) != "anthropic" or not isinstance(function, dict):
        return tool
    return {"input_schema" if key == "parameters" else key: value for key, value in function.items()}
