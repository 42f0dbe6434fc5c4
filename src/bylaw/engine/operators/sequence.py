"""The operators that compare two events.

`Before`  every call of `second` has an earlier call of `first`
`Next`    the turn after a triggering one satisfies the probe
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.conditions import compile_conditions
from bylaw.engine.evidence import bare, ref
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
    mismatch_notes,
    ok_if_complete,
    unless_blind,
)
from bylaw.model import demand as demands
from bylaw.model.demand import Calls, TextHas
from bylaw.model.events import Event, Response, ToolCall
from bylaw.model.verdict import EventRef, Outcome

MAX_PENDING = 10_000
"""with `only_if_both`, early calls wait for a `first` to appear; more than these are counted in one finding"""


class BeforeState(Struct, frozen=True, array_like=True):
    first_seen: bool = False
    judged: bool = False
    """a `second` was called that the rule judges"""
    pending: tuple[Found, ...] = ()
    uncounted: int = 0


class Before(Monitor):
    initial = BeforeState()
    state_type = BeforeState
    gates_itself = True

    def __init__(self, demand: demands.Before) -> None:
        self._is_first, self._is_second = compile_names(demand.first), compile_names(demand.second)
        self._first_names = " or ".join(f"`{name}`" for name in demand.first.tools)
        self._only_if_both = demand.only_if_both
        self.watches = Watches(calls=(demand.first, demand.second))

    def step(self, state: BeforeState, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall:
            return state, NOTHING
        found = NOTHING
        # a call that is both is judged as `second` first: nothing is earlier than itself
        if applies and self._is_second(event.name):
            state, found = self._second(state, event)
        if not state.first_seen and self._is_first(event.name):
            found += (*state.pending, *_more(state.uncounted))
            state = BeforeState(True, state.judged)
        return state, found

    def _second(self, state: BeforeState, event: ToolCall) -> tuple[BeforeState, tuple[Found, ...]]:
        if state.first_seen:
            return (state if state.judged else BeforeState(True, True)), NOTHING
        message = f"`{event.name}` was called with no earlier call of {self._first_names}"
        found = Found(message, event.origin.session, event.turn, (ref(event),))
        if not self._only_if_both:
            return BeforeState(False, True), (found,)
        if len(state.pending) < MAX_PENDING:
            return BeforeState(False, True, (*state.pending, found)), NOTHING
        return BeforeState(False, True, state.pending, state.uncounted + 1), NOTHING

    def end(self, state: BeforeState, ended: Ended) -> Conclusion:
        if state.first_seen and state.judged:
            return OK
        if not ended.complete:
            return STOPPED_EARLY
        # judged without a first: either already violated, or out of `only_if_both`'s reach
        return VACUOUS


def _more(count: int) -> tuple[Found, ...]:
    return (Found(f"{count:,} more calls came before it, too many to name each"),) if count else ()


class Due(Struct, frozen=True, array_like=True):
    """The triggering turn whose follow-up is awaited."""

    session: str
    turn: int | None
    where: EventRef


class NextState(Struct, frozen=True, array_like=True):
    due: Due | None = None
    triggered: bool = False
    blind: int = 0
    mismatches: int = 0


class Next(Monitor):
    initial = NextState()
    state_type = NextState
    gates_itself = True
    watches = Watches(responses=True)

    def __init__(self, demand: demands.Next) -> None:
        self._triggers = compile_conditions(demand.trigger)
        self._satisfies = _compile_must(demand.must)
        self._wanted = _describe(demand.must)

    def step(self, state: NextState, event: Event, applies: bool = True) -> Step:
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
        return NextState(due, state.triggered or triggered, blind, state.mismatches + mismatches), found

    def dump(self, state: NextState, excerpts: bool = True) -> NextState:
        if excerpts or state.due is None:
            return state
        return replace(state, due=replace(state.due, where=bare(state.due.where)))

    def end(self, state: NextState, ended: Ended) -> Conclusion:
        if state.due is not None and ended.complete:
            message = f"triggered on the last turn, so no turn could {self._wanted}"
            found = Found(message, state.due.session, state.due.turn, (state.due.where,))
            return Conclusion(Outcome.VIOLATED, (found,), notes=mismatch_notes(state.mismatches))
        verdict = ok_if_complete(ended) if state.triggered else VACUOUS if ended.complete else STOPPED_EARLY
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
