"""ATIF: a trajectory of steps, each by the system, the user or the agent, with its calls and what they returned.

Subagents have trajectories of their own inside the same file, and are runs of the same session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from bylaw.model.events import Deferred, Locator, Origin, SessionStart, Usage
from bylaw.model.messages import MessageList
from bylaw.traces.assembly.content import AssistantContent
from bylaw.traces.assembly.conversation import Conversation, Prefix, Settings
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.bylaw.lines import (
    VERSION,
    Header,
    Line,
    RequestLine,
    ResponseLine,
    ToolCallLine,
    ToolResultLine,
)
from bylaw.traces.formats.chat_message import item_of, read_assistant, time_of
from bylaw.traces.formats.reader import ConversationReader, OpenedFile, Reader, add_answer
from bylaw.traces.formats.record import (
    MalformedRecord,
    Path,
    Record,
    list_field,
    object_field,
    suggest,
    text_field,
    type_name,
)
from bylaw.traces.formats.roundtrip_slots import RECORDED, SHAPE, RoundTripReader, Slot
from bylaw.traces.records.jsontext import REFUSED, decode_deferred
from bylaw.traces.records.problems import Place

_SOURCES = ("system", "user", "agent")
_MOST_LEVELS = 50
_METADATA = ("schema_version", "notes", "final_metrics", "extra")


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    return (isinstance(version, str) and version.upper().startswith("ATIF")) or isinstance(value.get("agent"), dict)


def reader(opened: OpenedFile) -> Reader:
    return AtifReader(opened) if own_header(opened.first_record()) is None else OwnAtifReader(opened)


class AtifReader(ConversationReader):
    def read_record(self, record: Record) -> None:
        if not record.expect_object("a trajectory", "steps"):
            return
        value = record.value
        session = self._names.pick(text_field(value, "session_id", "trajectory_id"))
        buffer = self._assembler.session(session)
        metadata = {key: value[key] for key in _METADATA if value.get(key) is not None}
        self._assembler.add(SessionStart(origin=Origin(session), source=record.locator(), metadata=metadata or None))
        self._read_trajectory(record, value, (), Origin(session), 0)
        self._assembler.end_session(buffer)

    def _read_trajectory(self, record: Record, value: dict[str, Any], path: Path, above: Origin, level: int) -> None:
        agent = object_field(value, "agent")
        origin = Origin(
            above.session,
            run=text_field(value, "trajectory_id", "session_id"),
            parent_run=above.run if level else None,
            agent=text_field(agent, "name"),
            parent_agent=above.agent if level else None,
        )
        tools = agent.get("tool_definitions")
        settings = Settings(model=text_field(agent, "model_name"), tools=tools if isinstance(tools, list) else None)
        conversation = Conversation(self._assembler, self._assembler.buffer_for(origin), settings, bounded=False)
        for index, step in enumerate(value["steps"]):
            try:
                self._read_step(conversation, record, step, (*path, "steps", index))
            except MalformedRecord as error:
                record.malformed(error, (*path, "steps", index))
        conversation.end()
        below = list_field(value, "subagent_trajectories") if level < _MOST_LEVELS else []
        for index, one in enumerate(below):
            where = (*path, "subagent_trajectories", index)
            if isinstance(one, dict) and isinstance(one.get("steps"), list):
                self._read_trajectory(record, one, where, origin, level + 1)
            else:
                record.bad("wrong-type", "a trajectory has no list `steps`", where)

    def _read_step(self, conversation: Conversation, record: Record, step: Any, path: Path) -> None:
        if not isinstance(step, dict):
            raise MalformedRecord(f"a step is an object, not {type_name(step)}")
        by = step.get("source")
        if by not in _SOURCES:
            message = f"a step is by {', '.join(_SOURCES)}, not `{by}`"
            help = suggest(by, _SOURCES) if isinstance(by, str) else None
            raise MalformedRecord(message, ("source",), code="unknown-kind", help=help)
        source = record.locator(item_of(path))
        if by == "agent":
            content, _ = add_answer(
                conversation,
                record,
                _answer(step),
                source,
                path=path,
                at=time_of(step),
                model=text_field(step, "model_name"),
                usage=_usage(step.get("metrics")),
            )
            conversation.add_message({"role": "assistant", "content": content})
        else:
            conversation.add_input({"role": by, "content": step.get("message")}, source)
        if step.get("observation") is not None:
            _read_results(conversation, step, source)


def _read_results(conversation: Conversation, step: dict[str, Any], source: Locator) -> None:
    issued = [text_field(call, "tool_call_id") for call in list_field(step, "tool_calls") if isinstance(call, dict)]
    for result in list_field(step["observation"], "results"):
        if not isinstance(result, dict):
            continue
        call_id, content = text_field(result, "source_call_id"), result.get("content")
        call_id = issued[0] if call_id is None and len(issued) == 1 else call_id
        if content is None and result.get("subagent_trajectory_ref") is not None:
            content = result["subagent_trajectory_ref"]
        conversation.add_result(source, time_of(step), call_id, content)
        conversation.add_input({"role": "tool", "tool_call_id": call_id, "content": content}, source)


def _answer(step: dict[str, Any]) -> AssistantContent:
    calls = step.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise MalformedRecord(f"`tool_calls` must be a list, not {type_name(calls)}", ("tool_calls",))
    answer = read_assistant({"content": step.get("message"), "reasoning_content": step.get("reasoning_content")})
    for index, call in enumerate(calls or ()):
        name = call.get("function_name") if isinstance(call, dict) else None
        if not isinstance(name, str):
            raise MalformedRecord("this call has no function name", ("tool_calls", index))
        answer.add_call(call.get("tool_call_id"), name, call.get("arguments"))
    return answer


def _usage(metrics: Any) -> Usage | None:
    if not isinstance(metrics, dict):
        return None
    counts = {"input": "prompt_tokens", "output": "completion_tokens", "read": "cached_tokens"}
    return usage_from_counts(metrics, **{name: metrics.get(key) for name, key in counts.items()})


# Trajectories that Bylaw exported. Each event's slot is in the `extra` of the step, call or result it belongs to. A
# trajectory holds each message once, while requests show the whole conversation. So the slot of a request holds its new
# messages, and how many messages of the previous request come before them. The writer makes the same structs.


MOST_COPIED = 1 << 24
"""messages that the requests of one file may take from earlier ones, apart from simple continuations"""


class Slots(Struct, gc=False):
    bylaw: list[Slot] = []


class Call(Struct, omit_defaults=True, gc=False):
    tool_call_id: Any = None
    function_name: Any = None
    arguments: Any = None
    extra: Slots | None = None


class CallResult(Struct, omit_defaults=True, gc=False):
    source_call_id: Any = None
    content: Any = None
    extra: Slots | None = None


class Observation(Struct, gc=False):
    results: list[CallResult] = []


class Step(Struct, omit_defaults=True, kw_only=True, gc=False):
    step_id: Any = None
    timestamp: Any = None
    source: Any = None
    model_name: Any = None
    message: Any = None
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    observation: Observation | None = None
    metrics: Any = None
    llm_call_count: Any = None
    is_copied_context: Any = None
    extra: Slots | None = None

    def observe(self, result: CallResult) -> None:
        self.observation = self.observation or Observation()
        self.observation.results.append(result)


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
    steps: list[Step] = []
    subagent_trajectories: list[_Trajectory] | None = None
    extra: _Extra | None = None

    @property
    def own(self) -> _Own | None:
        return None if self.extra is None else self.extra.bylaw


_decode = msgspec.json.Decoder(_Trajectory).decode


def own_header(first: bytes) -> Header | None:
    """The header of the file that begins with this record; None if Bylaw did not write it."""
    if b'"bylaw"' not in first:
        return None
    try:
        own = _decode(first).own
    except REFUSED:
        return None
    return None if own is None or not own.trace else own.header or Header(VERSION)


class OwnAtifReader(RoundTripReader):
    def __init__(self, opened: OpenedFile) -> None:
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
        messages = MessageList()
        for slot, place in sorted(_slots(found), key=lambda one: one[0].n):
            line = slot.decoded()
            if isinstance(line, RequestLine):
                messages = self._fill_request(line, slot, messages, found.agent)
            elif isinstance(line, ResponseLine) and isinstance(place, Step) and "content" in slot.held:
                line.content = content_of(place)
            elif isinstance(line, ToolCallLine) and isinstance(place, Call) and "arguments" in slot.held:
                line.arguments = place.arguments
            elif isinstance(line, ToolResultLine) and isinstance(place, CallResult) and "content" in slot.held:
                is_json = slot.held["content"] == "json" and isinstance(place.content, str)
                line.content = msgspec.json.decode(place.content) if is_json else place.content
            yield slot.n, line
        for below in found.subagent_trajectories or ():
            yield from self._trajectory_lines(below)

    def _fill_request(self, line: RequestLine, slot: Slot, before: MessageList, agent: _Agent) -> MessageList:
        """Fill in the messages and tools of a request; returns all messages so far, for the next request."""
        shared, definitions = slot.held.get("messages"), agent.tool_definitions
        deferred: dict[str, Deferred] = {}
        if type(shared) is int and 0 <= shared <= len(before) and line.messages is not UNSET:
            new = decode_deferred(line.messages)
            if shared < len(before):
                self._copied += shared
                if self._copied > MOST_COPIED:
                    raise msgspec.ValidationError("requests take over more messages than a conversation has")
                before = before.branch(0, shared)
            before += new if isinstance(new, list) else []
            deferred["messages"] = Prefix(None, (before, 0, len(before)))
        if "tools" in slot.held and definitions is not None:
            deferred["tools"] = Deferred(lambda found: [recorded_definition(one) for one in found], definitions)
        for field, value in deferred.items():
            setattr(line, field, value)  # the field's type is that of a line in a file of its own
        return before


def _slots(found: _Trajectory) -> Iterator[tuple[Slot, Step | Call | CallResult | None]]:
    """Every slot of a trajectory, and what it is in."""
    for slot in found.own.events if found.own is not None else ():
        yield slot, None
    for step in found.steps:
        results = step.observation.results if step.observation is not None else []
        for place in (step, *(step.tool_calls or ()), *results):
            for slot in place.extra.bylaw if place.extra is not None else ():
                yield slot, place


def content_of(step: Step) -> list[Any]:
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


def recorded_definition(tool: Any) -> Any:
    """A tool as it was recorded, from OpenAI's shape."""
    if not isinstance(tool, dict) or RECORDED in tool:
        return tool[RECORDED] if isinstance(tool, dict) else tool
    function = tool.get("function")
    if tool.get(SHAPE) != "anthropic" or not isinstance(function, dict):
        return tool
    return {"input_schema" if key == "parameters" else key: value for key, value in function.items()}
