"""`when`: a monitor that sees only the turns its conditions match.

The conditions are evaluated once a turn, at its response; the calls of that turn use the same answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from bylaw.engine.conditions import compile_conditions
from bylaw.engine.monitor import (
    NOTHING,
    STOPPED_EARLY,
    VACUOUS,
    Conclusion,
    Ended,
    Monitor,
    Step,
    Watches,
)
from bylaw.engine.notes import mismatch_notes
from bylaw.model.condition import Condition
from bylaw.model.events import Event, Response


class State(Struct, frozen=True, array_like=True):
    inner: Any
    turn: int | None = None
    """the latest turn, and whether it matched"""
    open: bool = False
    matched: int = 0
    mismatches: int = 0


class Gated(Monitor):
    gates_itself = True
    state_type = State

    def __init__(self, inner: Monitor, when: tuple[Condition, ...]) -> None:
        self.inner = inner
        self._gate = compile_conditions(when)
        self.initial = State(inner.initial)
        self.watches = Watches(responses=True, calls=inner.watches.calls)

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is Response:
            is_open, mismatches = self._gate(event)
            state = State(state.inner, event.turn, is_open, state.matched + is_open, state.mismatches + mismatches)
        else:
            is_open = state.open and event.turn == state.turn
        if not is_open and not self.inner.gates_itself:
            return state, NOTHING
        after, found = self.inner.step(state.inner, event, is_open)
        if after is state.inner:
            return state, found
        return State(after, state.turn, state.open, state.matched, state.mismatches), found

    def revive(self, data: Any) -> State:
        state = msgspec.convert(data, State)
        return msgspec.structs.replace(state, inner=self.inner.revive(state.inner))

    def end(self, state: State, ended: Ended) -> Conclusion:
        notes = mismatch_notes(state.mismatches)
        if not state.matched:
            nothing = VACUOUS if ended.complete else STOPPED_EARLY
            return Conclusion(nothing.outcome, reason=nothing.reason, notes=notes)
        inner = self.inner.end(state.inner, Ended(state.matched, ended.complete))
        return Conclusion(inner.outcome, inner.found, inner.reason, (*notes, *inner.notes))
