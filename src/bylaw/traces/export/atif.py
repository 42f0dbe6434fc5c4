"""Writes ATIF: one session a line, as a trajectory of steps. A file with one session is one JSON document.

A session is held in memory until it ends, because its document can be written only as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import takewhile
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
    Usage,
)
from bylaw.model.messages import MessageSlice, shared_count
from bylaw.traces.assembly.content import read_arguments, read_content
from bylaw.traces.assembly.session_buffer import given_arguments
from bylaw.traces.export.bylaw import LineBuilder, are_strictly_equal, decode_now, has_same_encoding
from bylaw.traces.formats.atif import Call, CallResult, Slots, Step, content_of, recorded_definition
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
        self._history = _History()
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
            step = Step(timestamp=_timestamp(event.at), source=source, message=_text_of(event.content))
            _put(step, slot_of(number, line, {}))
            self.steps.append(step)

    def _add_request(self, number: int, line: Line, event: Request) -> None:
        assert isinstance(line, RequestLine)
        held: dict[str, Any] = {}
        tools = decode_now(event.held_tools)
        self._model = self._model or event.model
        if tools is not None and self._defines(tools):
            line.tools = UNSET
            held["tools"] = "agent"
        if (found := self._history.next(event)) is not None:
            shared, new = found
            line.messages = Raw(msgspec.json.encode(new))
            held["messages"] = shared
            steps = list(_steps(new, is_copied=not self._history.has_begun))
            self._history.has_begun = True
            for step in steps[:1]:
                step.timestamp = _timestamp(event.at)
            self.steps += steps
        self._requests.append(Slot(number, Raw(msgspec.json.encode(line)), held))

    def _defines(self, tools: list[Any]) -> bool:
        """Whether the trajectory defines these tools; it defines those of the first request."""
        if self._definitions is None and all(isinstance(tool, dict) for tool in tools):
            self._tools, self._definitions = tools, [_definition(tool) for tool in tools]
        return self._tools is tools or (self._tools == tools and has_same_encoding(self._tools, tools))

    def _add_response(self, number: int, line: Line, event: Response, places: dict[str, _CallPlace]) -> None:
        step = _agent_step(event)
        for slot in self._requests:
            _put(step, slot)
        self._requests = []
        is_held = event.content is not None and has_same_encoding(content_of(step), event.content)
        _put(step, slot_of(number, line, {"content": "step"} if is_held else {}))
        self.steps.append(step)
        for call in step.tool_calls or ():
            places[call.tool_call_id] = _CallPlace(call, step)

    def _add_call(self, number: int, line: Line, event: ToolCall, places: dict[str, _CallPlace]) -> None:
        place = places.get(event.call_id)
        if place is None or place.has_event or place.call.function_name != event.name:
            call = _call_of(event)
            step = Step(timestamp=_timestamp(event.at), source="agent", message="", tool_calls=[call])
            self.steps.append(step)
            place = places[event.call_id] = _CallPlace(call, step)
        place.has_event = True
        is_held = has_same_encoding(place.call.arguments, event.arguments)
        _put(place.call, slot_of(number, line, {"arguments": "call"} if is_held else {}))

    def _add_result(self, number: int, line: Line, event: ToolResult, places: dict[str, _CallPlace]) -> None:
        result, form = _result_of(event)
        _put(result, slot_of(number, line, {} if event.content is None else {"content": form}))
        place = places.get(event.call_id) if event.call_id is not None and event.call is not None else None
        if place is not None:
            place.step.observe(result)
            return
        step = Step(timestamp=_timestamp(event.at), source="system", message="")
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


# The steps of a trajectory, made from events and from the messages of requests


_OWN_ROLES = ("assistant", "tool", "function")
_SYSTEM_ROLES = ("system", "developer")


def _put(place: Step | Call | CallResult, slot: Slot) -> None:
    place.extra = place.extra or Slots()
    place.extra.bylaw.append(slot)


def _agent_step(response: Response) -> Step:
    thoughts = [
        block for block in response.content or () if isinstance(block, dict) and block.get("type") == "thinking"
    ]
    texts = [text for block in thoughts if isinstance(text := block.get("text", block.get("thinking")), str)]
    return Step(
        timestamp=_timestamp(response.at),
        source="agent",
        model_name=response.model,
        message=response.text or "",
        reasoning_content="\n".join(texts) if texts else None,
        tool_calls=[_call_of(call) for call in response.tool_calls] or None,
        metrics=None if response.usage is None else _metrics(response.usage),
        llm_call_count=1,
    )


def _call_of(call: ToolCall) -> Call:
    """ATIF allows only objects as arguments: anything else is put into one, as its `value`."""
    recorded = given_arguments(call)
    arguments = recorded if isinstance(call.arguments, dict) else {} if recorded is None else {"value": recorded}
    return Call(tool_call_id=call.call_id, function_name=call.name, arguments=arguments)


def _result_of(result: ToolResult) -> tuple[CallResult, str]:
    """The result, and the form in which it holds the content."""
    content, form = result.content, "json"
    if content is None or isinstance(content, str) or _is_texts(content):
        form = "plain"
    else:
        content = msgspec.json.encode(content).decode()
    return CallResult(source_call_id=result.call_id, content=content), form


def _is_texts(content: Any) -> bool:
    """Whether ATIF can express a list: if it holds only texts."""
    return isinstance(content, list) and all(
        isinstance(one, dict) and one.keys() == {"type", "text"} and one["type"] == "text" and type(one["text"]) is str
        for one in content
    )


def _text_of(content: Any) -> str:
    """The text of a message; JSON if it has none."""
    if isinstance(content, (str, list)):
        found = read_content(content)[1]
        if found:
            return found
    return "" if content in (None, "", []) else msgspec.json.encode(content).decode()


def _timestamp(at: str | float | None) -> str | None:
    """A time in ISO 8601, or None if it is not a valid time."""
    try:
        if isinstance(at, str):
            datetime.fromisoformat(at.replace("Z", "+00:00"))
            return at
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _metrics(usage: Usage) -> dict[str, Any] | None:
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_input_tokens,
    }
    more = {"reasoning_tokens": usage.reasoning_tokens, "cache_write_tokens": usage.cache_write_tokens}
    found: dict[str, Any] = {key: count for key, count in counts.items() if count is not None}
    extra = {key: count for key, count in more.items() if count is not None}
    return {**found, **({"extra": extra} if extra else {})} or None


# From messages


class _History:
    """The messages of an agent's latest request, to find out which messages of the next one are new.

    The agent's own messages and results have steps already, unless the trajectory begins in the middle of a
    conversation: then they are copied context.
    """

    def __init__(self) -> None:
        self._latest: MessageSlice = ([], 0, 0)
        self.has_begun = False

    def next(self, request: Request) -> tuple[int, list[Any]] | None:
        """How many messages the next request shares with the previous one, and the new messages.

        None if the messages of the request are not recorded. Only messages that both requests do not share are
        compared.
        """
        now, before = request.message_slice, self._latest
        if now is None:
            return None
        self._latest, shared = now, shared_count(before, now)
        messages, start, end = now
        pairs = zip(before[0][before[1] + shared : before[2]], messages[start + shared : end], strict=False)
        shared += sum(1 for _ in takewhile(lambda pair: are_strictly_equal(*pair), pairs))
        return shared, messages[start + shared : end]


def _steps(messages: list[Any], *, is_copied: bool) -> Iterator[Step]:
    latest: Step | None = None
    for message in messages:
        fields = message if isinstance(message, dict) else {"content": message}
        role, content = fields.get("role"), fields.get("content")
        if role not in _OWN_ROLES:
            if not _holds_only_results(content):
                yield Step(source="system" if role in _SYSTEM_ROLES else "user", message=_text_of(content))
        elif is_copied and role == "assistant":
            blocks = content
            if isinstance(content, list):
                blocks = [
                    block for block in content if not (isinstance(block, dict) and block.get("type") == "tool_use")
                ]
            calls = list(_calls(fields)) or None
            latest = Step(source="agent", message=_text_of(blocks), tool_calls=calls, is_copied_context=True)
            yield latest
        elif is_copied and latest is not None:
            known = {call.tool_call_id for call in latest.tool_calls or ()}
            call_id = fields.get("tool_call_id")
            latest.observe(CallResult(source_call_id=call_id if call_id in known else None, content=_text_of(content)))


def _holds_only_results(content: Any) -> bool:
    """A user's message that holds only results gets no step, because the results have."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(block, dict) and str(block.get("type")).endswith("tool_result") for block in content)
    )


def _calls(fields: dict[str, Any]) -> Iterator[Call]:
    """The calls of an assistant's message, in OpenAI's or Anthropic's shape; calls without a name are left out."""
    content, calls = fields.get("content"), fields.get("tool_calls")
    found: list[tuple[Any, Any, Any]] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            found.append((block.get("id"), block.get("name"), block.get("input")))
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            found.append((call.get("id"), function.get("name"), read_arguments(function.get("arguments"))[0]))
    for call_id, name, input in found:
        if isinstance(name, str):
            id = call_id if isinstance(call_id, str) else ""
            yield Call(tool_call_id=id, function_name=name, arguments=input if isinstance(input, dict) else {})
