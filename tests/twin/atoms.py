"""Positions and atoms for the slow twin: what a formula is judged over, and what is true there.

An atom at a position is true, false or None (unknown). With variables it may be true in several ways, each of which
fixes them to other values: `ways` lists these.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal
from unicodedata import normalize

import re2
from msgspec import Struct

from bylaw.model.canonical import json_equal, json_type
from bylaw.model.events import Event, Message, Response, ToolCall, ToolResult
from bylaw.model.temporal import (
    AgentIs,
    Atom,
    Constant,
    ResultOf,
    Says,
    StopsFor,
    Test,
    TextHas,
    ToolIs,
    Unit,
    UserSays,
    Variable,
)
from tests.twin.comparison import number
from tests.twin.dates import computed, order

if TYPE_CHECKING:
    from tests.twin.part import Part

Truth = bool | None
Env = dict[str, Any]
"""variable → its value, which may be UNREADABLE"""
Way = tuple[Env, Truth]
"""how an atom may hold: the variables that have a value then, and whether it does"""
UNREADABLE = object()
"""a value that is there and cannot be read: equal to nothing, different from nothing"""


def any_of(values: Iterable[Truth]) -> Truth:
    found = list(values)
    return True if True in found else None if None in found else False


def all_of(values: Iterable[Truth]) -> Truth:
    found = list(values)
    return False if False in found else None if None in found else True


def negate(value: Truth) -> Truth:
    return None if value is None else not value


# -- positions --------------------------------------------------------------------------------------------------------


class Position(Struct, eq=False):
    event: ToolCall | ToolResult | Response
    shown: list[ToolCall | ToolResult | Response]
    """what happened here: the event, or all that belongs to the turn"""
    events: float
    turns: float
    seconds: float | None
    """None before the first recorded time"""
    matters: bool = False
    """some atom of the rule is not false here"""
    may_grow: bool = False
    """results of this turn may still follow"""

    def clock(self, unit: Unit) -> float | None:
        return {"events": self.events, "turns": self.turns, "seconds": self.seconds}[unit]


class Timeline:
    """The positions of one scope, and what is known around them."""

    def __init__(
        self, part: Part, over: Literal["events", "turns"], atoms: Iterable[Atom] = (), skips: bool = False
    ) -> None:
        """`skips`: calls and results at which every atom is false are not looked at, so their times do not count."""
        self.part = part
        self.order = {id(event): i for i, event in enumerate(part.events)}
        moments = part.turns if over == "turns" else [e for e in part.events if isinstance(e, _POSITIONS)]
        self.positions: list[Position] = []
        for i, event in enumerate(moments):
            turns = sum(isinstance(one, Response) for one in moments[: i + 1])
            shown = self._whole_turn(i) if over == "turns" else [event]
            earlier = [p.seconds for p in self.positions if p.matters or not skips]
            times = [time for time in (*earlier, event.time) if time is not None]
            position = Position(event, shown, i, turns, max(times, default=None))
            position.matters = any(ways(atom, position, {}, self) for atom in atoms)
            self.positions.append(position)
        if over == "turns" and not part.complete:
            self.positions[-1].may_grow = True

    def _whole_turn(self, i: int) -> list[ToolCall | ToolResult | Response]:
        """The response, its calls, and their results as far as they came before the next response."""
        response = self.part.turns[i]
        end = self.order[id(self.part.turns[i + 1])] if i + 1 < len(self.part.turns) else None
        after = self.part.events[self.order[id(response)] : end]
        results = [e for e in after if isinstance(e, ToolResult) and _same_turn(e, response)]
        return [response, *response.tool_calls, *results]

    def seen_at(self, i: int) -> list[tuple[int, ToolResult]]:
        """The results in the model's input when it answered the turn of a position, each with its own position."""
        answer = self.positions[i].event
        if not isinstance(answer, Response):
            found = [response for response in self.part.turns if _same_turn(answer, response)]
            if not found:
                return []
            answer = found[0]
        results = [(j, p.event) for j, p in enumerate(self.positions) if isinstance(p.event, ToolResult)]
        return [(j, result) for j, result in results if _same_run(result, answer) and self._has_seen(answer, result)]

    def _has_seen(self, answer: Response, result: ToolResult) -> bool:
        first, last = self.order[id(result)], self.order[id(answer)]
        between = [r for r in self.part.turns if first < self.order[id(r)] <= last and _same_run(r, result)]
        return any(_holds(response, result) for response in between)

    def said_to(self, response: Response) -> list[str] | None:
        """What the user said since the response before; None where nobody recorded it."""
        own = [e for e in self.part.events if e.origin.session == response.origin.session]
        here = next(i for i, event in enumerate(own) if event is response)
        since = max((i for i, event in enumerate(own[:here]) if isinstance(event, Response)), default=-1)
        messages = [e for e in own[since + 1 : here] if isinstance(e, Message) and e.role == "user"]
        outside = [text for text in (text_of(message.content) for message in messages) if text is not None]
        asked = response.request.messages if response.request is not None else None
        if asked is None:
            return outside or None
        return outside + _said_in(asked)


