"""Small files in each format, for the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Response, ToolCall, ToolResult, Trace
from bylaw.traces import load_trace

HI = [{"role": "user", "content": "hi"}]
MORE = [*HI, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "yes"}]


def record(kind: str, payload: Any, id: str | None = None, parent: str | None = None, **meta: Any) -> dict[str, Any]:
    """A record of an .agentlog. Its id is no hash: see `quiet`."""
    fields: dict[str, Any] = {"version": "0.1", "kind": kind, "ts": "2026-01-01T00:00:00Z", "payload": payload}
    if id is not None:
        fields["id"] = id
    if parent is not None:
        fields["parent"] = parent
    if meta:
        fields["meta"] = meta
    return fields


def request(messages: Any = HI, id: str | None = None, parent: str | None = None, **meta: Any) -> dict[str, Any]:
    return record("chat_request", {"model": "m", "messages": messages}, id, parent, **meta)


def response(*content: Any, id: str | None = None, parent: str | None = None, **meta: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return record("chat_response", {"model": "m", "content": blocks, "stop_reason": "end_turn"}, id, parent, **meta)


def use(name: str, id: str | None = None, input: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input}


def call(name: str, call_id: str | None = None, arguments: Any = None, **links: Any) -> dict[str, Any]:
    payload = {"tool_name": name, "tool_call_id": call_id, "arguments": {} if arguments is None else arguments}
    return record("tool_call", payload, **links)


def result(call_id: str | None, output: Any = "ok", **links: Any) -> dict[str, Any]:
    payload = {"tool_call_id": call_id, "output": output, "is_error": False, "latency_ms": 3}
    return record("tool_result", payload, **links)


def lines(*records: Any) -> str:
    return "".join(json.dumps(one) + "\n" for one in records)


def write(folder: Path, text: str | bytes, name: str = "trace.agentlog") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(*records: Any, **options: Any) -> Trace:
    """A trace of records that are at hand; warnings about their ids are left out."""
    return quiet(load_trace(lines(*records).encode(), **options))


def quiet(trace: Trace) -> Trace:
    from msgspec.structs import replace

    problems = tuple(p for p in trace.problems if p.code != "id-mismatch")
    notes = tuple(note for note in trace.notes if not note.startswith("ids of"))
    return replace(trace, problems=problems, notes=notes)


def problems_of(data: Any, **options: Any) -> tuple[Diagnostic, ...]:
    """The problems that make a trace unusable."""
    try:
        load_trace(data, **options)
    except InputError as error:
        return error.diagnostics
    raise AssertionError("the trace was read")


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [event.kind for event in events]


def calls(trace: Trace) -> list[tuple[str, str, int | None]]:
    """Name, id and turn of every call, as events."""
    return [(e.name, e.call_id, e.turn) for e in trace.events if isinstance(e, ToolCall)]


def results(trace: Trace) -> list[tuple[str | None, str | None, int | None]]:
    return [(e.name, e.call_id, e.turn) for e in trace.events if isinstance(e, ToolResult)]


def responses(trace: Trace) -> list[Response]:
    return [event for event in trace.events if isinstance(event, Response)]


def sessions(trace: Trace) -> list[str]:
    """The session of every turn."""
    return [event.origin.session for event in responses(trace)]
