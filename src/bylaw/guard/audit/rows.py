"""A row of the audit → what it tells of. Raises KeyError, TypeError and the like for what no guard has written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bylaw.guard.decision import Attempt
from bylaw.model.events import Annotation, Event, Message, Origin, Request, Response, SessionEnd, SessionStart, ToolCall

OBSERVED = frozenset(
    {"request", "response", "message", "session_start", "session_end", "annotation", "tool_call", "tool_result"}
)
"""kinds of rows that tell of an event which the host has seen"""


def attempt_of(data: Mapping[str, Any]) -> Attempt:
    told = data["attempt"]
    call_id = told.get("call_id") or data.get("call_id") or data["decision"]["call_id"]
    return Attempt(
        tool=told["tool"],
        arguments=told.get("arguments"),
        agent=told.get("agent"),
        session=data["session"],
        run=told.get("run"),
        parent_run=told.get("parent_run"),
        ancestors=tuple(told.get("ancestors", ())),
        ts=told["ts"],
        call_id=call_id,
    )


def event_of(data: Mapping[str, Any]) -> Event | None:
    """None: it is not written down in full."""
    origin = Origin(data["session"], data["run"], data["parent_run"], data["agent"])
    common: dict[str, Any] = {"origin": origin, "at": data["at"]}
    said = data["said"]
    match data["kind"]:
        case "response":
            calls = tuple(ToolCall(name=one["name"], call_id=one["call_id"], **common) for one in said["tool_calls"])
            asked = Request(**common) if said.get("request") else None
            told = {name: said[name] for name in ("text", "stop_reason", "model")}
            return Response(request=asked, tool_calls=calls, **told, **common)
        case "message":
            return Message(role=said["role"], content=said["content"], **common)
        case "request":
            return Request(**common)
        case "session_end":
            return SessionEnd(complete=said["complete"], **common)
        case "session_start":
            return SessionStart(**common)
        case "annotation":
            return Annotation(label="", **common)
        case _:
            return None
