"""`Before`: every call of `second` has an earlier call of `first`."""

from __future__ import annotations

from msgspec import Struct

from bylaw.engine.evidence import ref
from bylaw.engine.matching import compile_names
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
)
from bylaw.model.demand import Before as Demand
from bylaw.model.events import Event, ToolCall

MAX_PENDING = 10_000
"""with `only_if_both`, early calls wait for a `first` to appear; more than these are counted in one finding"""


class State(Struct, frozen=True, array_like=True):
    first_seen: bool = False
    judged: bool = False
    """a `second` was called that the rule judges"""
    pending: tuple[Found, ...] = ()
    uncounted: int = 0


class Before(Monitor):
    initial = State()
    state_type = State
    gates_itself = True

    def __init__(self, demand: Demand) -> None:
        self._is_first, self._is_second = compile_names(demand.first), compile_names(demand.second)
        self._first_names = " or ".join(f"`{name}`" for name in demand.first.tools)
        self._only_if_both = demand.only_if_both
        self.watches = Watches(calls=(demand.first, demand.second))

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall:
            return state, NOTHING
        found = NOTHING
        # a call that is both is judged as `second` first: nothing is earlier than itself
        if applies and self._is_second(event.name):
            state, found = self._second(state, event)
        if not state.first_seen and self._is_first(event.name):
            found += (*state.pending, *_more(state.uncounted))
            state = State(True, state.judged)
        return state, found

    def _second(self, state: State, event: ToolCall) -> tuple[State, tuple[Found, ...]]:
        if state.first_seen:
            return (state if state.judged else State(True, True)), NOTHING
        message = f"`{event.name}` was called with no earlier call of {self._first_names}"
        found = Found(message, event.origin.session, event.turn, (ref(event),))
        if not self._only_if_both:
            return State(False, True), (found,)
        if len(state.pending) < MAX_PENDING:
            return State(False, True, (*state.pending, found)), NOTHING
        return State(False, True, state.pending, state.uncounted + 1), NOTHING

    def end(self, state: State, ended: Ended) -> Conclusion:
        if state.first_seen and state.judged:
            return OK
        if not ended.complete:
            return STOPPED_EARLY
        # judged without a first: either already violated, or out of `only_if_both`'s reach
        return VACUOUS


def _more(count: int) -> tuple[Found, ...]:
    return (Found(f"{count:,} more calls came before it, too many to name each"),) if count else ()
