"""`Tally`: what the events add up to stays within bounds. The event that crosses the upper bound is the violation."""

from __future__ import annotations

from msgspec import Struct

from bylaw.engine.evidence import bare, ref
from bylaw.engine.matching import compile_names
from bylaw.engine.monitor import (
    NOTHING,
    STOPPED_EARLY,
    Conclusion,
    Ended,
    Found,
    Monitor,
    Step,
    Watches,
    doubt,
    ok_if_complete,
    unless_blind,
    unless_unknown,
)
from bylaw.engine.predicates import compile_where, describe_calls
from bylaw.model.demand import Calls, Tally
from bylaw.model.events import Event, Response, ToolCall, Usage
from bylaw.model.verdict import EventRef, Outcome


class Seen(Struct, frozen=True, array_like=True):
    count: int = 0
    first: EventRef | None = None
    unknown: int = 0
    """calls that may count, for all that is known of their arguments"""


class TallyCalls(Monitor):
    initial = Seen()
    state_type = Seen

    def __init__(self, demand: Tally, calls: Calls) -> None:
        self._matches = compile_names(calls)
        self._where = None if calls.where is None else compile_where(calls.where)
        self._names = describe_calls(calls)
        self._demand = demand
        self.watches = Watches(calls=(calls,))

    def step(self, state: Seen, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall or not self._matches(event.name):
            return state, NOTHING
        if self._where is not None and not self._where(event):
            return self._uncertain(state, event)
        after = Seen(state.count + 1, state.first or ref(event), state.unknown)
        most = self._demand.at_most
        if after.count + state.unknown <= most or (state.count > most and not self._demand.each_excess):
            return after, NOTHING
        found = self._excess(state, event, after.count + state.unknown)
        return after, (found if after.count > most else doubt(found),)

    def _uncertain(self, state: Seen, event: ToolCall) -> Step:
        assert self._where is not None
        if self._where(event) is False:
            return state, NOTHING
        after = Seen(state.count, state.first, state.unknown + 1)
        count = after.count + after.unknown
        return after, (doubt(self._excess(state, event, count)),) if count > self._demand.at_most else NOTHING

    def _excess(self, state: Seen, event: ToolCall, count: int) -> Found:
        earlier = (state.first,) if state.first else ()
        message = f"call {count} of {self._names}, {self._wanted()}"
        return Found(message, event.origin.session, event.turn, (*earlier, ref(event)))

    def dump(self, state: Seen, excerpts: bool = True) -> Seen:
        return state if excerpts or state.first is None else Seen(state.count, bare(state.first), state.unknown)

    def _wanted(self) -> str:
        low, high = self._demand.at_least, self._demand.at_most
        return f"exactly {high} wanted" if low == high else f"at most {high} wanted"

    def end(self, state: Seen, ended: Ended) -> Conclusion:
        if state.unknown and not self._demand.at_least <= state.count <= self._demand.at_most - state.unknown:
            return unless_unknown(state.unknown, STOPPED_EARLY)
        if state.count >= self._demand.at_least:
            return ok_if_complete(ended)
        if not ended.complete:
            return STOPPED_EARLY
        message = f"{self._names} was never called, {self._wanted()}"
        return Conclusion(Outcome.VIOLATED, (Found(message),))


class TallyTurns(Monitor):
    """State: turns so far."""

    initial = 0
    state_type = int
    watches = Watches(responses=True)

    def __init__(self, demand: Tally) -> None:
        self._at_most = demand.at_most

    def step(self, count: int, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return count, NOTHING
        if count != self._at_most:
            return count + 1, NOTHING
        message = f"turn {count + 1} of at most {self._at_most}"
        return count + 1, (Found(message, event.origin.session, event.turn, (ref(event),)),)

    def end(self, count: int, ended: Ended) -> Conclusion:
        return ok_if_complete(ended)


class Spent(Struct, frozen=True, array_like=True):
    tokens: int = 0
    blind: int = 0


def _spent(usage: Usage | None) -> tuple[int, bool]:
    """Tokens, and whether those are all."""
    if usage is None:
        return 0, False
    before, after = usage.input_tokens, usage.output_tokens
    if before is not None and after is not None:
        return before + after, True
    return usage.total or 0, usage.is_whole


class TallyTokens(Monitor):
    initial = Spent()
    state_type = Spent
    watches = Watches(responses=True)

    def __init__(self, demand: Tally) -> None:
        self._at_most = demand.at_most

    def step(self, state: Spent, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        total, is_whole = _spent(event.usage)
        tokens = state.tokens + total
        after = Spent(tokens, state.blind if is_whole else state.blind + 1)
        if not state.tokens <= self._at_most < tokens:
            return after, NOTHING
        message = f"{tokens} tokens so far, at most {self._at_most} allowed"
        return after, (Found(message, event.origin.session, event.turn, (ref(event),)),)

    def end(self, state: Spent, ended: Ended) -> Conclusion:
        return unless_blind(state.blind, "token usage", ok_if_complete(ended))
