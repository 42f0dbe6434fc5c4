"""A trace with everything in it that a timeline has to show."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from bylaw.inspect.model import Entry, Selection, TurnEntry
from bylaw.inspect.report.terminal import Page
from bylaw.inspect.timeline import Timeline
from bylaw.model.events import (
    Annotation,
    Event,
    Locator,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
    Trace,
    Usage,
)

MAIN = Origin("ticket-7", run="r1", agent="support")
HELPER = Origin("ticket-7", run="r2", parent_run="r1", agent="researcher", parent_agent="support")
OTHER = Origin("ticket-8")
SYSTEM = {"role": "system", "content": "You are the refund agent of a small shop.\nBe kind. " + "Be brief. " * 30}
USER = {"role": "user", "content": "My lamp arrived broken. 灯が壊れた 💡"}


def call(origin: Origin, turn: int, name: str, id: str, args: object = None, group: int | None = None) -> ToolCall:
    raw = args if isinstance(args, str) else None
    return ToolCall(
        origin=origin,
        turn=turn,
        name=name,
        call_id=id,
        arguments=None if raw else args,
        raw_arguments=raw,
        group=group,
        source=Locator("run.jsonl", turn + 1),
    )


def result(of: ToolCall, content: object, *, error: bool | None = None, took: float | None = None) -> ToolResult:
    return ToolResult(
        origin=of.origin,
        turn=of.turn,
        call_id=of.call_id,
        name=of.name,
        content=content,
        is_error=error,
        latency_ms=took,
        call=of,
    )


def everything() -> Trace:
    lookup = call(MAIN, 0, "lookup_order", "c1", {"order_id": "A-17", "fields": ["amount", "status"]}, group=0)
    ask = call(MAIN, 0, "ask_researcher", "c2", {"question": "is it\nrefundable?"}, group=0)
    refund = call(MAIN, 2, "refund", "c3", "{order_id: A-17")
    said = {"role": "assistant", "content": "Let me look.", "tool_calls": [_use(lookup), _use(ask)]}
    found = [_told("c1", '{"amount": 45.0}'), _told("c2", "it is refundable")]
    first = Request(origin=MAIN, turn=0, model="gpt-4o-mini", held_messages=[SYSTEM, USER])
    third = Request(origin=MAIN, turn=2, model="gpt-4o-mini", held_messages=[SYSTEM, USER, said, *found])
    events: list[Event] = [
        SessionStart(origin=MAIN, metadata={"task_id": 7, "channel": "mail"}),
        first,
        Response(
            origin=MAIN,
            turn=0,
            at="2026-01-02T10:00:00Z",
            request=first,
            text="Let me look.",
            content=[{"type": "thinking", "text": "an order was named"}, {"type": "text", "text": "Let me look."}],
            tool_calls=(lookup, ask),
            stop_reason="tool_calls",
            latency_ms=1234.5,
            usage=Usage(812, 40, 700),
            source=Locator("run.jsonl", 1),
        ),
        lookup,
        ask,
        result(lookup, '{"amount": 45.0}', took=120.0),
        Response(origin=HELPER, turn=1, at="2026-01-02T10:00:04Z", text="It is refundable.", usage=Usage(10, None)),
        Annotation(origin=HELPER, label="approval", data={"by": "\x1b[31mme"}),
        result(ask, "it is refundable"),
        third,
        Response(origin=MAIN, turn=2, at="2026-01-02T10:01:15Z", request=third, text="", tool_calls=(refund,)),
        refund,
        result(refund, "arguments are no JSON", error=True),
        Message(origin=MAIN, role="user", content="thanks"),
        SessionEnd(origin=MAIN, complete=False),
        Response(origin=OTHER, turn=3),
        Request(origin=OTHER, turn=4, held_messages=[{"role": "user", "content": "hello?"}]),
    ]
    return Trace(name="run.jsonl", format="bylaw", events=tuple(events), complete=False, notes=("one request waits",))


def _use(call: ToolCall) -> dict[str, object]:
    return {"id": call.call_id, "function": {"name": call.name, "arguments": call.arguments}}


def _told(id: str, content: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def entries(trace: Trace, **asked: object) -> list[Entry]:
    return list(Timeline(trace, Selection(**asked)))  # type: ignore[arg-type]


def turns(trace: Trace, **asked: object) -> list[TurnEntry]:
    return [entry for entry in entries(trace, **asked) if isinstance(entry, TurnEntry)]


def page(shown: Iterable[Entry], *, width: int = 100, full: bool = False) -> str:
    """As a terminal without colours shows it."""
    made = Page(width=width, full=full)
    return "".join(click.unstyle(made.entry(entry)) for entry in shown)


def controls(text: str) -> list[str]:
    return re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", text)
