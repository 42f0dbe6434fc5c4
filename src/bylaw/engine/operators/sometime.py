"""`Sometime`: the probe is true of at least one response. Only the end can tell that it was not."""

from __future__ import annotations

from bylaw.engine.matching import compile_text
from bylaw.engine.monitor import (
    NOTHING,
    OK,
    STOPPED_EARLY,
    Conclusion,
    Ended,
    Found,
    Monitor,
    Step,
    Watches,
    unless_blind,
)
from bylaw.model.demand import TextHas
from bylaw.model.events import Event, Response
from bylaw.model.verdict import Outcome

SATISFIED = -1


class SometimeText(Monitor):
    """State: SATISFIED, or how many responses had no recorded content."""

    initial = 0
    state_type = int
    watches = Watches(responses=True)

    def __init__(self, probe: TextHas) -> None:
        self._find = compile_text(probe)
        self._wanted = probe.text

    def step(self, state: int, event: Event, applies: bool = True) -> Step:
        if state == SATISFIED or type(event) is not Response:
            return state, NOTHING
        if event.text is None:
            return state + 1, NOTHING
        return (state if self._find(event.text) is None else SATISFIED), NOTHING

    def end(self, state: int, ended: Ended) -> Conclusion:
        if state == SATISFIED:
            return OK
        if not ended.complete:
            return STOPPED_EARLY
        missing = Conclusion(Outcome.VIOLATED, (Found(f"no response contains `{self._wanted}`"),))
        return unless_blind(state, "content", missing)