_POSITIONS = (ToolCall, ToolResult, Response)


def _same_turn(event: Event, response: Response) -> bool:
    return event.turn is not None and (event.turn, event.origin.session) == (response.turn, response.origin.session)


def _same_run(left: Event, right: Event) -> bool:
    """Events that name no run are one run of their session."""
    return (left.origin.session, left.origin.run) == (right.origin.session, right.origin.run)


def _holds(response: Response, result: ToolResult) -> bool:
    """Whether the request holds the result; where it names no results, it may be taken to."""
    messages = [m for m in (response.request and response.request.messages) or [] if isinstance(m, dict)]
    blocks = [b for m in messages if isinstance(m.get("content"), list) for b in m["content"] if isinstance(b, dict)]
    ids = {m["tool_call_id"] for m in messages if isinstance(m.get("tool_call_id"), str)}
    ids |= {b["tool_use_id"] for b in blocks if isinstance(b.get("tool_use_id"), str)}
    return not ids or result.call_id is None or result.call_id in ids


def _said_in(messages: list[Any]) -> list[str]:
    known = [message for message in messages if isinstance(message, dict)]
    last = max((i for i, message in enumerate(known) if message.get("role") == "assistant"), default=-1)
    texts = [text_of(message.get("content")) for message in known[last + 1 :] if message.get("role") == "user"]
    return [text for text in texts if text is not None]


