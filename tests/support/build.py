"""Traces in short form, for cases and tests.

A trace is a list of turns. A turn is a mapping with any of: `session`, `text` (`null` = content not recorded), `calls`
(names, or `{name, args, raw, id}`), `stop`, `tokens` (`[input, output]`), `latency`, `model`, and `request` (a mapping
of model, messages, params, tools, metadata). `{end: SESSION}` ends a session; `{end: SESSION, complete: false}` early.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Event, Origin, Request, Response, SessionEnd, ToolCall, Usage
from bylaw.model.source import Locator
from bylaw.model.trace import Trace


def trace(turns: list[dict[str, Any]], *, complete: bool = True, name: str = "trace") -> Trace:
    events: list[Event] = []
    index = 0
    for line, turn in enumerate(turns, 1):
        if "end" in turn:
            events.append(SessionEnd(origin=Origin(str(turn["end"])), complete=turn.get("complete", True)))
            continue
        events += _turn(turn, index, Locator(name, line))
        index += 1
    return Trace(name=name, events=tuple(events), complete=complete)


_KEYS = {"session", "text", "calls", "stop", "tokens", "latency", "model", "request", "content"}


def _turn(turn: dict[str, Any], index: int, source: Locator) -> list[Event]:
    unknown = turn.keys() - _KEYS
    assert not unknown, f"unknown keys in a turn: {unknown}"
    common = {"origin": Origin(str(turn.get("session", "1"))), "turn": index, "source": source}
    request = _request(turn["request"], common) if "request" in turn else None
    calls = tuple(_call(call, k, common) for k, call in enumerate(turn.get("calls", ())))
    text = turn.get("text", "")
    response = Response(
        **common,
        request=request,
        model=turn.get("model"),
        text=text,
        content=turn["content"] if "content" in turn else _content(text, calls),
        tool_calls=calls,
        stop_reason=turn.get("stop"),
        latency_ms=turn.get("latency"),
        usage=Usage(*turn["tokens"]) if "tokens" in turn else None,
    )
    return [*([request] if request else []), response, *calls]


def _content(text: str | None, calls: tuple[ToolCall, ...]) -> list[Any] | None:
    if text is None:
        return None
    uses = [{"type": "tool_use", "id": c.call_id, "name": c.name, "input": c.arguments} for c in calls]
    return ([{"type": "text", "text": text}] if text else []) + uses


def _request(fields: dict[str, Any], common: dict[str, Any]) -> Request:
    held = {"messages": "held_messages", "tools": "held_tools"}
    return Request(**common, **{held.get(name, name): value for name, value in fields.items()})


def _call(call: str | dict[str, Any], k: int, common: dict[str, Any]) -> ToolCall:
    fields = {"name": call} if isinstance(call, str) else call
    return ToolCall(
        **common,
        name=fields["name"],
        call_id=str(fields.get("id", f"t{common['turn']}.{k}")),
        arguments=fields.get("args"),
        raw_arguments=fields.get("raw"),
    )
