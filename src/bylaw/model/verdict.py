"""The answer for one rule: outcome, place, and the events that decided it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bylaw.model.rule import Rule


class Outcome(StrEnum):
    OK = "ok"
    VIOLATED = "violated"
    VACUOUS = "vacuous"
    """never triggered: nothing was checked"""
    INCONCLUSIVE = "inconclusive"
    """the recording stopped early or does not hold what the rule needs"""
    ERROR = "error"
    """the rule itself could not be evaluated"""

    @property
    def badness(self) -> int:
        """Of several scopes the worst decides: error, violated, inconclusive, ok, vacuous."""
        return _BADNESS[self]


_BADNESS = {
    Outcome.VACUOUS: 0,
    Outcome.OK: 1,
    Outcome.INCONCLUSIVE: 2,
    Outcome.VIOLATED: 3,
    Outcome.ERROR: 4,
}


class EventRef(Struct, frozen=True):
    """A pointer to an event that decided a verdict, with enough of it to read the report without the trace."""

    event: str
    """kind of the event: response, tool_call, …"""
    turn: int | None = None
    name: str | None = None
    """the tool's name, for calls and results"""
    call_id: str | None = None
    excerpt: str | None = None
    source: str | None = None
    """file:line"""


class Verdict(Struct, frozen=True, kw_only=True):
    rule: Rule
    outcome: Outcome
    session: str | None = None
    turn: int | None = None
    """index in the whole trace; None where only the end decided"""
    message: str = ""
    evidence: tuple[EventRef, ...] = ()
    notes: tuple[str, ...] = ()
