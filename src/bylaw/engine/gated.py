"""`when`: a monitor that sees only the turns its conditions match.

The conditions are evaluated once a turn, at its response; the calls of that turn use the same answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bylaw.engine.conditions import compile_conditions
from bylaw.engine.monitor import NOTHING, STOPPED_EARLY, VACUOUS, Conclusion, Ended, Monitor, Step, mismatch_notes
from bylaw.model.condition import Condition
from bylaw.model.events import Event, Response
from bylaw.model.verdict import Outcome

RECENT = 64
"""matching turns that are remembered, for calls that are recorded after a later turn"""


class State(Struct, frozen=True, array_like=True):
    inner: Any
    recent: tuple[int | None, ...] = ()
    """the latest turns that matched"""
    matched: int = 0
    mismatches: int = 0
    late: int = 0
    """calls of a turn so long ago that nobody knows whether it matched"""


class Gated(Monitor):
    gates_itself = True
    state_type = State

    def __init__(self, inner: Monitor, when: tuple[Condition, ...]) -> None:
        self.inner = inner
        self._gate = compile_conditions(when)
        self.initial = State(inner.initial)
        self.watches = msgspec.structs.replace(inner.watches, responses=True)

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is Response:
            is_open, mismatches = self._gate(event)
            if is_open or mismatches:
                state = _after(state, event.turn, is_open, mismatches)
        else:
            is_open = event.turn in state.recent
            if not is_open and _is_forgotten(state, event):
                state = msgspec.structs.replace(state, late=state.late + 1)
        if not is_open and not self.inner.gates_itself:
            return state, NOTHING
        after, found = self.inner.step(state.inner, event, is_open)
        if found and state.mismatches:
            found = tuple(msgspec.structs.replace(one, notes=mismatch_notes(state.mismatches)) for one in found)
        if after is state.inner:
            return state, found
        return State(after, state.recent, state.matched, state.mismatches, state.late), found

    def dump(self, state: State, excerpts: bool = True) -> State:
        return msgspec.structs.replace(state, inner=self.inner.dump(state.inner, excerpts))

    def revive(self, data: Any) -> State:
        state = msgspec.convert(data, State)
        return msgspec.structs.replace(state, inner=self.inner.revive(state.inner))

    def end(self, state: State, ended: Ended) -> Conclusion:
        notes = mismatch_notes(state.mismatches)
        if not state.matched:
            nothing = VACUOUS if ended.complete else STOPPED_EARLY
            return Conclusion(nothing.outcome, reason=nothing.reason, notes=notes)
        inner = self.inner.end(state.inner, Ended(state.matched, ended.complete))
        if state.late and inner.outcome is not Outcome.VIOLATED:
            return Conclusion(Outcome.INCONCLUSIVE, reason=_too_late(state.late), notes=(*notes, *inner.notes))
        return Conclusion(inner.outcome, inner.found, inner.reason, (*notes, *inner.notes))


def _after(state: State, turn: int | None, is_open: bool, mismatches: int) -> State:
    recent = (*state.recent[1 - RECENT :], turn) if is_open else state.recent
    return State(state.inner, recent, state.matched + is_open, state.mismatches + mismatches, state.late)


def _is_forgotten(state: State, event: Event) -> bool:
    """Whether the call's turn lies before all that is remembered, while more had matched than that."""
    if state.matched <= len(state.recent) or event.turn is None:
        return False
    oldest = state.recent[0]
    return oldest is not None and event.turn < oldest


def _too_late(calls: int) -> str:
    many = "1 call was" if calls == 1 else f"{calls} calls were"
    return f"{many} recorded too long after the turn to tell whether `when` matched"
