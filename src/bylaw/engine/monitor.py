"""The interface of a compiled rule, and its references to the events that decided a verdict.

A monitor is pure: `step(state, event)` returns the next state and what the event decided, `end(state, …)` what only the
end decides. States are immutable and of a declared type, so they can be stored, compared, dropped and written down.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.matching import unknown_where
from bylaw.model.canonical import prepared
from bylaw.model.demand import Calls
from bylaw.model.events import Event, Response, ToolCall, ToolResult
from bylaw.model.verdict import EventRef, Outcome


class Watches(Struct, frozen=True):
    """Which events a monitor can care about. The index routes no others to it."""

    responses: bool = False
    calls: tuple[Calls, ...] = ()
    results: tuple[Calls, ...] = ()
    """results of these tools; one whose tool is not known is everyone's"""
    messages: bool = False


class FoundViolation(Struct, frozen=True):
    """A violation as a monitor reports it, without its rule."""

    message: str
    session: str | None = None
    turn: int | None = None
    evidence: tuple[EventRef, ...] = ()
    notes: tuple[str, ...] = ()
    doubtful: bool = False
    """unknown, or only marked: reported by a peek and at an attempt, and never a violation"""


class ScopeEnd(Struct, frozen=True):
    """How a scope ended."""

    turns: int
    """turns the rule could see: all of the scope, or those its `when` matched"""
    complete: bool
    """False where the recording stopped early, so that the rest could still decide"""


class Conclusion(Struct, frozen=True):
    """The outcome at the end of a scope, for a rule that was not violated before."""

    outcome: Outcome
    found: tuple[FoundViolation, ...] = ()
    """for outcome violated: where"""
    reason: str = ""
    """for inconclusive: why"""
    notes: tuple[str, ...] = ()


NOTHING: tuple[FoundViolation, ...] = ()
OK = Conclusion(Outcome.OK)
VACUOUS = Conclusion(Outcome.VACUOUS)
STOPPED_EARLY = Conclusion(Outcome.INCONCLUSIVE, reason="the recording stopped early")

Step = tuple[Any, tuple[FoundViolation, ...]]


class Monitor(ABC):
    """One operator over its probe. `step` is called for watched events; if others are passed, it must ignore them."""

    initial: Any
    state_type: Any
    watches: Watches
    gates_itself = False
    """True where a closed `when` still lets events through, because only part of the rule is conditional"""
    adds_up = True
    """whether a rule that is broken with some turns is broken with more of them too, so that turns for which `when` is
    unknown need to be judged only with all of them and with none"""

    @abstractmethod
    def step(self, state: Any, event: Event, applies: bool = True) -> Step:
        """The next state, and the violations of this event."""

    @abstractmethod
    def end(self, state: Any, ended: ScopeEnd) -> Conclusion:
        """The outcome at the end of the scope."""

    def dump(self, state: Any, excerpts: bool = True) -> Any:
        """A state as msgspec can write it down; on request without excerpts of the events that it points at."""
        return state

    def revive(self, data: Any) -> Any:
        """A state that was written down as JSON."""
        return msgspec.convert(data, prepared(self.state_type))


def ok_if_complete(ended: ScopeEnd) -> Conclusion:
    """Nothing was broken; on a recording that stopped early the rest could still break it."""
    return OK if ended.complete else STOPPED_EARLY


def inconclusive_if_blind(blind: int, what: str, otherwise: Conclusion) -> Conclusion:
    """A rule that could not see some of the data it judges is inconclusive, never ok."""
    missing = f"{what} not recorded in {count_turns(blind)}"
    return Conclusion(Outcome.INCONCLUSIVE, reason=missing) if blind else otherwise


def inconclusive_if_unknown(calls: int, otherwise: Conclusion) -> Conclusion:
    """A rule that cannot tell whether some calls match it is inconclusive, never ok."""
    return Conclusion(Outcome.INCONCLUSIVE, reason=unknown_where(calls)) if calls else otherwise


def doubt(found: FoundViolation) -> FoundViolation:
    """Of a call that may be such a call: a guard stops it, a check does not call it a violation."""
    return replace(found, notes=(*found.notes, "its arguments cannot be compared"), doubtful=True)


def count_turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


def mismatch_notes(mismatches: int) -> tuple[str, ...]:
    if not mismatches:
        return ()
    times = "1 comparison" if mismatches == 1 else f"{mismatches} comparisons"
    return (f"{times} with a value of another type",)


# -- evidence, built only when there is something to report ------------------------------------------------------------

_WIDTH = 160


def ref(event: Event, excerpt: str | None = None) -> EventRef:
    return EventRef(
        event=event.kind,
        turn=event.turn,
        name=_tool(event),
        call_id=event.call_id if isinstance(event, ToolCall | ToolResult) else None,
        excerpt=_excerpt(event) if excerpt is None else excerpt,
        source=None if event.source is None else str(event.source),
    )


def bare(place: EventRef) -> EventRef:
    """The reference without its excerpt."""
    return place if place.excerpt is None else replace(place, excerpt=None)


def _tool(event: Event) -> str | None:
    if isinstance(event, ToolResult) and event.name is None:
        return event.call.name if event.call is not None else None
    return event.name if isinstance(event, ToolCall | ToolResult) else None


def _excerpt(event: Event) -> str | None:
    if isinstance(event, ToolCall):
        return shorten(_call(event))
    if isinstance(event, ToolResult):
        content = event.content
        return shorten(f"{_tool(event) or 'a tool'} → {content if isinstance(content, str) else as_json(content)}")
    if isinstance(event, Response):
        return shorten(event.text or ", ".join(_call(call) for call in event.tool_calls[:8])) or None
    return None


def _call(call: ToolCall) -> str:
    if isinstance(call.arguments, dict):
        shown = ", ".join(f"{key}={as_json(value)}" for key, value in call.arguments.items())
    else:
        shown = as_json(call.arguments) if call.arguments is not None else call.raw_arguments or ""
    return f"{call.name}({shown})"


def as_json(value: Any) -> str:
    """For people to read, for any value: msgspec refuses lone surrogates and integers beyond 64 bits."""
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, TypeError):
        return json.dumps(value, default=str)


def shorten(text: str, width: int = _WIDTH) -> str:
    if len(text) <= width and text.isprintable() and "  " not in text:
        return text.strip()
    flat = " ".join(text[: width * 4].split())
    return flat if len(flat) <= width and len(text) <= width * 4 else flat[: width - 1] + "…"


def excerpt_around(text: str, start: int, end: int) -> str:
    """The match with a little context on both sides."""
    left, right = max(0, start - 50), min(len(text), max(end, start + 1) + 50)
    cut = shorten(text[left:right])
    return f"{'…' if left else ''}{cut}{'…' if right < len(text) and not cut.endswith('…') else ''}"
