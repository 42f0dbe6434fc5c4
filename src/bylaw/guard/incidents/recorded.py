"""One row of the event log: when it happened, what tells it from others, and what it says."""

from __future__ import annotations

import hashlib
from math import isfinite
from typing import Any, TypeAlias

from msgspec import Struct, convert, structs

from bylaw.guard.decision import Attempt
from bylaw.guard.stores.ports import EventRow
from bylaw.model.canonical import canonical_json
from bylaw.model.events import Event, Message, Origin, Request, Response, ToolCall

FOLDED = frozenset({"decision", "taken", "result", "observation", "session", "run", "release", "review"})
"""kinds of rows that the rules are folded over"""
UNJUDGED = frozenset({"on_error", "on_store_unavailable"})
"""what stands in for a rule where a fault kept the guard from judging the call"""


Placed: TypeAlias = tuple[float, int, EventRow]
"""when it happened, and its number: the order that rows are folded in"""


class Unreadable(Exception):
    """The row is not as a guard writes it."""


def placed(row: EventRow) -> Placed:
    return time_of(row), row.seq, row


def time_of(row: EventRow) -> float:
    """When it happened, by whoever tells it; else when it was written down."""
    attempt = row.data.get("attempt") if row.kind in ("decision", "taken") else None
    told: Any = attempt.get("ts") if isinstance(attempt, dict) else row.data.get("at")
    if type(told) is not float and type(told) is not int:
        return row.at
    try:
        return float(told) if isfinite(told) else row.at
    except OverflowError:  # an integer of hundreds of digits
        return row.at


def digest(row: EventRow) -> str:
    """Equal for copies of one event, wherever they stand in the log."""
    return hashlib.sha256(canonical_json([row.session, row.kind, row.at, row.data])).hexdigest()[:32]


class Gone(Struct, frozen=True):
    """Where arguments are not written down, and what predicates said of them while they were known."""

    arguments: list[list[str | int]]
    truths: dict[str, list[bool | None]] = {}
    """rule → the truth of each of its predicates on arguments"""
    asked: dict[str, list[str]] = {}
    """rule → the digest of each"""


ALL_GONE = Gone([[]])


class Decided(Struct, frozen=True):
    """An attempt, and what the guard made of it at the time."""

    attempt: Attempt
    call_id: str
    action: str
    matched: tuple[str, ...]
    review: str | None
    judged: bool
    """whether rules were asked, or have to be now: not so where it was refused before any"""
    resumed: bool
    """whether it went on from a review: not a new attempt"""
    in_shadow: bool
    """whether the whole guard was: nothing of what it matched was acted on"""
    gone: Gone | None = None
    """None where the arguments are all written down"""
    policy: str | None = None
    """hash of the rules that judged it; None where none did"""


def decided(row: EventRow, at: float) -> Decided:
    try:
        return _decided(row.session, row.data, row.data["decision"], at)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def taken(row: EventRow, at: float) -> Decided:
    """A call that was made before: a fact, counted and not judged."""
    made = {"action": "allow", "matched": (), "call_id": row.data.get("call_id")}
    try:
        return structs.replace(_decided(row.session, row.data, made, at), judged=False)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def _decided(session: str, data: dict[str, Any], decision: dict[str, Any], ts: float) -> Decided:
    told = data["attempt"]
    call_id = str(decision.get("call_id") or told.get("call_id") or "")
    action, review, matched = decision["action"], decision.get("review"), tuple(decision["matched"])
    by = decision.get("decided_by")
    resumed = review is not None and action != "pause"
    attempt = Attempt(
        tool=told["tool"],
        arguments=told.get("arguments"),
        agent=told.get("agent"),
        session=session,
        run=told.get("run"),
        parent_run=told.get("parent_run"),
        ancestors=tuple(told.get("ancestors", ())),
        ts=ts,
    )
    return Decided(
        attempt=attempt,
        call_id=call_id,
        action=action,
        matched=matched,
        review=review,
        judged=not resumed and (bool(matched) or by is None or by in UNJUDGED),
        resumed=resumed,
        in_shadow=action == "allow" and decision.get("would") is not None,
        gone=_gone(data),
        policy=None if by in UNJUDGED else decision.get("policy"),
    )


def _gone(data: dict[str, Any]) -> Gone | None:
    """Where something else of the attempt is not written down, the row says so if the arguments are all the same."""
    if "redacted" in data:
        return convert({**data["redacted"], "asked": data.get("asked", {})}, Gone)
    return ALL_GONE if "unwritten" in data and data.get("arguments_written") is not True else None


def observation(row: EventRow, at: float) -> Event:
    """As much of it as is written down: the messages of a request are not."""
    data, said = row.data, row.data.get("said") or {}
    origin = Origin(row.session, data.get("run"), data.get("parent_run"), data.get("agent"))
    match data.get("kind"):
        case "response":
            calls = tuple(
                ToolCall(origin=origin, name=str(call["name"]), call_id=str(call["call_id"]))
                for call in said.get("tool_calls") or ()
            )
            return Response(
                origin=origin,
                at=at,
                text=said.get("text"),
                stop_reason=said.get("stop_reason"),
                model=said.get("model"),
                tool_calls=calls,
            )
        case "message":
            return Message(origin=origin, at=at, role=str(said.get("role", "user")), content=said.get("content"))
        case "request":
            return Request(origin=origin, at=at)
        case _:
            return Event(origin=origin, at=at)
