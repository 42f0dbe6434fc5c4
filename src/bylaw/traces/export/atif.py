"""Writes ATIF: one session a line, as a trajectory of steps. A file with one session is one JSON document.

A session is held in memory until it ends, because its document can be written only as a whole.
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
from bylaw.traces.export.bylaw import LineBuilder, encodes_same, undeferred
from bylaw.traces.formats.atif import content_of, recorded_definition
from bylaw.traces.formats.bylaw.lines import VERSION, Header, Line, RequestLine, TraceEndLine
from bylaw.traces.formats.roundtrip_slots import RECORDED, SHAPE, Slot, slot_of
from bylaw.traces.records.lines import MAX_RECORD

ATIF_VERSION = "ATIF-v1.8"
UNKNOWN = "unknown"
"""stands for what ATIF requires and was not recorded"""
MOST_LEVELS = 40
"""levels of nested agents; deeper ones are placed below the outermost agent"""
_AGENT_ROLES = ("assistant", "agent")


class _CallPlace(Struct, eq=False):
    """The step that holds a call."""

    call: Call
    step: Step
    has_event: bool = False


class _Trajectory:
    """The trajectory of one agent."""

    def __init__(self, origin: Origin, *, level: int) -> None:
        self.origin = origin
        self.level = level
        self.steps: list[Step] = []
        self.slots: list[Slot] = []
        """the lines of events that have no step"""
        self.below: list[_Trajectory] = []
        self._history = History()
        self._model: str | None = None
        self._tools: list[Any] | None = None
        self._definitions: list[Any] | None = None
        self._requests: list[Slot] = []
        """requests that wait for the step of their response"""

    def add(self, number: int, line: Line, event: Event, places: dict[str, _CallPlace]) -> None:
        """`places`: the latest call of each id, of all agents of the session."""
        if isinstance(event, Request):
            self._add_request(number, line, event)
        elif isinstance(event, Response):
            self._add_response(number, line, event, places)
        elif isinstance(event, ToolCall):
            self._add_call(number, line, event, places)
        elif isinstance(event, ToolResult):
            self._add_result(number, line, event, places)
        else:
            assert isinstance(event, Message)
            source = "agent" if event.role in _AGENT_ROLES else "user" if event.role == "user" else "system"
            step = Step(timestamp=timestamp(event.at), source=source, message=text_of(event.content))
            put(step, slot_of(number, line, {}))
            self.steps.append(step)

    def _add_request(self, number: int, line: Line, event: Request) -> None:
        assert isinstance(line, RequestLine)
        held: dict[str, Any] = {}
        messages, tools = undeferred(event.held_messages), undeferred(event.held_tools)
        self._model = self._model or event.model
        if tools is not None and self._defines(tools):
            line.tools = UNSET
            held["tools"] = "agent"
        if messages is not None:
            shared, new, steps = self._history.next(messages)
            line.messages = Raw(msgspec.json.encode(new))
            held["messages"] = shared
            for step in steps[:1]:
                step.timestamp = timestamp(event.at)
            self.steps += steps
        self._requests.append(Slot(number, Raw(msgspec.json.encode(line)), held))

    def _defines(self, tools: list[Any]) -> bool:
        """Whether the trajectory defines these tools; it defines those of the first request."""
        if self._definitions is None and all(isinstance(tool, dict) for tool in tools):
            self._tools, self._definitions = tools, [_definition(tool) for tool in tools]
        return self._tools is tools or (self._tools == tools and encodes_same(self._tools, tools))

    def _add_response(self, number: int, line: Line, event: Response, places: dict[str, _CallPlace]) -> None:
        step = agent_step(event)
        for slot in self._requests:
            put(step, slot)
        self._requests = []
        is_held = event.content is not None and encodes_same(content_of(step), event.content)
        put(step, slot_of(number, line, {"content": "step"} if is_held else {}))
        self.steps.append(step)
        for call in step.tool_calls or ():
            places[call.tool_call_id] = _CallPlace(call, step)

    def _add_call(self, number: int, line: Line, event: ToolCall, places: dict[str, _CallPlace]) -> None:
        place = places.get(event.call_id)
        if place is None or place.has_event or place.call.function_name != event.name:
            call = call_of(event)
            step = Step(timestamp=timestamp(event.at), source="agent", message="", tool_calls=[call])
            self.steps.append(step)
            place = places[event.call_id] = _CallPlace(call, step)
        place.has_event = True
        is_held = encodes_same(place.call.arguments, event.arguments)
        put(place.call, slot_of(number, line, {"arguments": "call"} if is_held else {}))

    def _add_result(self, number: int, line: Line, event: ToolResult, places: dict[str, _CallPlace]) -> None:
        result, form = result_of(event)
        put(result, slot_of(number, line, {} if event.content is None else {"content": form}))
        place = places.get(event.call_id) if event.call_id is not None and event.call is not None else None
        if place is not None:
            place.step.observe(result)
            return
        step = Step(timestamp=timestamp(event.at), source="system", message="")
        step.observe(result)
        self.steps.append(step)

    def document(self, own: dict[str, Any], trajectory_id: str | None) -> dict[str, Any]:
        for number, step in enumerate(self.steps, 1):
            step.step_id = number
        agent: dict[str, Any] = {"name": self.origin.agent or UNKNOWN, "version": UNKNOWN}
        known = {"model_name": self._model, "tool_definitions": self._definitions}
        agent |= {key: value for key, value in known.items() if value is not None}
        events = sorted([*self.slots, *self._requests], key=lambda slot: slot.n)
        return {
            "schema_version": ATIF_VERSION,
            "session_id": self.origin.session,
            **({} if trajectory_id is None else {"trajectory_id": trajectory_id}),
            "agent": agent,
            "steps": self.steps,
            "extra": {"bylaw": {**own, "events": events}},
            **({"subagent_trajectories": self._subagents(own)} if self.below else {}),
        }

    def _subagents(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """The documents of the agents below, each with a unique id."""
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
    """A tool in OpenAI's shape."""
    if "input_schema" not in tool or "parameters" in tool:
        return tool
    function = {"parameters" if key == "input_schema" else key: value for key, value in tool.items()}
    found = {"type": "function", "function": function, SHAPE: "anthropic"}
    return found if recorded_definition(found) == tool else {**found, RECORDED: tool}


