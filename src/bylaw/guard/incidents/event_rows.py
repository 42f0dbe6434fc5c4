"""One row of the event log: when it happened, its digest, and the attempt or event in it."""

from __future__ import annotations

import hashlib
from math import isfinite
from typing import Any, TypeAlias

from msgspec import Struct, convert

from bylaw.guard.decide.records import attempt_of
from bylaw.guard.model import Attempt
from bylaw.guard.stores.records import EventRow
from bylaw.model.canonical import canonical_json
from bylaw.model.events import Event, Message, Origin, Request, Response, ToolCall

FOLDED = frozenset({"decision", "taken", "result", "observation", "session", "run", "release", "review"})
"""kinds of rows that the rules are folded over"""
FAILURES = frozenset({"on_error", "on_store_unavailable"})
"""`decided_by` of decisions that no rule made, because of an error"""

TimedRow: TypeAlias = tuple[float, int, EventRow]
"""time, number and row: rows are folded in this order"""


class Unreadable(Exception):
    """The row is not one that a guard writes."""


def timed(row: EventRow) -> TimedRow:
    return time_of(row), row.seq, row


def time_of(row: EventRow) -> float:
    """The time that the host gave; else the time at which the row was written."""
    attempt = row.data.get("attempt") if row.kind in ("decision", "taken") else None
    at: Any = attempt.get("ts") if isinstance(attempt, dict) else row.data.get("at")
    if type(at) is not float and type(at) is not int:
        return row.at
    try:
        return float(at) if isfinite(at) else row.at
    except OverflowError:  # an integer of hundreds of digits
        return row.at


def digest(row: EventRow) -> str:
    """Equal for copies of one event, at any position in the log."""
    return hashlib.sha256(canonical_json([row.session, row.kind, row.at, row.data])).hexdigest()[:32]


class Redacted(Struct, frozen=True):
    """The arguments that were redacted, and the truth of the predicates that looked at them."""

    arguments: list[list[str | int]]
    truths: dict[str, list[bool | None]] = {}
    """rule → the truth of each of its predicates on arguments"""
    asked: dict[str, list[str]] = {}
    """rule → the digest of each"""


ALL_REDACTED = Redacted([[]])


class RecordedDecision(Struct, frozen=True):
    """An attempt, and the guard's decision at the time."""

    attempt: Attempt
    call_id: str
    action: str
    matched: tuple[str, ...]
    review: str | None
    judged: bool
    """whether the rules apply: not if the attempt was refused before any rule"""
    resumed: bool
    """whether it resumed a paused call, and so is not a new attempt"""
    in_shadow: bool
    """whether the whole guard was in shadow, so that no match had an effect"""
    redacted: Redacted | None = None
    """None if all arguments were recorded"""
    policy: str | None = None
    """hash of the rules that judged it; None if none did"""


def read_decision(row: EventRow, at: float) -> RecordedDecision:
    """The decision in a row of kind `decision`, or the call of a row of kind `taken`, which is a fact. Raises
    Unreadable."""
    data = row.data
    try:
        decision = past_call(data) if row.kind == "taken" else data["decision"]
        action, review, matched = decision["action"], decision.get("review"), tuple(decision["matched"])
        by = decision.get("decided_by")
        resumed = review is not None and action != "pause"
        is_judged = not resumed and (bool(matched) or by is None or by in FAILURES)
        return RecordedDecision(
            attempt=attempt_of(data, session=row.session, ts=at),
            call_id=str(decision.get("call_id") or data["attempt"].get("call_id") or ""),
            action=action,
            matched=matched,
            review=review,
            judged=is_judged,
            resumed=resumed,
            in_shadow=action == "allow" and decision.get("would") is not None,
            redacted=_redacted(data),
            policy=None if by in FAILURES else decision.get("policy"),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def past_call(data: dict[str, Any]) -> dict[str, Any]:
    """A call that ran before anybody was asked, as a decision. Its rules judge it only if the guard has judged it too:
    calls of a history only count."""
    is_judged = "matches" in data
    return {
        "action": "allow",
        "matched": (),
        "call_id": data.get("call_id"),
        "decided_by": None if is_judged else "history",
        "policy": data.get("policy"),
    }


def _redacted(data: dict[str, Any]) -> Redacted | None:
    """If another part of the attempt is not recorded, the row says whether the arguments are."""
    if "redacted" in data:
        return convert({**data["redacted"], "asked": data.get("asked", {})}, Redacted)
    return ALL_REDACTED if "unwritten" in data and data.get("arguments_written") is not True else None


def read_observation(row: EventRow, at: float) -> tuple[Event, bool]:
    """The event as far as it was recorded, and whether it came with a request, whose messages are not recorded. Raises
    Unreadable."""
    data = row.data
    try:
        content = data.get("said") or {}
        origin = Origin(row.session, data.get("run"), data.get("parent_run"), data.get("agent"))
        has_request = data.get("kind") == "request" or bool(content.get("request"))
        return _observation(data.get("kind"), content, origin, at), has_request
    except (KeyError, TypeError, AttributeError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def _observation(kind: Any, content: dict[str, Any], origin: Origin, at: float) -> Event:
    match kind:
        case "response":
            calls = tuple(
                ToolCall(origin=origin, name=str(call["name"]), call_id=str(call["call_id"]))
                for call in content.get("tool_calls") or ()
            )
            texts: dict[str, Any] = {name: content.get(name) for name in ("text", "stop_reason", "model")}
            blocks = [{"type": "text", "text": text} for text in content.get("blocks") or ()]
            return Response(origin=origin, at=at, tool_calls=calls, content=blocks or None, **texts)
        case "message":
            return Message(origin=origin, at=at, role=str(content.get("role", "user")), content=content.get("content"))
        case "request":
            return Request(origin=origin, at=at)
        case _:
            return Event(origin=origin, at=at)


def recorded_matches(row: EventRow) -> dict[str, dict[str, Any]]:
    """The matches of a recorded decision, by rule."""
    return {str(one.get("rule")): one for one in _objects(row.data.get("decision", row.data).get("matches"))}


def recorded_findings(row: EventRow) -> dict[str, str]:
    """The messages of the rules that the guard found broken by a recorded event, by rule."""
    return {str(one.get("rule")): str(one.get("message")) for one in _objects(row.data.get("found"))}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_at(row: EventRow, key: str) -> str:
    """Raises Unreadable."""
    value: Any = row.data.get(key)
    if not isinstance(value, str):
        raise Unreadable(f"event {row.seq}: `{key}` is no text")
    return value
