"""Writes ATIF: one session a line, as a trajectory of steps. A file with one session is one JSON document.

The trajectory of one agent, and those of a session put together into one document.

Writes ATIF. A session is held until it ends, since its document can be written only as a whole.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec
from msgspec import UNSET, Raw, Struct

from bylaw.model.events import (
    Annotation,
    Event,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
)
from bylaw.traces.export.atif_steps import Call, History, Step, agent_step, call_of, put, result_of, text_of, timestamp
from bylaw.traces.export.lines import Lines, undeferred
from bylaw.traces.formats.bylaw.lines import VERSION as VERSION_writer
from bylaw.traces.formats.bylaw.lines import Header, Line, RequestLine, TraceEndLine
from bylaw.traces.formats.roundtrip.atif import content_of, recorded_definition
from bylaw.traces.formats.roundtrip.lines import RECORDED, SHAPE, Slot, slot_of
from bylaw.traces.records.lines import MAX_RECORD

VERSION = "ATIF-v1.8"
UNKNOWN = "unknown"
"""stands for what ATIF demands and nobody recorded"""
_AGENTS = ("assistant", "agent")


class Place(Struct, eq=False):
    """Where a call is told."""

    call: Call
    step: Step
    has_event: bool = False


class Trajectory:
    def __init__(self, origin: Origin, *, level: int) -> None:
        self.origin = origin
        self.level = level
        self.steps: list[Step] = []
        self.rest: list[Slot] = []
        """the lines of what has no step"""
        self.below: list[Trajectory] = []
        self._history = History()
        self._model: str | None = None
        self._tools: list[Any] | None = None
        self._definitions: list[Any] | None = None
        self._asked: list[Slot] = []
        """requests that wait for the step of their response"""

    def add(self, number: int, line: Line, event: Event, places: dict[str, Place]) -> None:
        """`places`: the latest call of each id, of all agents of the session."""
        if isinstance(event, Request):
            self._request(number, line, event)
        elif isinstance(event, Response):
            self._response(number, line, event, places)
        elif isinstance(event, ToolCall):
            self._call(number, line, event, places)
        elif isinstance(event, ToolResult):
            self._result(number, line, event, places)
        else:
            assert isinstance(event, Message)
            source = "agent" if event.role in _AGENTS else "user" if event.role == "user" else "system"
            step = Step(timestamp=timestamp(event.at), source=source, message=text_of(event.content))
            put(step, slot_of(number, line, {}))
            self.steps.append(step)

    def _request(self, number: int, line: Line, event: Request) -> None:
        assert isinstance(line, RequestLine)
        held: dict[str, Any] = {}
        messages, tools = undeferred(event.held_messages), undeferred(event.held_tools)
        self._model = self._model or event.model
        if tools is not None and self._define(tools):
            line.tools = UNSET
            held["tools"] = "agent"
        if messages is not None:
            kept, new, steps = self._history.next(messages)
            line.messages = Raw(msgspec.json.encode(new))
            held["messages"] = kept
            for step in steps[:1]:
                step.timestamp = timestamp(event.at)
            self.steps += steps
        self._asked.append(Slot(number, Raw(msgspec.json.encode(line)), held))

    def _define(self, tools: list[Any]) -> bool:
        """Whether these are the tools that the trajectory names; those of the first request are."""
        if self._definitions is None and all(isinstance(tool, dict) for tool in tools):
            self._tools, self._definitions = tools, [_definition(tool) for tool in tools]
        return self._tools is tools or (
            self._tools == tools and msgspec.json.encode(self._tools) == msgspec.json.encode(tools)
        )

    def _response(self, number: int, line: Line, event: Response, places: dict[str, Place]) -> None:
        step = agent_step(event)
        for slot in self._asked:
            put(step, slot)
        self._asked = []
        same = event.content is not None and msgspec.json.encode(content_of(step)) == msgspec.json.encode(event.content)
        put(step, slot_of(number, line, {"content": "step"} if same else {}))
        self.steps.append(step)
        for call in step.tool_calls or ():
            places[call.tool_call_id] = Place(call, step)

    def _call(self, number: int, line: Line, event: ToolCall, places: dict[str, Place]) -> None:
        place = places.get(event.call_id)
        if place is None or place.has_event or place.call.function_name != event.name:
            call = call_of(event)
            step = Step(timestamp=timestamp(event.at), source="agent", message="", tool_calls=[call])
            self.steps.append(step)
            place = places[event.call_id] = Place(call, step)
        place.has_event = True
        same = msgspec.json.encode(place.call.arguments) == msgspec.json.encode(event.arguments)
        put(place.call, slot_of(number, line, {"arguments": "call"} if same else {}))

    def _result(self, number: int, line: Line, event: ToolResult, places: dict[str, Place]) -> None:
        result, form = result_of(event)
        put(result, slot_of(number, line, {} if event.content is None else {"content": form}))
        place = places.get(event.call_id) if event.call_id is not None and event.call is not None else None
        if place is not None:
            place.step.observe(result)
            return
        step = Step(timestamp=timestamp(event.at), source="system", message="")
        step.observe(result)
        self.steps.append(step)

    # The document

    def document(self, own: dict[str, Any], trajectory_id: str | None) -> dict[str, Any]:
        for number, step in enumerate(self.steps, 1):
            step.step_id = number
        agent: dict[str, Any] = {"name": self.origin.agent or UNKNOWN, "version": UNKNOWN}
        known = {"model_name": self._model, "tool_definitions": self._definitions}
        agent |= {key: value for key, value in known.items() if value is not None}
        events = sorted([*self.rest, *self._asked], key=lambda slot: slot.n)
        return {
            "schema_version": VERSION,
            "session_id": self.origin.session,
            **({} if trajectory_id is None else {"trajectory_id": trajectory_id}),
            "agent": agent,
            "steps": self.steps,
            "extra": {"bylaw": {**own, "events": events}},
            **({"subagent_trajectories": self._below(own)} if self.below else {}),
        }

    def _below(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """Those of the agents below, each under an id that no other has."""
        taken: dict[str, int] = {}
        found = []
        for one in self.below:
            wanted = one.origin.run or one.origin.agent or UNKNOWN
            while wanted in taken:
                taken[wanted] += 1
                wanted = f"{wanted}#{taken[wanted]}"
            taken[wanted] = 1
            found.append(one.document({"trace": own["trace"]}, wanted))
        return found


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as OpenAI writes it."""
    if "input_schema" not in tool or "parameters" in tool:
        return tool
    function = {"parameters" if key == "input_schema" else key: value for key, value in tool.items()}
    found = {"type": "function", "function": function, SHAPE: "anthropic"}
    return found if recorded_definition(found) == tool else {**found, RECORDED: tool}


