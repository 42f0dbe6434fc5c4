"""One row of the event log: when it happened, what tells it from others, and what it says."""

from __future__ import annotations

import hashlib
import json
from math import inf
from typing import Any

from msgspec import Struct, structs

from bylaw.model.decision import Attempt
from bylaw.model.events import Event, Message, Origin, Request, Response, ToolCall
from bylaw.model.stores import EventRow

FOLDED = frozenset({"decision", "taken", "result", "observation", "session", "run", "release", "review"})
"""kinds of rows that the rules are folded over"""
UNJUDGED = frozenset({"on_error", "on_store_unavailable"})
"""what stands in for a rule where a fault kept the guard from judging the call"""


class Unreadable(Exception):
    """The row is not as a guard writes it."""


def time_of(row: EventRow) -> float:
    """When it happened, by whoever tells it; else when it was written down."""
    attempt = row.data.get("attempt") if row.kind in ("decision", "taken") else None
    told: Any = attempt.get("ts") if isinstance(attempt, dict) else row.data.get("at")
    return float(told) if type(told) in (int, float) and abs(told) < inf else row.at


def digest(row: EventRow) -> str:
    """Equal for copies of one event, wherever they stand in the log."""
    text = json.dumps([row.session, row.kind, row.at, row.data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


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


def decided(row: EventRow) -> Decided:
    try:
        return _decided(row.session, row.data["attempt"], row.data["decision"], time_of(row))
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def taken(row: EventRow) -> Decided:
    """A call that was made before: a fact, counted and not judged."""
    made = {"action": "allow", "matched": (), "call_id": row.data.get("call_id")}
    try:
        return structs.replace(_decided(row.session, row.data["attempt"], made, time_of(row)), judged=False)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def _decided(session: str, told: dict[str, Any], decision: dict[str, Any], ts: float) -> Decided:
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
        call_id=call_id,
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
    )


def observation(row: EventRow) -> Event:
    """As much of it as is written down: the messages of a request are not."""
    data, said = row.data, row.data.get("said") or {}
    origin = Origin(row.session, data.get("run"), data.get("parent_run"), data.get("agent"))
    at = time_of(row)
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
