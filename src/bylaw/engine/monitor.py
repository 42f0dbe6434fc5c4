"""The interface of a compiled rule.

A monitor is pure: `step(state, event)` returns the next state and what the event decided, `end(state, …)` what only the
end decides. States are immutable and of a declared type, so they can be stored, compared, dropped and written down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.engine.matching import unknown_where
from bylaw.model.demand import Calls
from bylaw.model.events import Event
from bylaw.model.verdict import EventRef, Outcome


class Watches(Struct, frozen=True):
    """Which events a monitor can care about. The index routes no others to it."""

    responses: bool = False
    calls: tuple[Calls, ...] = ()
    results: tuple[Calls, ...] = ()
    """results of these tools; one whose tool is not known is everyone's"""
    messages: bool = False


class Found(Struct, frozen=True):
    """A violation, before it is joined with its rule."""

    message: str
    session: str | None = None
    turn: int | None = None
    evidence: tuple[EventRef, ...] = ()
    notes: tuple[str, ...] = ()
    doubtful: bool = False
    """unknown, or only marked: reported by a peek and at an attempt, and never a violation"""


class Ended(Struct, frozen=True):
    """How a scope ended."""

    turns: int
    """turns the rule could see: all of the scope, or those its `when` matched"""
    complete: bool
    """False where the recording stopped early, so that the rest could still decide"""


class Conclusion(Struct, frozen=True):
    """What the end of a scope decides for a rule that was not violated before."""

    outcome: Outcome
    found: tuple[Found, ...] = ()
    """for outcome violated: where"""
    reason: str = ""
    """for inconclusive: why"""
    notes: tuple[str, ...] = ()


NOTHING: tuple[Found, ...] = ()
OK = Conclusion(Outcome.OK)
VACUOUS = Conclusion(Outcome.VACUOUS)
STOPPED_EARLY = Conclusion(Outcome.INCONCLUSIVE, reason="the recording stopped early")

Step = tuple[Any, tuple[Found, ...]]


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
        """The next state, and what the event decided."""

    @abstractmethod
    def end(self, state: Any, ended: Ended) -> Conclusion:
        """What the end of the scope decides."""

    def dump(self, state: Any, excerpts: bool = True) -> Any:
        """A state as msgspec can write it down; on request without excerpts of the events that it points at."""
        return state

    def revive(self, data: Any) -> Any:
        """A state that was written down as JSON."""
        return msgspec.convert(data, self.state_type)


def ok_if_complete(ended: Ended) -> Conclusion:
    """Nothing was broken; on a recording that stopped early the rest could still break it."""
    return OK if ended.complete else STOPPED_EARLY


def unless_blind(blind: int, what: str, otherwise: Conclusion) -> Conclusion:
    """A rule that could not see part of what it judges never reads as ok."""
    missing = f"{what} not recorded in {count_turns(blind)}"
    return Conclusion(Outcome.INCONCLUSIVE, reason=missing) if blind else otherwise


def unless_unknown(calls: int, otherwise: Conclusion) -> Conclusion:
    """A rule that cannot tell whether calls are among those it means never reads as ok."""
    return Conclusion(Outcome.INCONCLUSIVE, reason=unknown_where(calls)) if calls else otherwise


def doubt(found: Found) -> Found:
    """Of a call that may be such a call: a guard stops it, a check does not call it a violation."""
    return msgspec.structs.replace(found, notes=(*found.notes, "its arguments cannot be compared"), doubtful=True)


def count_turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


def mismatch_notes(mismatches: int) -> tuple[str, ...]:
    if not mismatches:
        return ()
    times = "1 comparison" if mismatches == 1 else f"{mismatches} comparisons"
    return (f"{times} met a value of another type",)
