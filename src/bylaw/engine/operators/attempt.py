"""`Attempt`: no attempted call matches the predicate. Attempts are counted, denied ones too, and never given back."""

from __future__ import annotations

from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct

from bylaw.engine.evidence import ref
from bylaw.engine.monitor import NOTHING, OK, VACUOUS, Conclusion, Ended, Found, Monitor, Step, Watches, held
from bylaw.engine.predicates import compile_predicate, explain, tools_of
from bylaw.model.demand import Attempt as Demand
from bylaw.model.demand import Calls
from bylaw.model.events import Event, ToolCall
from bylaw.model.predicate import CountOver, counts
from bylaw.model.verdict import Outcome

NOT_COMPARED = "a value could not be compared, which counts as a match"
MOST_RUNS = 10_000
"""runs of one session that are counted apart; those beyond are counted together, which only restricts"""

Counter: TypeAlias = Any
"""session: a number; run: a number per run; window: the latest times, as many as the rule can ask for"""


class State(Struct, frozen=True, array_like=True):
    counters: tuple[Counter, ...] = ()
    matched: bool = False
    untimed: int = 0
    """calls that a window could not place"""


class Attempt(Monitor):
    state_type = State

    def __init__(self, demand: Demand) -> None:
        self._marks = demand.marks
        self._predicate = demand.when
        self._counters = tuple(dict.fromkeys(counts(demand.when)))
        self._test = compile_predicate(demand.when, self._counters)
        self.initial = State(tuple(_EMPTY[counter.over] for counter in self._counters))
        self.watches = Watches(calls=_watched(demand, self._counters))

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall:
            return state, NOTHING
        shown: tuple[int, ...] = ()
        if self._counters:
            state = self._counted(state, event)
            shown = self._shown(state, event)
        truth = self._test(event, shown)
        if truth is False or (self._marks and truth is None):
            return state, NOTHING
        if not state.matched:
            state = State(state.counters, True, state.untimed)
        return state, (self._found(event, shown, truth),)

    def look(self, state: State, call: ToolCall) -> tuple[Found, ...]:
        """What a call comes to whose attempt is counted already."""
        shown = self._shown(state, call)
        truth = self._test(call, shown)
        return NOTHING if truth is False or (self._marks and truth is None) else (self._found(call, shown, truth),)

    def counts(self, state: State, event: ToolCall) -> dict[str, int]:
        """What the counters show at this attempt, for the record."""
        return {_named(c): n for c, n in zip(self._counters, self._shown(state, event), strict=True)}

    def _counted(self, state: State, call: ToolCall) -> State:
        pairs = zip(self._counters, state.counters, strict=True)
        after = tuple(_advance(counter, value, call) for counter, value in pairs)
        windows = any(counter.over == "window" and counter.tool in (None, call.name) for counter in self._counters)
        return State(after, state.matched, state.untimed + (windows and call.time is None))

    def _shown(self, state: State, call: ToolCall) -> tuple[int, ...]:
        return tuple(_show(c, value, call) for c, value in zip(self._counters, state.counters, strict=True))

    def _found(self, call: ToolCall, shown: tuple[int, ...], truth: bool | None) -> Found:
        parts = explain(self._predicate, call, shown, self._counters)
        message = f"`{call.name}` matches: {', '.join(parts)}"
        notes = () if truth else (NOT_COMPARED,)
        return Found(message, call.origin.session, call.turn, (ref(call),), notes, doubtful=self._marks)

    def end(self, state: State, ended: Ended) -> Conclusion:
        if state.untimed:
            calls = "1 call carries" if state.untimed == 1 else f"{state.untimed:,} calls carry"
            return Conclusion(Outcome.INCONCLUSIVE, reason=f"{calls} no time, so the window cannot be measured")
        if self._marks:
            return OK if state.matched else VACUOUS
        return held(ended)

    def dump(self, state: State) -> Any:
        plain = [dict(value) if isinstance(value, Map) else value for value in state.counters]
        return [plain, state.matched, state.untimed]

    def revive(self, data: Any) -> State:
        counters, matched, untimed = data
        pairs = zip(self._counters, counters, strict=True)
        return State(tuple(_revived(counter, value) for counter, value in pairs), matched, untimed)


_EMPTY: dict[str, Counter] = {"run": Map(), "session": 0, "window": ()}


def _advance(counter: CountOver, value: Counter, call: ToolCall) -> Counter:
    if counter.tool is not None and counter.tool != call.name:
        return value
    match counter.over:
        case "session":
            return value + 1
        case "run":
            run = _counted_as(call, value)
            return value.set(run, value.get(run, 0) + 1)
        case "window":
            time = call.time
            if time is None:
                return value
            times = (*value, time) if not value or time >= value[-1] else tuple(sorted((*value, time)))
            return times[-counter.value - 1 :]


def _show(counter: CountOver, value: Counter, call: ToolCall) -> int:
    match counter.over:
        case "session":
            return int(value)
        case "run":
            return int(value.get(_counted_as(call, value), 0))
        case "window":
            now = call.time
            assert counter.seconds is not None
            # what came before this call is not later than it, whatever a clock that went backwards says
            return 0 if now is None else sum(now - time < counter.seconds for time in value)


def _counted_as(call: ToolCall, known: Map[str, int]) -> str:
    """The run, or one that all further runs share: a session full of runs must not lose a count."""
    run = call.origin.run or ""
    return run if run in known or len(known) < MOST_RUNS else _FURTHER


_FURTHER = "\x00further runs"


def _revived(counter: CountOver, value: Any) -> Counter:
    if counter.over == "run":
        return Map(value)
    return tuple(value) if counter.over == "window" else value


def _watched(demand: Demand, counters: tuple[CountOver, ...]) -> tuple[Calls, ...]:
    """Tools by name; one that looks like a glob is still a name, and brings in more calls than concern the rule."""
    names = tools_of(demand.when)
    counted = {counter.tool for counter in counters}
    if names is None or None in counted:
        return (Calls(("*",)),)
    wanted = names | {tool for tool in counted if tool is not None}
    return (Calls(tuple(sorted(wanted))),)


def _named(counter: CountOver) -> str:
    window = f" {counter.seconds:g}s" if counter.seconds is not None else ""
    return f"{counter.over}{window} {counter.tool or '*'}"
