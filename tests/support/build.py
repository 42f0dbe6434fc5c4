"""Traces in short form, for cases and tests.

A trace is a list of items, most of them turns. A turn is a mapping with any of: `session`, `agent`, `run`, `at` (the
response's time: seconds or RFC 3339), `text` (`null` = content not recorded), `content` (blocks, instead of those that
`text` and `calls` make), `calls`, `unlisted` (true: the response does not list its calls), `results`, `stop`, `tokens`
(`[input, output]`), `latency`, `model`, and `request` (a mapping of model, messages, params, tools, metadata).

- A call is a name, or `{name, args, raw, id, at, after, unordered}`. `after: 2` stands behind the first two results of
  the turn; without it, a call stands before all of them. `unordered` lists tools as in the event.
- A result is `{of, content, error, at}`, where `of` is the index or the name of a call of the turn (of several calls
  with one name the first). A name alone is a result with content "ok".
- Calls and results have the turn's time where they name none themselves; `at: null` is a time not recorded.

Other items stand between turns:

- `{result: {of: CALL ID, content, error, at, name}, session}`: a result recorded later. It belongs to the turn of the
  latest call with that id, and where there is none to the latest turn of its session.
- `{message: {role, content, at}, session}`: something said outside any request, by the user where no `role` is given.
- `{end: SESSION}` ends a session, `{end: SESSION, complete: false}` early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bylaw.model.events import (
    Event,
    Locator,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    ToolCall,
    ToolResult,
    Trace,
    Usage,
)

Item = dict[str, Any]


def trace(turns: list[Item], *, complete: bool = True, name: str = "trace") -> Trace:
    events: list[Event] = []
    index = 0
    for line, item in enumerate(turns, 1):
        source = Locator(name, line)
        beside = next((make for key, make in _BESIDE_TURNS.items() if key in item), None)
        if beside is not None:
            events.append(beside(item, events, source))
            continue
        events += _turn(item, index, source)
        index += 1
    return Trace(name=name, events=tuple(events), complete=complete)


# -- turns ------------------------------------------------------------------------------------------------------------

_KEYS = {"session", "agent", "run", "at", "text", "content", "calls", "results"}
_KEYS |= {"unlisted", "stop", "tokens", "latency", "model", "request"}


def _turn(turn: Item, index: int, source: Locator) -> list[Event]:
    _only(turn, _KEYS, "a turn")
    common: Item = {"origin": _origin(turn), "turn": index, "source": source, "at": turn.get("at")}
    request = _request(turn["request"], common) if "request" in turn else None
    calls = tuple(_call(call, k, common) for k, call in enumerate(turn.get("calls", ())))
    text = turn.get("text", "")
    response = Response(
        **common,
        request=request,
        model=turn.get("model"),
        text=text,
        content=turn["content"] if "content" in turn else _content(text, calls),
        tool_calls=() if turn.get("unlisted") else calls,
        stop_reason=turn.get("stop"),
        latency_ms=turn.get("latency"),
        usage=Usage(*turn["tokens"]) if "tokens" in turn else None,
    )
    results = [_result(result, calls, common) for result in turn.get("results", ())]
    return [*([request] if request else []), response, *_in_order(turn.get("calls", ()), calls, results)]


def _in_order(reported: list[Any], calls: tuple[ToolCall, ...], results: list[ToolResult]) -> list[Event]:
    places = [call.get("after", 0) if isinstance(call, dict) else 0 for call in reported]
    found: list[Event] = []
    for i in range(len(results) + 1):
        found += [call for call, place in zip(calls, places, strict=True) if place == i]
        found += results[i : i + 1]
    assert len(found) == len(calls) + len(results), "a call stands after more results than there are"
    return found


def _origin(item: Item) -> Origin:
    return Origin(str(item.get("session", "1")), run=item.get("run"), agent=item.get("agent"))


def _content(text: str | None, calls: tuple[ToolCall, ...]) -> list[Any] | None:
    if text is None:
        return None
    uses = [{"type": "tool_use", "id": c.call_id, "name": c.name, "input": c.arguments} for c in calls]
    return ([{"type": "text", "text": text}] if text else []) + uses


def _request(fields: Item, common: Item) -> Request:
    held = {"messages": "held_messages", "tools": "held_tools"}
    return Request(**common, **{held.get(name, name): value for name, value in fields.items()})


def _call(call: str | Item, k: int, common: Item) -> ToolCall:
    fields = {"name": call} if isinstance(call, str) else call
    _only(fields, {"name", "args", "raw", "id", "at", "after", "unordered"}, "a call")
    return ToolCall(
        **_timed(common, fields),
        name=fields["name"],
        call_id=str(fields.get("id", f"t{common['turn']}.{k}")),
        arguments=fields.get("args"),
        raw_arguments=fields.get("raw"),
        unordered=tuple(fields.get("unordered", ())),
    )


def _result(result: str | Item, calls: tuple[ToolCall, ...], common: Item) -> ToolResult:
    fields = {"of": result, "content": "ok"} if isinstance(result, str) else result
    _only(fields, {"of", "content", "error", "at"}, "a result")
    of = fields["of"]
    call = calls[of] if isinstance(of, int) else next(call for call in calls if call.name == of)
    return _answer(call, fields, _timed(common, fields))


def _answer(call: ToolCall, fields: Item, common: Item) -> ToolResult:
    reported: Item = {"content": fields.get("content"), "is_error": fields.get("error")}
    return ToolResult(**common, call_id=call.call_id, name=fields.get("name", call.name), call=call, **reported)


def _timed(common: Item, fields: Item) -> Item:
    return {**common, "at": fields.get("at", common["at"])}


# -- what stands between turns ----------------------------------------------------------------------------------------


def _end(item: Item, before: list[Event], source: Locator) -> SessionEnd:
    _only(item, {"end", "complete"}, "an end")
    return SessionEnd(origin=Origin(str(item["end"])), complete=item.get("complete", True))


def _late_result(item: Item, before: list[Event], source: Locator) -> ToolResult:
    _only(item, {"result", "session"}, "an item with a result")
    fields, origin = item["result"], _origin(item)
    _only(fields, {"of", "content", "error", "at", "name"}, "a result")
    own = [event for event in reversed(before) if event.origin.session == origin.session]
    call = next((e for e in own if isinstance(e, ToolCall) and e.call_id == fields["of"]), None)
    if call is not None:
        common = {"origin": call.origin, "turn": call.turn, "source": source, "at": fields.get("at")}
        return _answer(call, fields, common)
    return ToolResult(
        origin=origin,
        turn=next((event.turn for event in own if isinstance(event, Response)), None),
        source=source,
        at=fields.get("at"),
        call_id=fields["of"],
        name=fields.get("name"),
        content=fields.get("content"),
        is_error=fields.get("error"),
    )


def _message(item: Item, before: list[Event], source: Locator) -> Message:
    _only(item, {"message", "session"}, "an item with a message")
    fields = item["message"]
    _only(fields, {"role", "content", "at"}, "a message")
    return Message(
        origin=_origin(item),
        source=source,
        at=fields.get("at"),
        role=fields.get("role", "user"),
        content=fields.get("content"),
    )


_BESIDE_TURNS: dict[str, Callable[[Item, list[Event], Locator], Event]] = {
    "end": _end,
    "result": _late_result,
    "message": _message,
}


def _only(item: Item, keys: set[str], what: str) -> None:
    unknown = item.keys() - keys
    assert not unknown, f"unknown keys in {what}: {unknown}"
