"""The operators that compare two events.

`Before`  every call of `second` has an earlier call of `first`
`Next`    the turn after a triggering one satisfies the probe
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.conditions import NO_DOUBTS, add_doubts, any_of, compile_conditions, tell_doubts
from bylaw.engine.matching import compile_calls, describe_calls
from bylaw.engine.monitor import (
    NOTHING,
    OK,
    STOPPED_EARLY,
    VACUOUS,
    Conclusion,
    FoundViolation,
    Monitor,
    ScopeEnd,
    Step,
    Watches,
    bare,
    doubt,
    inconclusive_if_blind,
    inconclusive_if_unknown,
    mismatch_notes,
    ok_if_complete,
    ref,
)
from bylaw.engine.probes import compile_search
from bylaw.model import demand as demands
from bylaw.model.demand import Calls
from bylaw.model.events import Event, Response, ToolCall
from bylaw.model.temporal import TextHas
from bylaw.model.verdict import EventRef, Outcome

MAX_PENDING = 10_000
"""with `only_if_both`, early calls wait for a `first` to appear; more than these are counted in one finding"""


class BeforeState(Struct, frozen=True, array_like=True):
    first_seen: bool = False
    judged: bool = False
    """a `second` was called that the rule judges"""
    pending: tuple[FoundViolation, ...] = ()
    uncounted: int = 0
    first_possible: bool = False
    """a call may be a `first`: its arguments are not fully known"""
    second_possible: bool = False
    unclear: int = 0
    """calls of `second` that may break the rule"""
    waiting: int = 0
    """with `only_if_both`: those that do so only if a `first` follows"""


class Before(Monitor):
    initial = BeforeState()
    state_type = BeforeState
    gates_itself = True

    def __init__(self, demand: demands.Before) -> None:
        self._is_first, self._is_second = compile_calls(demand.first), compile_calls(demand.second)
        self._first_names = describe_calls(demand.first)
        self._only_if_both = demand.only_if_both
        self.watches = Watches(calls=(demand.first, demand.second))

    def step(self, state: BeforeState, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall:
            return state, NOTHING
        found = NOTHING
        # a call that is both is judged as `second` first: nothing is earlier than itself
        if applies and (truth := self._is_second(event)) is not False:
            state, found = self._second(state, event, certain=truth is True)
        if not state.first_seen:
            truth = self._is_first(event)
            if truth:
                found += (*state.pending, *_count_unnamed(state.uncounted))
                unclear = state.unclear + state.waiting
                state = BeforeState(True, state.judged, second_possible=state.second_possible, unclear=unclear)
            elif truth is None:
                unclear = state.unclear + state.waiting + (1 if state.pending else 0)
                state = replace(state, first_possible=True, unclear=unclear, waiting=0)
        return state, found

    def _second(
        self, state: BeforeState, event: ToolCall, certain: bool
    ) -> tuple[BeforeState, tuple[FoundViolation, ...]]:
        if state.first_seen and certain:
            return (state if state.judged else replace(state, judged=True)), NOTHING
        if state.first_seen:
            return (state if state.second_possible else replace(state, second_possible=True)), NOTHING
        message = f"`{event.name}` was called with no earlier call of {self._first_names}"
        found = FoundViolation(message, event.origin.session, event.turn, (ref(event),))
        state = replace(state, judged=state.judged or certain, second_possible=state.second_possible or not certain)
        if not certain or state.first_possible:
            if self._only_if_both:
                return replace(state, waiting=state.waiting + 1), NOTHING
            return replace(state, unclear=state.unclear + 1), (doubt(found),)
        if not self._only_if_both:
            return state, (found,)
        if len(state.pending) < MAX_PENDING:
            return replace(state, pending=(*state.pending, found)), NOTHING
        return replace(state, uncounted=state.uncounted + 1), NOTHING

    def end(self, state: BeforeState, ended: ScopeEnd) -> Conclusion:
        if state.unclear:
            return inconclusive_if_unknown(state.unclear, VACUOUS)
        if state.first_seen and state.judged:
            return OK
        if not ended.complete:
            return STOPPED_EARLY
        # judged without a first: either already violated, or out of `only_if_both`'s reach
        undecided = (state.judged or state.second_possible) and (state.first_seen or state.first_possible)
        return inconclusive_if_unknown(int(undecided), VACUOUS)


def _count_unnamed(count: int) -> tuple[FoundViolation, ...]:
    return (FoundViolation(f"{count:,} more calls came before it, too many to name each"),) if count else ()


class AwaitedTurn(Struct, frozen=True, array_like=True):
    """The triggering turn whose follow-up is awaited."""

    session: str
    turn: int | None
    where: EventRef
    sure: bool = True
    """False where it is not known whether that turn is a trigger"""


class OpenTurn(Struct, frozen=True, array_like=True):
    """The turn after a trigger, as long as its calls may still follow: a guard sees them one by one."""

    found: FoundViolation | None
    """the violation to report if none of them is the wanted call; None if it is unknown whether the trigger occurred"""
    session: str
    turn: int | None
    blind: bool = False


class NextState(Struct, frozen=True, array_like=True):
    due: AwaitedTurn | None = None
    triggered: bool = False
    blind: int = 0
    mismatches: int = 0
    doubts: tuple[tuple[str, int], ...] = ()
    """why it is not known of some turns whether they are triggers, and of how many"""
    unmet: bool = False
    """one of them has no follow-up"""
    open: OpenTurn | None = None


class Next(Monitor):
    initial = NextState()
    state_type = NextState
    gates_itself = True

    def __init__(self, demand: demands.Next) -> None:
        self.watches = Watches(responses=True, calls=(demand.must,) if isinstance(demand.must, Calls) else ())
        self._awaits_calls = isinstance(demand.must, Calls)
        self._triggers = compile_conditions(demand.trigger)
        self._satisfies = _compile_must(demand.must)
        must = demand.must
        self._wanted = f"call {describe_calls(must)}" if isinstance(must, Calls) else f"say `{must.text}`"

    def step(self, state: NextState, event: Event, applies: bool = True) -> Step:
        if type(event) is ToolCall and state.open is not None:
            return self._called(state, state.open, event), NOTHING
        if type(event) is not Response:
            return state, NOTHING
        state, found = self._close(state)
        blind, unmet, open_turn = state.blind, state.unmet, None
        if state.due is not None:
            answer = self._satisfies(event)
            missed = None
            if answer is False and state.due.sure:
                message = f"the turn after a trigger does not {self._wanted}"
                missed = FoundViolation(message, event.origin.session, event.turn, (state.due.where, ref(event)))
            if answer is False and self._awaits_calls and not event.tool_calls:
                open_turn = OpenTurn(missed, event.origin.session, event.turn)
            elif not state.due.sure:
                unmet = unmet or not answer
            elif answer is None:
                blind += 1
            elif missed is not None:
                found += (missed,)
        triggered, doubts = self._triggers(event) if applies else (False, NO_DOUBTS)
        if triggered is False and not doubts and state.due is None:
            return state, found
        due = (
            None if triggered is False else AwaitedTurn(event.origin.session, event.turn, ref(event), triggered is True)
        )
        counted = add_doubts(state.doubts, doubts) if triggered is None else state.doubts
        mismatches = state.mismatches + sum(doubt.mismatch for doubt in doubts)
        return NextState(due, state.triggered or triggered is True, blind, mismatches, counted, unmet, open_turn), found

    def _called(self, state: NextState, turn: OpenTurn, call: ToolCall) -> NextState:
        """A call of the open turn that its response did not list."""
        if call.turn != turn.turn or call.origin.session != turn.session:
            return state
        answer = self._satisfies(Response(origin=call.origin, turn=call.turn, tool_calls=(call,)))
        if answer is False or (answer is None and turn.blind):
            return state
        return replace(state, open=None if answer else replace(turn, blind=True))

    def _close(self, state: NextState) -> tuple[NextState, tuple[FoundViolation, ...]]:
        """No more calls of the open turn follow."""
        turn = state.open
        if turn is None:
            return state, NOTHING
        if turn.found is None:
            return replace(state, open=None, unmet=True), NOTHING
        if turn.blind:
            return replace(state, open=None, blind=state.blind + 1), NOTHING
        return replace(state, open=None), (turn.found,)

    def dump(self, state: NextState, excerpts: bool = True) -> NextState:
        if excerpts:
            return state
        due, turn = state.due, state.open
        if turn is not None and turn.found is not None:
            evidence = tuple(map(bare, turn.found.evidence))
            turn = replace(turn, found=replace(turn.found, evidence=evidence))
        return replace(state, due=None if due is None else replace(due, where=bare(due.where)), open=turn)

    def end(self, state: NextState, ended: ScopeEnd) -> Conclusion:
        state, missed = self._close(state)
        due, unmet = state.due, state.unmet
        if due is not None and not due.sure:
            due, unmet = None, True
        if due is not None and ended.complete:
            message = f"triggered on the last turn, so no turn could {self._wanted}"
            missed += (FoundViolation(message, due.session, due.turn, (due.where,)),)
        if missed:
            return Conclusion(Outcome.VIOLATED, missed, notes=mismatch_notes(state.mismatches))
        verdict = ok_if_complete(ended) if state.triggered else VACUOUS if ended.complete else STOPPED_EARLY
        if self._awaits_calls:
            verdict = inconclusive_if_unknown(state.blind, verdict)
        else:
            verdict = inconclusive_if_blind(state.blind, "content", verdict)
        if state.doubts and (unmet or not state.triggered):
            verdict = Conclusion(Outcome.INCONCLUSIVE, reason=tell_doubts("`trigger` matched", state.doubts))
        return Conclusion(verdict.outcome, reason=verdict.reason, notes=mismatch_notes(state.mismatches))


def _compile_must(must: Calls | TextHas) -> Callable[[Response], bool | None]:
    """response → satisfied, or None where the response's content, or the arguments of its calls, are not known"""
    if isinstance(must, TextHas):
        search = compile_search(must)
        return lambda response: None if response.text is None else search(response) is not None
    is_such = compile_calls(must)
    return lambda response: any_of([is_such(call) for call in response.tool_calls])
