"""ATIF: a trajectory of steps, each by the system, the user or the agent, with its calls and what they returned.

Subagents have trajectories of their own inside the same file, and are runs of the same session.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Origin, SessionStart, Usage
from bylaw.model.source import Locator
from bylaw.traces.assembly.content import AssistantContent
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.chat_message import item_of, read_assistant, time_of
from bylaw.traces.formats.reader import ConversationReader, Opened, Reader, add_answer
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
from bylaw.traces.formats.roundtrip_atif import OwnAtifReader, is_own_export

_SOURCES = ("system", "user", "agent")
_MOST_LEVELS = 50
_METADATA = ("schema_version", "notes", "final_metrics", "extra")


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    return (isinstance(version, str) and version.upper().startswith("ATIF")) or isinstance(value.get("agent"), dict)


def reader(opened: Opened) -> Reader:
    return OwnAtifReader(opened) if is_own_export(opened.first_record()) else AtifReader(opened)


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
