"""`Next`: the turn after a triggering one satisfies the probe."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.conditions import compile_conditions
from bylaw.engine.evidence import bare, ref
from bylaw.engine.matching import compile_names, compile_text
from bylaw.engine.monitor import (
    NOTHING,
    STOPPED_EARLY,
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
from bylaw.engine.notes import mismatch_notes
from bylaw.model.demand import Calls, TextHas
from bylaw.model.demand import Next as Demand
from bylaw.model.events import Event, Response
from bylaw.model.verdict import EventRef, Outcome


class Due(Struct, frozen=True, array_like=True):
    """The triggering turn whose follow-up is awaited."""

    session: str
    turn: int | None
    where: EventRef


class State(Struct, frozen=True, array_like=True):
    due: Due | None = None
    triggered: bool = False
    blind: int = 0
    mismatches: int = 0


class Next(Monitor):
    initial = State()
    state_type = State
    gates_itself = True
    watches = Watches(responses=True)

    def __init__(self, demand: Demand) -> None:
        self._triggers = compile_conditions(demand.trigger)
        self._satisfies = _compile_must(demand.must)
        self._wanted = _describe(demand.must)

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        found, blind = NOTHING, state.blind
        if state.due is not None:
            answer = self._satisfies(event)
            if answer is None:
                blind += 1
            elif not answer:
                message = f"the turn after a trigger does not {self._wanted}"
                found = (Found(message, event.origin.session, event.turn, (state.due.where, ref(event))),)
        triggered, mismatches = self._triggers(event) if applies else (False, 0)
        if not (triggered or mismatches or state.due is not None):
            return state, found
        due = Due(event.origin.session, event.turn, ref(event)) if triggered else None
        return State(due, state.triggered or triggered, blind, state.mismatches + mismatches), found

    def dump(self, state: State, excerpts: bool = True) -> State:
        if excerpts or state.due is None:
            return state
        return replace(state, due=replace(state.due, where=bare(state.due.where)))

    def end(self, state: State, ended: Ended) -> Conclusion:
        if state.due is not None and ended.complete:
            message = f"triggered on the last turn, so no turn could {self._wanted}"
            found = Found(message, state.due.session, state.due.turn, (state.due.where,))
            return Conclusion(Outcome.VIOLATED, (found,), notes=mismatch_notes(state.mismatches))
        verdict = held(ended) if state.triggered else VACUOUS if ended.complete else STOPPED_EARLY
        verdict = unless_blind(state.blind, "content", verdict)
        return Conclusion(verdict.outcome, reason=verdict.reason, notes=mismatch_notes(state.mismatches))


def _compile_must(must: Calls | TextHas):  # type: ignore[no-untyped-def]
    """response → satisfied, or None where the response's content was not recorded"""
    if isinstance(must, Calls):
        matches = compile_names(must)
        return lambda response: any(matches(call.name) for call in response.tool_calls)
    find = compile_text(must)
    return lambda response: None if response.text is None else find(response.text) is not None


def _describe(must: Calls | TextHas) -> str:
    if isinstance(must, Calls):
        return "call " + " or ".join(f"`{name}`" for name in must.tools)
    return f"say `{must.text}`"
