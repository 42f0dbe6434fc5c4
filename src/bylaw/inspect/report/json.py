"""A timeline for programs: JSON lines in full. The first names the trace, the last holds the totals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from bylaw.inspect.model import (
    Difference,
    Entry,
    EventEntry,
    Input,
    KnownSum,
    PairEntry,
    Part,
    RequestEntry,
    SessionEntry,
    SideBySide,
    Totals,
    TurnEntry,
)
from bylaw.inspect.report.side_by_side import difference_line
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Annotation, Event, Message, Origin, SessionEnd, ToolCall, ToolResult
from bylaw.model.ports import TraceSource
from bylaw.report.diagnostics import diagnostic_as_json


def trace_line(name: str, format: str | None) -> str:
    return _line({"schema": "bylaw.inspect/1", "job": "inspect", "kind": "trace", "trace": name, "format": format})


def entry_line(entry: Entry) -> str:
    return _line(_entry(entry))


def end_line(totals: Totals, source: TraceSource, *, exit_code: int) -> str:
    """The totals, and how the trace was read."""
    problems = [diagnostic_as_json(problem) for problem in source.problems]
    read = {"complete": source.complete, "skipped": source.skipped, "notes": list(source.notes), "problems": problems}
    return _line({"kind": "end", **totals_fields(totals), **read, "exit_code": exit_code})


def bad_input_line(diagnostics: Sequence[Diagnostic], exit_code: int) -> str:
    fields = [diagnostic_as_json(problem) for problem in diagnostics]
    return _line({"schema": "bylaw.inspect/1", "kind": "end", "diagnostics": fields, "exit_code": exit_code})


def totals_fields(totals: Totals) -> dict[str, Any]:
    sums = ("input_tokens", "output_tokens", "cached_tokens", "all_tokens", "latency_ms", "cost")
    return {
        **_pick(totals, "events", "sessions", "turns", "calls", "failed", "shown", "agents", "models", "tools"),
        **{name: _known_sum(getattr(totals, name)) for name in sums},
        **_pick(totals, "first", "last"),
        "by_session": {
            name: {
                **_pick(one, "turns", "calls", "first", "last", "lasted"),
                **{"tokens": _known_sum(one.tokens), "cost": _known_sum(one.cost)},
            }
            for name, one in totals.by_session.items()
        },
    }


def _pick(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _known_sum(known: KnownSum) -> dict[str, Any]:
    return {"total": known.sum, "turns": known.turns}


# -- entries -----------------------------------------------------------------------------------------------------------


def _entry(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, SessionEntry):
        return {"kind": "session", **_pick(entry, "session", "metadata", "continued")}
    if isinstance(entry, TurnEntry):
        return {"kind": "turn", **_turn(entry)}
    if isinstance(entry, RequestEntry):
        request = entry.request
        return {"kind": "request", "turn": request.turn, **_origin(request.origin), **_input(entry.input)}
    assert isinstance(entry, EventEntry)
    return {**_event(entry.event), **_origin(entry.event.origin), "depth": entry.depth}


def _turn(entry: TurnEntry) -> dict[str, Any]:
    response = entry.response
    return {
        "turn": entry.turn,
        **_origin(entry.origin),
        "depth": entry.depth,
        "at": response.at,
        "since": entry.since,
        "model": entry.model,
        **_input(entry.input),
        "thoughts": [_part(part) for part in entry.thoughts],
        "text": response.text,
        "calls": [
            {**_event(one.call), "parallel": one.parallel, "results": list(map(_event, one.results))}
            for one in entry.calls
        ],
        "other_calls": entry.other_calls,
        "beside": [_event(event) for event in entry.beside],
        "stop_reason": response.stop_reason,
        "latency_ms": response.latency_ms,
        "usage": None if response.usage is None else msgspec.to_builtins(response.usage),
        "cost": entry.cost,
        "source": _source(response),
    }


def _origin(origin: Origin) -> dict[str, Any]:
    return _pick(origin, "session", "run", "parent_run", "agent")


def _input(new: Input) -> dict[str, Any]:
    heard = [{"role": message.role, "parts": [_part(part) for part in message.parts]} for message in new.messages]
    return {"heard": heard, "repeated": new.repeated, "dropped": new.dropped}


def _part(part: Part) -> dict[str, Any]:
    fields = _pick(part, "text", "name", "call_id", "value", "is_error")
    return {"kind": part.kind, **{name: value for name, value in fields.items() if value is not None}}


def _event(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": event.kind, "turn": event.turn, "at": event.at, "source": _source(event)}
    if isinstance(event, ToolCall):
        names: tuple[str, ...] = ("name", "namespace", "call_id", "arguments", "raw_arguments", "group")
    elif isinstance(event, ToolResult):
        names = ("name", "call_id", "content", "is_error", "latency_ms")
    elif isinstance(event, Message):
        names = ("role", "content")
    else:
        names = ("label", "data") if isinstance(event, Annotation) else ("complete",)
    assert isinstance(event, ToolCall | ToolResult | Message | Annotation | SessionEnd)
    return {**fields, **_pick(event, *names)}


def _source(event: Event) -> str | None:
    return None if event.source is None else str(event.source)


# -- two traces --------------------------------------------------------------------------------------------------------


def comparison_lines(report: SideBySide, exit_code: int) -> Iterator[str]:
    first: dict[str, Any] | None = None
    if report.first is not None:
        difference = report.first.differences[0]
        where = {"turn": report.first.turn, "session": report.first_session}
        first = {**where, "told": difference_line(difference), **_difference(difference)}
    yield _line(
        {
            "schema": "bylaw.inspect/1",
            "job": "inspect",
            "kind": "comparison",
            "baseline": report.names[0],
            "candidate": report.names[1],
            "pairs": report.pairs,
            "differing": report.differing,
            "first_difference": first,
            "input_differs_at": report.input_differs_at,
            "notes": list(report.notes),
        }
    )
    for session in report.sessions:
        yield _line({"kind": "session", "baseline": session.baseline, "candidate": session.candidate})
        yield from (_line(_pair(pair)) for pair in session.pairs)
    totals = [totals_fields(one) for one in report.totals]
    yield _line({"kind": "end", "baseline": totals[0], "candidate": totals[1], "exit_code": exit_code})


def _pair(pair: PairEntry) -> dict[str, Any]:
    return {
        "kind": "pair",
        "turn": pair.turn,
        "differences": [_difference(one) for one in pair.differences],
        "baseline": None if pair.baseline is None else _turn(pair.baseline),
        "candidate": None if pair.candidate is None else _turn(pair.candidate),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return _pick(difference, "aspect", "what", "baseline", "candidate", "call")


def _line(fields: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(fields).decode() + "\n"
    except (ValueError, OverflowError, TypeError, RecursionError):
        # msgspec does not encode lone surrogates and integers beyond 64 bits
        return json.dumps(fields, default=str) + "\n"