class _Session(Struct, eq=False):
    agents: dict[tuple[str | None, str | None], _Trajectory] = {}
    """by run and agent; the first one contains the others"""
    places: dict[str, _CallPlace] = {}
    slots: list[Slot] = []
    """the lines of events that belong to no agent"""

    def add(self, number: int, line: Line, event: Event) -> None:
        if isinstance(event, (SessionStart, SessionEnd, Annotation)):
            self.slots.append(slot_of(number, line, {}))
        else:
            self._trajectory(event.origin).add(number, line, event, self.places)

    def _trajectory(self, origin: Origin) -> _Trajectory:
        key = (origin.run, origin.agent)
        found = self.agents.get(key)
        if found is None:
            above = self.agents.get((origin.parent_run, origin.parent_agent)) or next(iter(self.agents.values()), None)
            if above is not None and above.level == MOST_LEVELS:
                above = next(iter(self.agents.values()))
            found = self.agents[key] = _Trajectory(origin, level=0 if above is None else above.level + 1)
            if above is not None:
                above.below.append(found)
        return found

    def document(self, name: str, own: dict[str, Any]) -> dict[str, Any]:
        first = next(iter(self.agents.values()), None) or _Trajectory(Origin(name), level=0)
        first.slots += self.slots
        return first.document({"trace": VERSION, **own}, first.origin.run)


class AtifWriter:
    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file = file
        self._lines = LineBuilder(None, self._add, histories=None)
        self._sessions: dict[str, _Session] = {}
        self._last: tuple[str, _Session] | None = None
        """the session that ended last: the last one of all carries how the trace ended"""
        self._own: dict[str, Any] = {"header": header}
        """what the next document says about the whole trace"""
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

    def _add(self, number: int, line: Line, event: Event) -> None:
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
