"""The operators that look at each event by itself, compare its value with the first, or count.

`Never`     each event for which the probe is true is a violation
`Always`    each response for which the probe is false is a violation
`Sometime`  each probe must be true for at least one response; a violation is known only at the end
`Constant`  each value observed at a path equals the first one observed
`Tally`     a sum over the events stays within bounds: the event that crosses the upper bound is the violation
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.conditions import compile_paths
from bylaw.engine.matching import compile_calls, describe_calls, describe_where
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
    as_json,
    bare,
    count_turns,
    doubt,
    excerpt_around,
    inconclusive_if_blind,
    inconclusive_if_unknown,
    ok_if_complete,
    ref,
    shorten,
)
from bylaw.engine.probes import BLIND, HOLDS, LOST, SKIP, THIN, UNREAD, Judge, compile_search
from bylaw.engine.values import UNRECORDED
from bylaw.model.canonical import json_equal
from bylaw.model.condition import Path
from bylaw.model.demand import Calls, Tally
from bylaw.model.events import Event, Response, ToolCall, Usage
from bylaw.model.temporal import TextHas
from bylaw.model.verdict import EventRef, Outcome


class NeverCalls(Monitor):
    """State: the number of calls that may match, since their arguments are not fully known."""

    initial = 0
    state_type = int

    def __init__(self, calls: Calls) -> None:
        self._is_such = compile_calls(calls)
        self._words = f"must never be called{describe_where(calls)}"
        self.watches = Watches(calls=(calls,))

    def step(self, unknown: int, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall or (truth := self._is_such(event)) is False:
            return unknown, NOTHING
        found = FoundViolation(f"`{event.name}` {self._words}", event.origin.session, event.turn, (ref(event),))
        return (unknown, (found,)) if truth else (unknown + 1, (doubt(found),))

    def end(self, unknown: int, ended: ScopeEnd) -> Conclusion:
        return inconclusive_if_unknown(unknown, ok_if_complete(ended))


class NeverText(Monitor):
    """State: how many responses had no recorded content."""

    initial = 0
    state_type = int
    watches = Watches(responses=True)

    def __init__(self, probe: TextHas, message: str = "") -> None:
        self._search = compile_search(probe)
        forbidden = f"response contains forbidden text `{probe.text}`"
        self._message = f"the model answered, but {message}" if message else forbidden

    def step(self, blind: int, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return blind, NOTHING
        if event.text is None:
            return blind + 1, NOTHING
        place = self._search(event)
        if place is None:
            return blind, NOTHING
        return blind, (
            FoundViolation(self._message, event.origin.session, event.turn, (ref(event, excerpt_around(*place)),)),
        )

    def end(self, blind: int, ended: ScopeEnd) -> Conclusion:
        return inconclusive_if_blind(blind, "content", ok_if_complete(ended))


class AlwaysState(Struct, frozen=True, array_like=True):
    judged: bool = False
    blind: int = 0
    """responses that lack a value because it was not recorded"""
    thin: int = 0
    """responses that say too little to be judged"""
    unread: int = 0
    """responses that are compared with something in a form that cannot be read"""
    lost: int = 0
    """responses that are compared with something that was not recorded"""


_FRESH, _JUDGED = AlwaysState(), AlwaysState(judged=True)


class Always(Monitor):
    initial = _FRESH
    state_type = AlwaysState
    watches = Watches(responses=True)

    def __init__(self, judge: Judge, needs: str, unread: str = "", lost: str = "") -> None:
        """`needs`: what to say of turns where something is missing; `unread`, `lost`: where what it is compared with
        cannot be read or was not recorded."""
        self._judge = judge
        self._needs, self._unread, self._lost = needs, unread, lost

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
        if answer is UNREAD:
            return replace(state, unread=state.unread + 1), NOTHING
        if answer is LOST:
            return replace(state, lost=state.lost + 1), NOTHING
        judged = state if state.judged else _JUDGED if state is _FRESH else replace(state, judged=True)
        if answer is HOLDS:
            return judged, NOTHING
        found = FoundViolation(answer.message, event.origin.session, event.turn, (ref(event, answer.excerpt),))
        return judged, (found,)

    def end(self, state: AlwaysState, ended: ScopeEnd) -> Conclusion:
        missing = [self._needs.format(count_turns(state.blind))] if state.blind else []
        missing += [f"too few content words to judge in {count_turns(state.thin)}"] if state.thin else []
        missing += [self._unread.format(count_turns(state.unread))] if state.unread else []
        missing += [self._lost.format(count_turns(state.lost))] if state.lost else []
        if missing:
            return Conclusion(Outcome.INCONCLUSIVE, reason=", ".join(missing))
        return ok_if_complete(ended) if state.judged or not ended.complete else VACUOUS


class MissingTexts(Struct, frozen=True, array_like=True):
    texts: tuple[int, ...]
    """which of the texts were not found yet, by their numbers"""
    blind: int = 0


class Sometime(Monitor):
    """Texts, each of which some response must contain."""

    state_type = MissingTexts
    watches = Watches(responses=True)

    def __init__(self, probes: tuple[TextHas, ...]) -> None:
        self._searches = [compile_search(probe) for probe in probes]
        self._wanted = [probe.text for probe in probes]
        self.initial = MissingTexts(tuple(range(len(probes))))

    def step(self, state: MissingTexts, event: Event, applies: bool = True) -> Step:
        if not state.texts or type(event) is not Response:
            return state, NOTHING
        if event.text is None:
            return MissingTexts(state.texts, state.blind + 1), NOTHING
        left = tuple([i for i in state.texts if self._searches[i](event) is None])
        return (state if left == state.texts else MissingTexts(left, state.blind)), NOTHING

    def end(self, state: MissingTexts, ended: ScopeEnd) -> Conclusion:
        if not state.texts:
            return OK
        if not ended.complete:
            return STOPPED_EARLY
        missing = tuple(FoundViolation(f"no response contains `{self._wanted[i]}`") for i in state.texts)
        return inconclusive_if_blind(state.blind, "content", Conclusion(Outcome.VIOLATED, missing))


# -- Constant ----------------------------------------------------------------------------------------------------------


class Observed(Struct, frozen=True, array_like=True):
    value: Any = None
    """the first value; None: there was none yet"""
    where: EventRef | None = None
    blind: int = 0
    """turns with a value that was not recorded"""


class Constant(Monitor):
    """Absent and null are not observations. A value that was not recorded may differ from the others.

    State: the first observation, and how many are lacking.
    """

    initial: Observed | None = None
    state_type = Observed | None
    watches = Watches(responses=True)

    def __init__(self, path: Path) -> None:
        self._path = path.text
        self._read = compile_paths(path)

    def step(self, state: Observed | None, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        first = None if state is None else state.value
        lacks = False
        for value in self._read(event):
            if value is None or value is first:
                continue
            if value is UNRECORDED:
                lacks = True
            elif first is None:
                first, state = value, Observed(value, ref(event, self._says(value)), state.blind if state else 0)
            elif not json_equal(value, first):
                assert state is not None and state.where is not None
                values = f"{shorten(as_json(first), 60)} to {shorten(as_json(value), 60)}"
                evidence = (state.where, ref(event, self._says(value)))
                message = f"`{self._path}` changed from {values}"
                return state, (FoundViolation(message, event.origin.session, event.turn, evidence),)
        if lacks:
            known = state or Observed()
            state = Observed(known.value, known.where, known.blind + 1)
        return state, NOTHING

    def _says(self, value: Any) -> str:
        return shorten(f"{self._path} = {as_json(value)}")

    def dump(self, state: Observed | None, excerpts: bool = True) -> Observed | None:
        if excerpts or state is None or state.where is None:
            return state
        return Observed(state.value, bare(state.where), state.blind)

    def end(self, state: Observed | None, ended: ScopeEnd) -> Conclusion:
        if state is not None and state.blind:
            why = f"`{self._path}` was not recorded in {count_turns(state.blind)}"
            return Conclusion(Outcome.INCONCLUSIVE, reason=why)
        return ok_if_complete(ended) if state is not None or not ended.complete else VACUOUS


# -- Tally -------------------------------------------------------------------------------------------------------------


class CallCount(Struct, frozen=True, array_like=True):
    count: int = 0
    first: EventRef | None = None
    unknown: int = 0
    """calls that may count, since their arguments are not fully known"""


class TallyCalls(Monitor):
    initial = CallCount()
    state_type = CallCount

    def __init__(self, demand: Tally, calls: Calls) -> None:
        self._is_such = compile_calls(calls)
        self._names = describe_calls(calls)
        self._demand = demand
        self.watches = Watches(calls=(calls,))

    def step(self, state: CallCount, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall or (truth := self._is_such(event)) is False:
            return state, NOTHING
        if truth:
            after = CallCount(state.count + 1, state.first or ref(event), state.unknown)
        else:
            after = CallCount(state.count, state.first, state.unknown + 1)
        most, count = self._demand.at_most, after.count + after.unknown
        if count <= most or (truth and state.count > most and not self._demand.each_excess):
            return after, NOTHING
        earlier = (state.first,) if state.first else ()
        message = f"call {count} of {self._names}, {self._wanted('at most', most)}"
        found = FoundViolation(message, event.origin.session, event.turn, (*earlier, ref(event)))
        return after, (found if truth and after.count > most else doubt(found),)

    def dump(self, state: CallCount, excerpts: bool = True) -> CallCount:
        return state if excerpts or state.first is None else CallCount(state.count, bare(state.first), state.unknown)

    def _wanted(self, bound: str, limit: float) -> str:
        return f"{'exactly' if self._demand.at_least == self._demand.at_most else bound} {limit} wanted"

    def end(self, state: CallCount, ended: ScopeEnd) -> Conclusion:
        if state.unknown and not self._demand.at_least <= state.count <= self._demand.at_most - state.unknown:
            return inconclusive_if_unknown(state.unknown, STOPPED_EARLY)
        if state.count >= self._demand.at_least:
            return ok_if_complete(ended)
        if not ended.complete:
            return STOPPED_EARLY
        times = (
            "never called" if not state.count else f"called {'once' if state.count == 1 else f'{state.count} times'}"
        )
        message = f"{self._names} was {times}, {self._wanted('at least', self._demand.at_least)}"
        return Conclusion(Outcome.VIOLATED, (FoundViolation(message),))


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
        return count + 1, (FoundViolation(message, event.origin.session, event.turn, (ref(event),)),)

    def end(self, count: int, ended: ScopeEnd) -> Conclusion:
        return ok_if_complete(ended)


class TokenTotal(Struct, frozen=True, array_like=True):
    tokens: int = 0
    blind: int = 0


def _count_tokens(usage: Usage | None) -> tuple[int, bool]:
    """Tokens, and whether those are all."""
    if usage is None:
        return 0, False
    before, after = usage.input_tokens, usage.output_tokens
    if before is not None and after is not None:
        return before + after, True
    return usage.total or 0, usage.is_whole


class TallyTokens(Monitor):
    initial = TokenTotal()
    state_type = TokenTotal
    watches = Watches(responses=True)

    def __init__(self, demand: Tally) -> None:
        self._at_most = demand.at_most

    def step(self, state: TokenTotal, event: Event, applies: bool = True) -> Step:
        if type(event) is not Response:
            return state, NOTHING
        total, is_whole = _count_tokens(event.usage)
        tokens = state.tokens + total
        after = TokenTotal(tokens, state.blind if is_whole else state.blind + 1)
        if not state.tokens <= self._at_most < tokens:
            return after, NOTHING
        message = f"{tokens} tokens so far, at most {self._at_most} allowed"
        return after, (FoundViolation(message, event.origin.session, event.turn, (ref(event),)),)

    def end(self, state: TokenTotal, ended: ScopeEnd) -> Conclusion:
        return inconclusive_if_blind(state.blind, "token usage", ok_if_complete(ended))
