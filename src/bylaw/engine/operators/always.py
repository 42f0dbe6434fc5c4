"""`Always`: the probe is true of every response it can judge. Each response of which it is false is a violation."""

from __future__ import annotations

from msgspec import Struct

from bylaw.engine.evidence import ref
from bylaw.engine.monitor import (
    NOTHING,
    VACUOUS,
    Conclusion,
    Ended,
    Found,
    Monitor,
    Step,
    Watches,
    held,
    unless_blind,
)
from bylaw.engine.probes import BLIND, HOLDS, SKIP, Judge
from bylaw.model.events import Event, Response


class State(Struct, frozen=True, array_like=True):
    judged: bool = False
    blind: int = 0


_FRESH, _JUDGED = State(), State(judged=True)


class Always(Monitor):
    initial = _FRESH
    state_type = State
    watches = Watches(responses=True)

    def __init__(self, judge: Judge, needs: str) -> None:
        self._judge = judge
        self._needs = needs

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        answer = self._judge(event)
        if answer is SKIP:
            return state, NOTHING
        if answer is BLIND:
            return State(state.judged, state.blind + 1), NOTHING
        judged = state if state.judged else State(True, state.blind) if state.blind else _JUDGED
        if answer is HOLDS:
            return judged, NOTHING
        found = Found(answer.message, event.origin.session, event.turn, (ref(event, answer.excerpt),))
        return judged, (found,)

    def end(self, state: State, ended: Ended) -> Conclusion:
        verdict = held(ended) if state.judged or not ended.complete else VACUOUS
        return unless_blind(state.blind, self._needs, verdict)