MOST_LEVELS = 40
"""agents inside of each other; deeper ones stand beside the outermost"""
_Key = tuple[str | None, str | None]


class _Session(Struct, eq=False):
    agents: dict[_Key, Trajectory] = {}
    """by run and agent; the first one is around the others"""
    places: dict[str, Place] = {}
    rest: list[Slot] = []
    """the lines of what is no step of any agent"""

    def add(self, number: int, line: Line, event: Event) -> None:
        if isinstance(event, (SessionStart, SessionEnd, Annotation)):
            self.rest.append(slot_of(number, line, {}))
        else:
            self.of(event.origin).add(number, line, event, self.places)

    def of(self, origin: Origin) -> Trajectory:
        key = (origin.run, origin.agent)
        found = self.agents.get(key)
        if found is None:
            above = self.agents.get((origin.parent_run, origin.parent_agent)) or next(iter(self.agents.values()), None)
            if above is not None and above.level == MOST_LEVELS:
                above = next(iter(self.agents.values()))
            found = self.agents[key] = Trajectory(origin, level=0 if above is None else above.level + 1)
            if above is not None:
                above.below.append(found)
        return found

    def document(self, name: str, own: dict[str, Any]) -> dict[str, Any]:
        first = next(iter(self.agents.values()), None) or Trajectory(Origin(name), level=0)
        first.rest += self.rest
        return first.document({"trace": VERSION_writer, **own}, first.origin.run)


class AtifWriter:
    def __init__(self, file: IO[bytes], *, name: str, format: str | None, header: dict[str, Any]) -> None:
        self._file = file
        self._lines = Lines(None, self._take)
        self._sessions: dict[str, _Session] = {}
        self._last: tuple[str, _Session] | None = None
        """the latest session that ended: whichever is the last of all tells how the trace ended"""
        self._own: dict[str, Any] = {
            "header": Header(VERSION_writer, name=name, format=format, complete="marked", resolved=True, header=header)
        }
        """what the next document says of the whole"""
        self._too_long = 0

    def write(self, event: Event) -> None:
        self._lines.write(event)

    def finish(self, end: TraceEndLine) -> None:
        self._lines.release()
        for name, session in self._sessions.items():
            self._end(name, session)
        self._own["end"] = slot_of(self._lines.number + 1, end, {})
        if self._last is not None:
            self._put(*self._last)

    def remarks(self) -> list[str]:
        if not self._too_long:
            return []
        are = "1 session is" if self._too_long == 1 else f"{self._too_long:,} sessions are"
        return [f"{are} longer than the {MAX_RECORD >> 20} MiB that Bylaw reads"]

    def _take(self, number: int, line: Line, event: Event) -> None:
        name = event.origin.session
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session()
        session.add(number, line, event)
        if isinstance(event, SessionEnd):
            self._end(name, self._sessions.pop(name))

    def _end(self, name: str, session: _Session) -> None:
        if self._last is not None:
            self._put(*self._last)
        self._last = name, session

    def _put(self, name: str, session: _Session) -> None:
        line = msgspec.json.encode(session.document(name, self._own)) + b"\n"
        self._own = {}
        self._too_long += len(line) > MAX_RECORD
        self._file.write(line)
