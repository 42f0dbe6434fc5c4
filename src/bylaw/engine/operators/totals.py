"""`Tally` of amounts: the sum of call arguments, or of the cost or latency of turns, stays within a bound.

Sums are decimal and exact: `0.1 + 0.2` is `0.3`. The digits of a sum are bounded, since those of a number are.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_UP, Context, Decimal
from typing import Any

from msgspec import Struct

from bylaw.engine.matching import compile_calls, describe_calls
from bylaw.engine.monitor import (
    NOTHING,
    VACUOUS,
    Conclusion,
    FoundViolation,
    Monitor,
    ScopeEnd,
    Step,
    Watches,
    count_turns,
    doubt,
    inconclusive_if_unknown,
    ok_if_complete,
    ref,
)
from bylaw.engine.probes import MEASURES, show_amount
from bylaw.engine.values import ABSENT, UNREADABLE, Number, compile_steps, number, spread
from bylaw.model.demand import Cost, Latency, Tally, Values
from bylaw.model.events import Event, Response, ToolCall
from bylaw.model.verdict import Outcome

_EXACT = Context(prec=1_000, rounding=ROUND_UP)
"""a double has at most 309 digits before the point and 341 after it; a text may have more, and still counts"""
_HIGHEST = Decimal("1e309")
"""a number beyond every double counts as this one: it is over any limit"""
_ZERO = Decimal(0)


class Sum(Struct, frozen=True, array_like=True):
    low: Decimal = _ZERO
    high: Decimal = _ZERO
    """the lowest and highest that the sum can be: they differ where a call may be one that counts"""
    judged: bool = False
    possible: bool = False
    """a value was added that may not count"""
    unknown: int = 0
    """calls whose value cannot be read: the sum is at least the sum of the others"""
    unclear: int = 0
    """calls at which the sum may have been too high"""


class TallyValues(Monitor):
    """A call that adds something and leaves the sum too high is a violation, each one."""

    initial = Sum()
    state_type = Sum

    def __init__(self, demand: Tally, measure: Values) -> None:
        self._is_such = compile_calls(measure.calls)
        self._steps = compile_steps(measure.path)
        self._limit = as_decimal(demand.at_most)
        self._what = f"`{measure.name}` of {describe_calls(measure.calls)}"
        self.watches = Watches(calls=(measure.calls,))

    def step(self, state: Sum, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall or (counts := self._is_such(event)) is False:
            return state, NOTHING
        value = add_up(spread(event.arguments, self._steps)) if isinstance(event.arguments, dict) else None
        if value is None:
            after = Sum(state.low, state.high, state.judged, state.possible, state.unknown + 1, state.unclear)
            return after, (doubt(self._make_violation(event, state.low)),)
        if value is _ABSENT:
            return state, NOTHING
        low = _EXACT.add(state.low, value) if counts else state.low
        high = _EXACT.add(state.high, value)
        is_over = bool(counts) and value > 0 and low > self._limit
        may_be = not is_over and value > 0 and (high > self._limit or state.unknown > 0)
        judged, possible = state.judged or bool(counts), state.possible or not counts
        after = Sum(low, high, judged, possible, state.unknown, state.unclear + may_be)
        if is_over:
            return after, (self._make_violation(event, low),)
        return after, (doubt(self._make_violation(event, high)),) if may_be else NOTHING

    def _make_violation(self, event: ToolCall, total: Decimal) -> FoundViolation:
        shown, limit = show_amount(total), show_amount(self._limit)
        message = f"{self._what} adds up to {'more than ' * (shown == limit)}{shown}, at most {limit} allowed"
        return FoundViolation(message, event.origin.session, event.turn, (ref(event),))

    def end(self, state: Sum, ended: ScopeEnd) -> Conclusion:
        if state.unknown:
            calls = "1 call" if state.unknown == 1 else f"{state.unknown} calls"
            return Conclusion(Outcome.INCONCLUSIVE, reason=f"{self._what} is no number, or not recorded, in {calls}")
        if state.unclear or not ended.complete:
            return inconclusive_if_unknown(state.unclear, ok_if_complete(ended))
        return ok_if_complete(ended) if state.judged else inconclusive_if_unknown(int(state.possible), VACUOUS)


_ABSENT = Decimal("-0")
"""no value: not the zero that a call may add"""


def add_up(values: Iterable[Any]) -> Decimal | None:
    """_ABSENT where there is none, None where one is no number. A negative number adds nothing: it must not make room
    for more."""
    total = _ABSENT
    for value in values:
        if value is ABSENT:
            continue
        known = None if value is UNREADABLE else number(value)
        if known is None:
            return None
        total = _EXACT.add(_ZERO if total is _ABSENT else total, max(_ZERO, as_decimal(known)))
    return total


def as_decimal(value: Number) -> Decimal:
    """The number as it is written, since 0.1 means a tenth; one beyond every double counts as the next power of ten."""
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return max(-_HIGHEST, min(_HIGHEST, exact))


class CostTotal(Struct, frozen=True, array_like=True):
    total: Decimal = _ZERO
    blind: int = 0


class TallyAmount(Monitor):
    """Cost or latency of the turns together. The turn that crosses the bound is the violation."""

    initial = CostTotal()
    state_type = CostTotal
    watches = Watches(responses=True)

    def __init__(self, demand: Tally, measure: Cost | Latency) -> None:
        self._measure, self._show, self._missing = MEASURES[type(measure)]
        self._limit = as_decimal(demand.at_most)

    def step(self, state: CostTotal, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        amount = self._measure(event)
        if amount is None:
            return CostTotal(state.total, state.blind + 1), NOTHING
        total = _EXACT.add(state.total, min(amount, _HIGHEST))
        after = CostTotal(total, state.blind)
        if not state.total <= self._limit < total:
            return after, NOTHING
        message = f"{self._show(total)} so far, at most {self._show(self._limit)} allowed"
        return after, (FoundViolation(message, event.origin.session, event.turn, (ref(event),)),)

    def end(self, state: CostTotal, ended: ScopeEnd) -> Conclusion:
        if state.blind:
            return Conclusion(Outcome.INCONCLUSIVE, reason=self._missing.format(count_turns(state.blind)))
        return ok_if_complete(ended)