def text_of(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [b["text"] for b in blocks if b.get("type") == "text" and isinstance(b.get("text"), str)]
    return "\n".join(texts) if texts else None


# -- atoms ------------------------------------------------------------------------------------------------------------


def ways(atom: Atom, position: Position, env: Env, timeline: Timeline) -> list[Way]:
    """How the atom may hold at a position: all ways that are not false."""
    if isinstance(atom, ToolIs | ResultOf):
        found = [way for shown in position.shown for way in ways_of(atom, shown, env)]
        if isinstance(atom, ResultOf) and position.may_grow:
            found.append((env, None))
        return found
    truth = _plain(atom, position.event, timeline)
    return [] if truth is False else [(env, truth)]


def ways_of(atom: ToolIs | ResultOf, shown: Event, env: Env) -> list[Way]:
    """How one call or result may be what the atom asks for. Tests that fix a variable come first."""
    if not isinstance(shown, ToolCall if isinstance(atom, ToolIs) else ToolResult):
        return []
    found: list[Way] = [(env, _is_named(shown, atom.names))]
    for test in sorted(atom.tests, key=lambda test: not _is_fixing(test)):
        found = [(e, all_of((t, u))) for known, t in found for e, u in _ways_past(test, shown, known)]
    return [(known, truth) for known, truth in found if truth is not False]


def _plain(atom: Atom, event: Event, timeline: Timeline) -> Truth:
    match atom:
        case Constant(value=value):
            return value
        case AgentIs(names=names):
            return None if event.origin.agent is None else _fits(event.origin.agent, names)
    if not isinstance(event, Response):
        return False
    match atom:
        case StopsFor(reason=reason):
            return None if event.stop_reason is None else event.stop_reason == reason
        case Says(probe=probe):
            blocks = [block["text"] for block in event.content or [] if block.get("type") == "text"]
            split = len(blocks) > 1 and _has("".join(blocks), probe)
            return None if event.text is None else split or _has(event.text, probe)
        case UserSays(probe=probe):
            said = timeline.said_to(event)
            return None if said is None else any(_has(text, probe) for text in said)
    raise AssertionError(atom)


def _is_named(shown: ToolCall | ToolResult, names: tuple[str, ...]) -> Truth:
    call = shown.certain_call if isinstance(shown, ToolResult) else shown
    name = shown.name if shown.name is not None else call.name if call is not None else None
    return None if name is None else _fits(name, names)


def _fits(name: str, names: tuple[str, ...]) -> bool:
    return any(name == one or fnmatch.fnmatchcase(name, one) for one in names)


def _has(text: str, probe: TextHas) -> bool:
    text, wanted = normalize("NFC", text), normalize("NFC", probe.text)
    if probe.regex:
        return re2.search(f"{'(?i)' if probe.ignore_case else ''}(?:{wanted})", text) is not None
    return wanted.casefold() in text.casefold() if probe.ignore_case else wanted in text


# -- tests ------------------------------------------------------------------------------------------------------------


def _is_fixing(test: Test) -> bool:
    return test.op == "=" and isinstance(test.value, Variable)


def _ways_past(test: Test, shown: ToolCall | ToolResult, env: Env) -> list[Way]:
    found = _read(_root(test, shown), test.path)
    if _is_fixing(test) and test.value.name not in env:
        return [({**env, test.value.name: value}, None if value is UNREADABLE else True) for value in found]
    return [(env, _passes(test, found, env))]


def _passes(test: Test, found: list[Any], env: Env) -> Truth:
    if test.op in ("present", "missing"):
        present = any_of(None if value is UNREADABLE else True for value in found)
        return present if test.op == "present" else negate(present)
    if not found:
        return test.op in ("!=", "not in")
    strict = isinstance(test.value, Variable)
    wanted = env[test.value.name] if strict else test.value
    if test.linear is not None:
        wanted = computed(test.linear, wanted)
    return any_of(_compare(value, test.op, wanted, strict) for value in found)


def _compare(found: Any, op: str, wanted: Any, strict: bool) -> Truth:
    if found is UNREADABLE or wanted is UNREADABLE:
        return None
    match op:
        case "=" | "!=":
            same = json_equal(found, wanted) if strict else _equal(found, wanted)
            return same if op == "=" else negate(same)
        case "in" | "not in":
            inside = any_of(_equal(found, one) for one in wanted)
            return inside if op == "in" else negate(inside)
        case "contains":
            if isinstance(found, list):
                return any(json_equal(item, wanted) for item in found)
            return wanted in found if isinstance(found, str) and isinstance(wanted, str) else None
        case "matches":
            return re2.search(wanted, found) is not None if isinstance(found, str) else None
    return order(op, found, wanted)


def _equal(found: Any, wanted: Any) -> Truth:
    if found is None or wanted is None or json_type(found) == json_type(wanted):
        return json_equal(found, wanted)
    left, right = number(found), number(wanted)
    return None if left is None or right is None else left == right


def _root(test: Test, shown: ToolCall | ToolResult) -> Any:
    call = shown if isinstance(shown, ToolCall) else shown.certain_call
    if test.root == "args":
        return UNREADABLE if call is None else _arguments(call)
    assert isinstance(shown, ToolResult), "a call has no result yet"
    if test.root == "error":
        return UNREADABLE if shown.is_error is None else shown.is_error
    return UNREADABLE if shown.content is None else _content(shown.content)


def _arguments(call: ToolCall) -> Any:
    return call.arguments if isinstance(call.arguments, dict) else UNREADABLE


def _content(content: Any) -> Any:
    """JSON where it is JSON, in text or not."""
    if isinstance(content, list) and content and all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        content = text_of(content)
    if not isinstance(content, str):
        return content
    try:
        value = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return content
    if repeats_a_key(content):
        return UNREADABLE
    return value if isinstance(value, dict | list) else content


def repeats_a_key(text: str) -> bool:
    """Whether an object in this JSON has a key twice."""
    counts: list[tuple[int, int]] = []
    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=lambda pairs: counts.append((len(pairs), len(dict(pairs)))))
    return any(members > keys for members, keys in counts)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _read(root: Any, path: tuple[str | None, ...]) -> list[Any]:
    """Every value at the path; UNREADABLE where it runs into a value that it cannot enter."""
    found = [root]
    for key in path:
        found = [inner for value in found for inner in _inner(value, key)]
    return found


def _inner(value: Any, key: str | None) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values()) if key is None else [value[key]] if key in value else []
    if isinstance(value, list) and key is None:
        return value
    if isinstance(value, list) and re.fullmatch(r"-?[0-9]{1,8}", key or ""):
        return value[int(key or 0) :][:1] if -len(value) <= int(key or 0) < len(value) else []
    return [UNREADABLE]
