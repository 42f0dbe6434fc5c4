"""The operators that look at each event by itself.

`Never`     each event for which the probe is true is a violation
`Always`    each response for which the probe is false is a violation
`Sometime`  the probe must be true for at least one response; a violation is known only at the end
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.evidence import around, ref
from bylaw.engine.matching import compile_names, compile_text
from bylaw.engine.monitor import (
    NOTHING,
    OK,
    STOPPED_EARLY,
    VACUOUS,
    Conclusion,
    Ended,
    Found,
    Monitor,
    Step,
    Watches,
    ok_if_complete,
    unless_blind,
)
from bylaw.engine.probes import BLIND, HOLDS, SKIP, THIN, Judge
from bylaw.model.demand import Calls, TextHas
from bylaw.model.events import Event, Response, ToolCall
from bylaw.model.verdict import Outcome


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
        return ok_if_complete(ended)


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
        return unless_blind(blind, "content", ok_if_complete(ended))


class AlwaysState(Struct, frozen=True, array_like=True):
    judged: bool = False
    blind: int = 0
    """responses that lack a value because it was not recorded"""
    thin: int = 0
    """responses that say too little to be judged"""


_FRESH, _JUDGED = AlwaysState(), AlwaysState(judged=True)


class Always(Monitor):
    initial = _FRESH
    state_type = AlwaysState
    watches = Watches(responses=True)

    def __init__(self, judge: Judge, needs: str) -> None:
        self._judge = judge
        self._needs = needs

    def step(self, state: AlwaysState, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        answer = self._judge(event)
        if answer is SKIP:
            return state, NOTHING
        if answer is BLIND:
            return replace(state, blind=state.blind + 1), NOTHING
        if answer is THIN:
            return replace(state, thin=state.thin + 1), NOTHING
        judged = state if state.judged else _JUDGED if state is _FRESH else replace(state, judged=True)
        if answer is HOLDS:
            return judged, NOTHING
        found = Found(answer.message, event.origin.session, event.turn, (ref(event, answer.excerpt),))
        return judged, (found,)

    def end(self, state: AlwaysState, ended: Ended) -> Conclusion:
        verdict = ok_if_complete(ended) if state.judged or not ended.complete else VACUOUS
        return unless_blind(state.blind, self._needs, verdict, thin=state.thin)


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
