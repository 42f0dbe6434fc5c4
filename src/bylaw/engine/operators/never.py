"""`Never`: the probe is true of no event. Each event of which it is true is a violation."""

from __future__ import annotations

from bylaw.engine.evidence import around, ref
from bylaw.engine.matching import compile_names, compile_text
from bylaw.engine.monitor import (
    NOTHING,
    Conclusion,
    Ended,
    Found,
    Monitor,
    Step,
    Watches,
    held,
    unless_blind,
)
from bylaw.model.demand import Calls, TextHas
from bylaw.model.events import Event, Response, ToolCall


class NeverCalls(Monitor):
    initial = None
    state_type = None

    def __init__(self, calls: Calls) -> None:
        self._matches = compile_names(calls)
        self.watches = Watches(calls=(calls,))

    def step(self, state: None, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall or not self._matches(event.name):
            return state, NOTHING
        message = f"`{event.name}` must never be called"
        return state, (Found(message, event.origin.session, event.turn, (ref(event),)),)

    def end(self, state: None, ended: Ended) -> Conclusion:
        return held(ended)


class NeverText(Monitor):
    """State: how many responses had no recorded content."""

    initial = 0
    state_type = int
    watches = Watches(responses=True)

    def __init__(self, probe: TextHas) -> None:
        self._find = compile_text(probe)
        self._wanted = probe.text

    def step(self, blind: int, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return blind, NOTHING
        text = event.text
        if text is None:
            return blind + 1, NOTHING
        place = self._find(text)
        if place is None:
            return blind, NOTHING
        message = f"response contains forbidden text `{self._wanted}`"
        return blind, (Found(message, event.origin.session, event.turn, (ref(event, around(text, *place)),)),)

    def end(self, blind: int, ended: Ended) -> Conclusion:
        return unless_blind(blind, "content", held(ended))
