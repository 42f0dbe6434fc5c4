"""`Attempt`: no attempted call matches the predicate. Counters count every attempt, denied ones too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

from immutables import Map
from msgspec import Struct

from bylaw.engine.matching import Explain, compile_explanation, compile_predicate, tools_of
from bylaw.engine.monitor import (
    NOTHING,
    OK,
    VACUOUS,
    Conclusion,
    FoundViolation,
    Monitor,
    ScopeEnd,
    Step,
    Watches,
    ok_if_complete,
    ref,
)
from bylaw.model.condition import CountOver, counts
from bylaw.model.demand import Attempt as Demand
from bylaw.model.demand import Calls
from bylaw.model.events import Event, ToolCall, seconds
from bylaw.model.verdict import Outcome

MOST_RUNS = 10_000
"""runs of one session that are counted apart; those beyond are counted together, which only restricts"""

MOST_LATER = 32
"""times of a window over all sessions that may be later than an event that arrives late"""

Value: TypeAlias = Any
"""session: a number; run: a number per run; window: the latest times, as many as the rule can ask for"""


class Counter(ABC):
    empty: Value
    needs_time = False

    def __init__(self, counted: CountOver) -> None:
        self.tool = counted.tool
        window = f" {counted.seconds:g}s" if counted.seconds is not None else ""
        across = "" if counted.across == "session" else f" ({counted.across})"
        self.name = f"{counted.over}{window} {counted.tool or '*'}{across}"

    def after(self, value: Value, call: ToolCall) -> Value:
        tool = self.tool
        return self.advance(value, call) if tool is None or tool == call.name else value

    @abstractmethod
    def advance(self, value: Value, call: ToolCall) -> Value:
        """Past a call that is counted."""

    @abstractmethod
    def show(self, value: Value, call: ToolCall) -> int: ...

    def dump(self, value: Value) -> Any:
        return value

    def revive(self, data: Any) -> Value:
        return data


class InSession(Counter):
    empty = 0

    def after(self, value: int, call: ToolCall) -> int:
        tool = self.tool
        return value + 1 if tool is None or tool == call.name else value

    def advance(self, value: int, call: ToolCall) -> int:
        return value + 1

    def show(self, value: int, call: ToolCall) -> int:
        return value


class InRun(Counter):
    empty: Map[str, int] = Map()

    def advance(self, value: Map[str, int], call: ToolCall) -> Map[str, int]:
        run = _bounded_name(call.origin.run, value)
        return value.set(run, value.get(run, 0) + 1)

    def show(self, value: Map[str, int], call: ToolCall) -> int:
        return value.get(_bounded_name(call.origin.run, value), 0)

    def dump(self, value: Map[str, int]) -> dict[str, int]:
        return dict(value)

    def revive(self, data: dict[str, int]) -> Map[str, int]:
        return Map(data)


class InWindow(Counter):
    empty: tuple[float, ...] = ()
    needs_time = True

    def __init__(self, counted: CountOver) -> None:
        super().__init__(counted)
        assert counted.seconds is not None
        self._seconds = counted.seconds
        self._most = counted.value + 1
        """the highest count that matters; the counter stops there"""
        self._kept = self._most

    def advance(self, value: tuple[float, ...], call: ToolCall) -> tuple[float, ...]:
        time = seconds(call.at)
        if time is None:
            return value
        if value and time < value[-1]:
            return tuple(sorted((*value, time)))[-self._kept :]
        latest = (time,)  # two tuples are joined in half the time that one is spread into another
        return value + latest if len(value) < self._kept else value[1:] + latest

    def show(self, value: tuple[float, ...], call: ToolCall) -> int:
        """An earlier call never counts as later than this one, even if the clock went backwards."""
        now = seconds(call.at)
        return 0 if now is None else min(len(value) - self._first(value, now), self._most)

    def _first(self, value: tuple[float, ...], now: float) -> int:
        """The index of the first time inside the window that ends now."""
        length = self._seconds
        first = bisect_right(value, now - length)
        # that difference is rounded, so the times next to it are compared once more
        while first < len(value) and not now - value[first] < length:
            first += 1
        while first > 0 and now - value[first - 1] < length:
            first -= 1
        return first

    def revive(self, data: list[float]) -> tuple[float, ...]:
        return tuple(data)


class InWideWindow(InWindow):
    """Over all sessions. Their events arrive in any order, so a late one is counted at its own time: what came after
    that is not before it. For this, more times are stored than it needs to show."""

    def __init__(self, counted: CountOver) -> None:
        super().__init__(counted)
        self._kept = self._most + MOST_LATER

    def show(self, value: tuple[float, ...], call: ToolCall) -> int:
        now = seconds(call.at)
        if now is None:
            return 0
        first, last = self._first(value, now), bisect_right(value, now)
        if first == 0 and len(value) >= self._kept:  # earlier times in the window may be forgotten
            last = len(value)
        return min(last - first, self._most)


class InAgentWindow(InWideWindow):
    """A window for each agent, over all its sessions."""

    empty: Map[str, tuple[float, ...]] = Map()  # type: ignore[assignment]

    def advance(self, value: Any, call: ToolCall) -> Any:
        agent = _bounded_name(call.origin.agent, value)
        return value.set(agent, super().advance(value.get(agent, ()), call))

    def show(self, value: Any, call: ToolCall) -> int:
        return super().show(value.get(_bounded_name(call.origin.agent, value), ()), call)

    def dump(self, value: Map[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        return dict(value)

    def revive(self, data: Any) -> Any:
        return Map({agent: tuple(times) for agent, times in data.items()})


_KINDS: dict[str, type[Counter]] = {"run": InRun, "session": InSession, "window": InWindow}


def compile_counter(counted: CountOver) -> Counter:
    wide = {"agent": InAgentWindow, "all": InWideWindow}.get(counted.across)
    return (wide or _KINDS[counted.over])(counted)


def _bounded_name(name: str | None, known: Map[str, Any]) -> str:
    """The run or agent, or one that all further ones share: a session full of runs must not lose a count."""
    name = name or ""
    return name if name in known or len(known) < MOST_RUNS else _FURTHER


_FURTHER = "\x00further runs"


NOT_KNOWN_APPROVED = "the call requires approval, and the recording does not say whether a person approved it"
NOT_COMPARED = "a value could not be compared, which counts as a match"


class State(Struct, frozen=True, array_like=True):
    counters: tuple[Value, ...] = ()
    matched: bool = False
    untimed: int = 0
    """calls that a window could not place"""
    unread: int = 0
    """calls that may match, since their arguments were not recorded"""


class Attempt(Monitor):
    state_type = State

    def __init__(self, demand: Demand) -> None:
        self._marks, self._asks = demand.marks, demand.asks
        self._predicate = demand.when
        self._counted = tuple(dict.fromkeys(counts(demand.when)))
        self._counters = tuple(map(compile_counter, self._counted))
        self._only = self._counters[0] if len(self._counters) == 1 else None
        """the counter of a rule that has one: most that count do, and are spared the loop"""
        self._windows = tuple(counter for counter in self._counters if counter.needs_time)
        self._test = compile_predicate(demand.when, self._counted)
        self._explain: Explain | None = None
        self.initial = State(tuple(counter.empty for counter in self._counters))
        self.watches = Watches(calls=_watched_calls(demand, self._counted))

    def step(self, state: State, event: Event, applies: bool = True) -> Step:
        if type(event) is not ToolCall:
            return state, NOTHING
        shown: tuple[int, ...] = ()
        only = self._only
        if only is not None:
            value = only.after(state.counters[0], event)
            untimed = state.untimed if not self._windows else state.untimed + self._is_untimed(event)
            state = State((value,), state.matched, untimed, state.unread)
            shown = (only.show(value, event),)
        elif self._counters:
            after = tuple([c.after(value, event) for c, value in zip(self._counters, state.counters, strict=True)])
            state = State(after, state.matched, state.untimed + self._is_untimed(event), state.unread)
            shown = self.shown(state, event)
        truth = self._test(event, shown)
        if truth is False or (self._marks and truth is None):
            return state, NOTHING
        if truth is None and event.arguments is None and event.raw_arguments is None:
            return State(state.counters, state.matched, state.untimed, state.unread + 1), NOTHING
        if not state.matched:
            state = State(state.counters, True, state.untimed, state.unread)
        return state, (self._make_violation(event, shown, truth),)

    def look(self, state: State, call: ToolCall) -> tuple[FoundViolation, ...]:
        """The violations of a call whose attempt is already counted."""
        shown = self.shown(state, call)
        truth = self._test(call, shown)
        return (
            NOTHING
            if truth is False or (self._marks and truth is None)
            else (self._make_violation(call, shown, truth),)
        )

    @property
    def counted(self) -> tuple[CountOver, ...]:
        """What it counts, in the order of `shown`."""
        return self._counted

    def dump_counters(self, state: State) -> list[Any]:
        return [c.dump(value) for c, value in zip(self._counters, state.counters, strict=True)]

    def revive_counters(self, values: Sequence[Any]) -> State:
        """The state with these values as they were written down; None begins empty."""
        pairs = zip(self._counters, values, strict=True)
        return State(tuple(c.empty if value is None else c.revive(value) for c, value in pairs))

    @property
    def counters(self) -> tuple[str, ...]:
        """The names of its counters, for reports."""
        return tuple(counter.name for counter in self._counters)

    def _is_untimed(self, call: ToolCall) -> bool:
        """Whether a window cannot place the call."""
        if type(call.at) is float or call.time is not None:
            return False
        return any(counter.tool in (None, call.name) for counter in self._windows)

    def shown(self, state: State, call: ToolCall) -> tuple[int, ...]:
        """What its counters show at this attempt."""
        return tuple([c.show(value, call) for c, value in zip(self._counters, state.counters, strict=True)])

    def _make_violation(self, call: ToolCall, shown: tuple[int, ...], truth: bool | None) -> FoundViolation:
        if self._explain is None:  # only now: most rules never have anything to explain
            self._explain = compile_explanation(self._predicate, self._counted)
        message = f"`{call.name}` matches: {', '.join(self._explain(call, shown))}"
        notes = () if truth else (NOT_COMPARED,)
        return FoundViolation(
            message, call.origin.session, call.turn, (ref(call),), notes, doubtful=self._marks or self._asks
        )

    def end(self, state: State, ended: ScopeEnd) -> Conclusion:
        if state.untimed:
            calls = "1 call carries" if state.untimed == 1 else f"{state.untimed:,} calls carry"
            return Conclusion(Outcome.INCONCLUSIVE, reason=f"{calls} no time, so the window cannot be measured")
        if state.unread:
            of = "1 call" if state.unread == 1 else f"{state.unread:,} calls"
            return Conclusion(Outcome.INCONCLUSIVE, reason=f"the arguments of {of} were not recorded")
        if self._marks:
            return OK if state.matched else VACUOUS
        if self._asks and state.matched:
            return Conclusion(Outcome.INCONCLUSIVE, reason=NOT_KNOWN_APPROVED)
        return ok_if_complete(ended)

    def dump(self, state: State, excerpts: bool = True) -> Any:
        return [self.dump_counters(state), state.matched, state.untimed, state.unread]

    def revive(self, data: Any) -> State:
        counters, *rest = data
        return State(self.revive_counters(counters).counters, *rest)


def _watched_calls(demand: Demand, counters: tuple[CountOver, ...]) -> tuple[Calls, ...]:
    """Tools by name; one that looks like a glob is still a name, and brings in more calls than concern the rule."""
    names = tools_of(demand.when)
    counted = {counter.tool for counter in counters}
    if names is None or None in counted:
        return (Calls(("*",)),)
    wanted = names | {tool for tool in counted if tool is not None}
    return (Calls(tuple(sorted(wanted))),)
