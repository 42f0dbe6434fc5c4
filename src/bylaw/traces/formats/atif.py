"""ATIF: a trajectory of steps, each by the system, the user or the agent, with its calls and what they returned.

Subagents have trajectories of their own, inside of the same file, and are runs of the same session.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Origin, SessionStart, ToolResult, Usage
from bylaw.model.source import Locator
from bylaw.traces.assembly.content import calls_in, read_content
from bylaw.traces.assembly.conversation import Answer, Conversation, Settings
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.formats.chat_message import (
    Misshapen,
    Path,
    Said,
    add_use,
    item_of,
    said,
    text_field,
    time_of,
)
from bylaw.traces.formats.reader import ConversationReader
from bylaw.traces.formats.record import Record, a_type, near
from bylaw.traces.formats.spans.span import tokens

_SOURCES = ("system", "user", "agent")
_MOST_LEVELS = 50
_TOLD = ("schema_version", "notes", "final_metrics", "extra")


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    return (isinstance(version, str) and version.upper().startswith("ATIF")) or isinstance(value.get("agent"), dict)


class AtifReader(ConversationReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
            what = "has no list `steps`" if isinstance(value, dict) else f"is an object, not {a_type(value)}"
            record.bad("wrong-type", f"a trajectory {what}")
            return
        session = self._names.pick(text_field(value, "session_id", "trajectory_id"))
        lane = self._assembler.lane(session)
        told = {key: value[key] for key in _TOLD if value.get(key) is not None}
        self._assembler.add(SessionStart(origin=Origin(session), source=record.locator(), metadata=told or None))
        self._trajectory(record, value, (), Origin(session), 0)
        self._assembler.end_session(lane)

    def _trajectory(self, record: Record, value: dict[str, Any], path: Path, above: Origin, level: int) -> None:
        agent = value.get("agent")
        agent = agent if isinstance(agent, dict) else {}
        run = text_field(value, "trajectory_id", "session_id")
        name = text_field(agent, "name")
        origin = Origin(
            above.session,
            run=run,
            parent_run=above.run if level else None,
            agent=name,
            parent_agent=above.agent if level else None,
        )
        tools = agent.get("tool_definitions")
        settings = Settings(model=text_field(agent, "model_name"), tools=tools if isinstance(tools, list) else None)
        conversation = Conversation(self._assembler, self._assembler.lane_for(origin), settings, bounded=False)
        for index, step in enumerate(value["steps"]):
            try:
                self._step(conversation, record, step, (*path, "steps", index))
            except Misshapen as error:
                record.bad(error.code, error.message, (*path, "steps", index, *error.path), help=error.help)
        conversation.end()
        below = value.get("subagent_trajectories")
        for index, one in enumerate(below if isinstance(below, list) and level < _MOST_LEVELS else ()):
            where = (*path, "subagent_trajectories", index)
            if isinstance(one, dict) and isinstance(one.get("steps"), list):
                self._trajectory(record, one, where, origin, level + 1)
            else:
                record.bad("wrong-type", "a trajectory has no list `steps`", where)

    def _step(self, conversation: Conversation, record: Record, step: Any, path: Path) -> None:
        if not isinstance(step, dict):
            raise Misshapen(f"a step is an object, not {a_type(step)}")
        by = step.get("source")
        if by not in _SOURCES:
            help = near(by, _SOURCES) if isinstance(by, str) else None
            raise Misshapen(
                f"a step is by {', '.join(_SOURCES)}, not `{by}`", ("source",), code="unknown-kind", help=help
            )
        source = record.locator(item_of(path))
        if by == "agent":
            self._agent(conversation, record, step, path, source)
        else:
            conversation.heard({"role": by, "content": step.get("message")}, source)
        if step.get("observation") is not None:
            self._observed(conversation, step, source)

    def _agent(
        self, conversation: Conversation, record: Record, step: dict[str, Any], path: Path, source: Locator
    ) -> None:
        told, at = _said(step), time_of(step)
        calls, shared = calls_in(told.uses, conversation.origin, conversation.turn, at, source, told.arguments)
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id), path)
        content, text, _ = read_content(told.blocks)
        conversation.answered(
            Answer(
                content=content,
                text=text,
                calls=calls,
                at=at,
                source=source,
                model=text_field(step, "model_name"),
                usage=_usage(step.get("metrics")),
            )
        )
        conversation.said({"role": "assistant", "content": content})

    def _observed(self, conversation: Conversation, step: dict[str, Any], source: Locator) -> None:
        observation = step["observation"]
        results = observation.get("results") if isinstance(observation, dict) else None
        at, origin = time_of(step), conversation.origin
        for result in results if isinstance(results, list) else ():
            if not isinstance(result, dict):
                continue
            call_id, content = text_field(result, "source_call_id"), result.get("content")
            if content is None and result.get("subagent_trajectory_ref") is not None:
                content = result["subagent_trajectory_ref"]
            if call_id is not None:
                conversation.result(ToolResult(origin=origin, at=at, source=source, call_id=call_id, content=content))
            conversation.heard({"role": "tool", "tool_call_id": call_id, "content": content}, source)


def _said(step: dict[str, Any]) -> Said:
    calls = step.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise Misshapen(f"`tool_calls` must be a list, not {a_type(calls)}", ("tool_calls",))
    told = said({"content": step.get("message"), "reasoning_content": step.get("reasoning_content")})
    for index, call in enumerate(calls or ()):
        name = call.get("function_name") if isinstance(call, dict) else None
        if not isinstance(name, str):
            raise Misshapen("this call has no function name", ("tool_calls", index))
        add_use(told, call.get("tool_call_id"), name, call.get("arguments"))
    return told


def _usage(metrics: Any) -> Usage | None:
    if not isinstance(metrics, dict):
        return None
    return tokens(
        metrics,
        input=metrics.get("prompt_tokens"),
        output=metrics.get("completion_tokens"),
        read=metrics.get("cached_tokens"),
    )
