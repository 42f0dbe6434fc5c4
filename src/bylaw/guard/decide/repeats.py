"""A past call that is told under an id which its session has used already: the same call again, or another.

The client of a service tells a call again if the answer was lost. The same call has been counted, so the answer is what
was found then. Any other call would run without being counted or judged, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bylaw.guard.decide.redaction import StoredArguments
from bylaw.guard.json_values import Refused
from bylaw.guard.model import Match
from bylaw.guard.reviews import action_hash
from bylaw.guard.stores.ports import GuardStore, each_event
from bylaw.model.events import ToolCall

Runs = Mapping[str, tuple[str | None, str | None]]


class CallIdUsed(Refused):
    """The id is that of another call, or it is not known of which."""


def recorded_matches(store: GuardStore, call: ToolCall, opened: ToolCall | None, runs: Runs) -> tuple[Match, ...]:
    """What was found when this call was decided or told before. `opened`: the call that is open under its id, which may
    have values that the record lacks. `runs`: run → its agent and its parent run. Raises CallIdUsed."""
    data = _find_call(store, call.origin.session, call.call_id)
    first: str | None = None
    if data is not None and "redacted" not in data and "unwritten" not in data:
        written = data["attempt"]
        agent = data.get("decision", {}).get("agent") or written.get("agent")
        first = _hash(written["tool"], written.get("arguments"), agent, written.get("run"), runs)
    elif data is not None and opened is not None and type(opened.arguments) not in (StoredArguments, type(None)):
        first = _hash_of(opened, runs)
    if data is None or first is None:
        why = "and it is not known by which call"
    elif first != _hash_of(call, runs):
        why = "by another call"
    else:
        return msgspec.convert(data.get("decision", data).get("matches", ()), tuple[Match, ...])
    raise CallIdUsed(f"the call id `{call.call_id}` is already used in this session {why}")


def _find_call(store: GuardStore, session: str, call_id: str) -> dict[str, Any] | None:
    """The row of the last call with this id that was allowed, or judged after it ran. None if there is none, or if it
    was released, or told again as part of a history, which nobody has judged."""
    found: dict[str, Any] | None = None
    for row in each_event(store, session=session):
        data = row.data
        if row.kind == "decision":
            decision = data["decision"]
            if decision.get("call_id") == call_id and decision["action"] == "allow" and not data.get("late"):
                found = data
        elif row.kind in ("taken", "release") and data.get("call_id") == call_id:
            found = data if "matches" in data else None
    return found


def _hash_of(call: ToolCall, runs: Runs) -> str:
    return _hash(call.name, call.arguments, call.origin.agent, call.origin.run, runs)


def _hash(tool: str, arguments: Any, agent: str | None, run: str | None, runs: Runs) -> str:
    return action_hash(tool, arguments, agent or runs.get(run or "", (None, None))[0])
